"""Find methods: built-in files, `--plugin FILE`, and the entry-point group `candid.methods`.

What the command line lists (name, about, views) is read from the source without running it, so listing needs no torch
and a broken file is an entry with its error and does not affect the others. Running a method imports its one file.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from methods.discovery import FOLDER, Entry, MethodError, built_in_files, methods_in, scan
from methods.settings import Setting

if TYPE_CHECKING:
    from methods.base import Method

__all__ = ["Catalogue", "Entry", "MethodError", "Setting", "discover", "load", "register", "scan"]

_registered: dict[str, type[Method]] = {}
T = TypeVar("T", bound="type[Method]")


def register(cls: T) -> T:
    """Register a method class under its `name` (class decorator)."""
    _registered[cls.name] = cls
    return cls


@dataclass
class Catalogue:
    """All methods that can be named on the command line; broken files by path with the reason."""

    entries: dict[str, Entry] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)

    def get(self, name: str) -> Entry:
        if name in self.entries:
            return self.entries[name]
        for path, reason in self.broken.items():
            if Path(path).stem.replace("_", "-") == name:
                raise MethodError(f"Method '{name}' cannot be used: {reason}")
        raise MethodError(f"Unknown method '{name}' (see `list methods`).")


def discover(plugins: tuple[str | Path, ...] = (), tolerant: bool = False) -> Catalogue:
    """Return every built-in method, those of the plug-in files and those behind installed entry points.

    A broken plug-in is an error, or with `tolerant` one more entry of `broken`.
    """
    catalogue = Catalogue()
    for path in built_in_files():
        _add(catalogue, path, required=False, reader=methods_in)  # files without @register hold shared code
    for plugin in plugins:
        _add(catalogue, Path(plugin), required=not tolerant)
    for point in importlib.metadata.entry_points(group="candid.methods"):
        module = point.value.split(":")[0]
        try:
            spec = importlib.util.find_spec(module)
        except (ImportError, ValueError) as error:
            catalogue.broken[point.value] = f"entry point {point.name}: {error}"
            continue
        if spec is None or spec.origin is None:
            catalogue.broken[point.value] = f"entry point {point.name}: module {module} not found"
        else:
            _add(catalogue, Path(spec.origin), required=False)
    return catalogue


def _add(catalogue: Catalogue, path: Path, *, required: bool, reader: Callable[[Path], list[Entry]] = scan) -> None:
    try:
        entries = reader(path)
    except MethodError as error:
        if required:
            raise
        catalogue.broken[str(path)] = str(error)
        return
    for entry in entries:
        other = catalogue.entries.get(entry.name)
        if other is not None and other.file.resolve() != entry.file.resolve():
            message = (
                f"{path}:{entry.line}: the name '{entry.name}' is taken by {other.file}:{other.line}; "
                f"give your method another `name`."
            )
            if required:
                raise MethodError(message)
            catalogue.broken[str(path)] = message
            return
        catalogue.entries[entry.name] = entry


def load(entry: Entry) -> type[Method]:
    """Import the one file of a method and return its class."""
    if entry.built_in:
        module_name = ".".join(("methods", *entry.file.resolve().relative_to(FOLDER).with_suffix("").parts))
    else:
        digest = hashlib.sha256(str(entry.file.resolve()).encode()).hexdigest()[:8]
        module_name = f"candid_plugin_{entry.file.stem}_{digest}"
    try:
        if module_name in sys.modules or module_name.startswith("methods."):
            importlib.import_module(module_name)
        else:
            spec = importlib.util.spec_from_file_location(module_name, entry.file)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[module_name] = module
            try:
                spec.loader.exec_module(module)
            except BaseException:
                del sys.modules[module_name]
                raise
    except Exception as error:
        line = _line_in(entry.file, error)
        raise MethodError(f"{entry.file}{line}: importing failed: {type(error).__name__}: {error}") from error
    if entry.name not in _registered:
        raise MethodError(f"{entry.file}:{entry.line}: {entry.class_name} did not register as '{entry.name}'.")
    return _registered[entry.name]


def _line_in(path: Path, error: BaseException) -> str:
    """Return ':LINE' of the deepest frame of a traceback in `path`; empty if there is none."""
    line, trace = "", error.__traceback__
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename).resolve() == path.resolve():
            line = f":{trace.tb_lineno}"
        trace = trace.tb_next
    return line
