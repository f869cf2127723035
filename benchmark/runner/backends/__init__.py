"""The ways to carry out many runs: each file here with a `BACKEND` is one, and a new one is a new file.

May import what benchmark.runner may; torch and the libraries of a cluster only inside functions, because --help asks here.
"""

from __future__ import annotations

import importlib
import pkgutil

from benchmark.runner.backends.base import Backend


def _found() -> dict[str, type[Backend]]:
    modules = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    classes = [module.BACKEND for module in modules if hasattr(module, "BACKEND")]
    return {found.name: found for found in sorted(classes, key=lambda found: found.needs_scheduler)}


BACKENDS = _found()
DEFAULT = "local"
