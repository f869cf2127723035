"""Finding methods: files dropped into this folder, `--plugin FILE`, and the entry-point group `candid.methods`.

What the command line lists (name, about, views) is read from the source without running it, so listing needs no torch
and a broken file is an entry with its error, never a crash of the rest. Running a method imports its one file.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import sys
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from methods.base import Method

FOLDER = Path(__file__).parent
NOT_METHODS = {"__init__", "base", "blocks", "registry", "backbones", "fused", "knn"}

_registered: dict[str, type[Method]] = {}
T = TypeVar("T", bound="type[Method]")


class MethodError(Exception):
    """A method that cannot be used; the text is one sentence for the person at the keyboard."""


def register(cls: T) -> T:
    """Class decorator: make a method known under its `name`."""
    _registered[cls.name] = cls
    return cls


@dataclass(frozen=True)
class Setting:
    """One field of a method's Config: its annotation as written, and its default."""

    annotation: str
    default: Any

    def parse(self, text: str) -> Any:
        """A value given as text (`--set`) in the type of the annotation; ValueError says what would fit."""
        return self.check(_from_text(text, self.annotation))

    def check(self, value: Any) -> Any:
        """The value itself if it fits the annotation (an int becomes a float where a float is wanted)."""
        return _fit(value, _parsed(self.annotation), self.annotation)


@dataclass(frozen=True)
class Entry:
    """A method as its source describes it."""

    name: str
    title: str
    kind: str
    venue: str
    year: int
    views: tuple[str, ...]
    file: Path
    class_name: str
    line: int
    forwards: str = "1"
    state: str = "none"
    config: dict[str, Setting] = field(default_factory=dict)

    @functools.cached_property  # asked once per run of a plan, and resolving a path asks the disk
    def built_in(self) -> bool:
        return self.file.resolve().parent == FOLDER.resolve()


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
        raise MethodError(f"Unknown method '{name}'.{did_you_mean(name, self.entries)} See `list methods`.")


def did_you_mean(word: str, known: Any) -> str:
    """' Did you mean …?' or nothing."""
    close = get_close_matches(word, [str(k) for k in known], n=2, cutoff=0.5)
    return f" Did you mean {' or '.join(repr(c) for c in close)}?" if close else ""


def discover(plugins: tuple[str | Path, ...] = (), tolerant: bool = False) -> Catalogue:
    """Every method in the tree, in the plug-in files and behind installed entry points.

    A broken plug-in is an error, or with `tolerant` one more entry of `broken`.
    """
    catalogue = Catalogue()
    for path in sorted(FOLDER.glob("*.py")):
        if path.stem not in NOT_METHODS and not path.stem.startswith("_"):
            _add(catalogue, path, required=False)
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


def _add(catalogue: Catalogue, path: Path, *, required: bool) -> None:
    try:
        found = scan(path)
    except MethodError as error:
        if required:
            raise
        catalogue.broken[str(path)] = str(error)
        return
    for entry in found:
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


def scan(path: Path) -> list[Entry]:
    """Read the methods of one file from its source."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    except FileNotFoundError:
        raise MethodError(f"Plug-in {path} does not exist.") from None
    except IsADirectoryError:
        raise MethodError(f"Plug-in {path} is a folder; name the .py file.") from None
    except SyntaxError as error:
        raise MethodError(f"{path}:{error.lineno}: syntax error: {error.msg}.") from None
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise MethodError(f"{path} cannot be read: {error}.") from None
    own = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    classes = _imported_classes(tree) | own
    entries = [
        _entry(path, node, classes)
        for node in own.values()
        if any(_decorator_name(d) == "register" for d in node.decorator_list)
    ]
    if not entries:
        raise MethodError(f"{path}: no class is decorated with @register; decorate your Method subclass with it.")
    names = [e.name for e in entries]
    for entry in entries:
        if names.count(entry.name) > 1:
            raise MethodError(f"{path}:{entry.line}: the name '{entry.name}' is used twice in this file.")
    return entries


def _decorator_name(node: ast.expr) -> str:
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _class_value(node: ast.ClassDef, key: str, classes: dict[str, ast.ClassDef]) -> ast.expr | None:
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and getattr(item.target, "id", "") == key:
            return item.value
        if isinstance(item, ast.Assign) and any(getattr(t, "id", "") == key for t in item.targets):
            return item.value
    for base in node.bases:
        parent = classes.get(getattr(base, "id", ""))
        if parent is not None and parent is not node:
            return _class_value(parent, key, classes)
    return None


def _imported_classes(tree: ast.Module) -> dict[str, ast.ClassDef]:
    """Classes that a file imports from methods of the tree, so that a subclass inherits what they declare."""
    found: dict[str, ast.ClassDef] = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("methods."):
            source = FOLDER / f"{(node.module or '').removeprefix('methods.')}.py"
            if source.is_file() and source.stem not in NOT_METHODS:
                inner = ast.parse(source.read_text(encoding="utf-8"))
                names = {alias.name: alias.asname or alias.name for alias in node.names}
                for item in inner.body:
                    if isinstance(item, ast.ClassDef) and item.name in names:
                        found[names[item.name]] = item
    return found


def _config(path: Path, node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> dict[str, Setting]:
    """Fields of the nested Config, those of its base classes first."""
    settings: dict[str, Setting] = {}
    own = next((i for i in node.body if isinstance(i, ast.ClassDef) and i.name == "Config"), None)
    parents = [getattr(b, "id", "") for b in node.bases] if own is None else []
    if own is not None:
        parents = [b.value.id for b in own.bases if isinstance(b, ast.Attribute) and isinstance(b.value, ast.Name)]
    for parent in parents:
        if parent in classes and classes[parent] is not node:
            settings |= _config(path, classes[parent], classes)
    for item in own.body if own is not None else []:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            where = f"{path}:{item.lineno}: Config.{item.target.id}"
            if item.value is None:
                raise MethodError(f"{where} needs a default.")
            try:
                default = _constant(item.value)
            except ValueError:
                raise MethodError(f"{where}: the default must be written out literally.") from None
            settings[item.target.id] = Setting(ast.unparse(_spell_out(path, item.annotation)), default)
    return settings


def _constant(node: ast.expr) -> Any:
    """A literal, or a quotient of numbers such as 60 / 450, the form in which a paper's epochs become fractions."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return ast.literal_eval(node.left) / ast.literal_eval(node.right)
    return ast.literal_eval(node)


