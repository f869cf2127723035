"""The ways to carry out many runs. Importing them needs neither torch nor the libraries of a cluster."""

from __future__ import annotations

from benchmark.runner.dask import Dask
from benchmark.runner.pool import Backend, Local

BACKENDS: dict[str, type[Backend]] = {backend.name: backend for backend in (Local, Dask)}
DEFAULT = Local.name