def _spell_out(path: Path, annotation: ast.expr) -> ast.expr:
    """`Variant` -> what the file or a method of the tree assigned to that name, `Literal['a', 'b']`."""
    if isinstance(annotation, ast.Name) and annotation.id not in ("float", "int", "bool", "str"):
        for source in (path, *sorted(FOLDER.glob("*.py"))):
            for item in ast.parse(source.read_text(encoding="utf-8")).body:
                if isinstance(item, ast.Assign) and any(getattr(t, "id", "") == annotation.id for t in item.targets):
                    return item.value
    return annotation


def _from_text(text: str, annotation: str) -> Any:
    try:
        # A choice that is spelled out in the annotation is text, also where it reads like a value ("none").
        return text if annotation == "str" or repr(text) in annotation else ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return {"true": True, "false": False, "none": None}.get(text.lower(), text)


@functools.cache
def _parsed(annotation: str) -> ast.expr:
    return ast.parse(annotation, mode="eval").body


def _fit(value: Any, wanted: ast.expr, annotation: str) -> Any:
    if isinstance(wanted, ast.BinOp):  # X | None
        for side in (wanted.left, wanted.right):
            try:
                return _fit(value, side, annotation)
            except ValueError:
                continue
    elif isinstance(wanted, ast.Constant):
        if wanted.value is None and value is None:
            return None
    elif isinstance(wanted, ast.Subscript) and getattr(wanted.value, "id", "") == "Literal":
        choices = ast.literal_eval(wanted.slice)
        if value in (choices if isinstance(choices, tuple) else (choices,)):
            return value
    elif isinstance(wanted, ast.Subscript) and getattr(wanted.value, "id", "") == "tuple":
        if isinstance(value, list | tuple):
            return tuple(value)
    elif isinstance(wanted, ast.Name):
        kind = {"float": float, "int": int, "bool": bool, "str": str}.get(wanted.id)
        if kind is float and type(value) in (int, float):
            return float(value)
        if kind is not None and type(value) is kind:
            return value
    raise ValueError(f"{value!r} does not fit {annotation}")


def _entry(path: Path, node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> Entry:
    def literal(expr: ast.expr | None, what: str) -> Any:
        try:
            return None if expr is None else ast.literal_eval(expr)
        except ValueError:
            raise MethodError(f"{path}:{node.lineno}: `{what}` of {node.name} must be written out literally.") from None

    name = literal(_class_value(node, "name", classes), "name")
    if not isinstance(name, str) or not name:
        raise MethodError(f'{path}:{node.lineno}: {node.name} needs a `name`, for example name = "mine".')
    about = _class_value(node, "about", classes)
    values: dict[str, Any] = {}
    if isinstance(about, ast.Call):
        for key, argument in zip(("title", "kind", "venue", "year"), about.args, strict=False):
            values[key] = literal(argument, "about")
        for keyword in about.keywords:
            values[keyword.arg or ""] = literal(keyword.value, "about")
    return Entry(
        name=name,
        title=values.get("title", name),
        kind=values.get("kind", "PLL"),
        venue=values.get("venue", "–"),
        year=values.get("year", 0),
        forwards=values.get("forwards", "1"),
        state=values.get("state", "none"),
        views=tuple(literal(_class_value(node, "views", classes), "views") or ("weak",)),
        file=path,
        class_name=node.name,
        line=node.lineno,
        config=_config(path, node, classes),
    )


def load(entry: Entry) -> type[Method]:
    """Import the one file of a method and return its class."""
    if entry.built_in:
        module_name = f"methods.{entry.file.stem}"
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
    """':LINE' of the deepest frame of a traceback that lies in `path`, or nothing."""
    line, trace = "", error.__traceback__
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename).resolve() == path.resolve():
            line = f":{trace.tb_lineno}"
        trace = trace.tb_next
    return line


def sees_truth(cls: type[Method]) -> bool:
    """Whether this is the one class that may be handed true labels (the ceiling of the tables), and no subclass of it."""
    from methods.supervised import Supervised

    return cls is Supervised
