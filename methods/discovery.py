"""Read methods from their source with `ast`, without running it: name, about, views and Config."""

from __future__ import annotations

import ast
import functools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from methods.settings import Setting

FOLDER = Path(__file__).resolve().parent
FOLDERS = (FOLDER, FOLDER / "controls")  # of built-in methods
ABOUT = ("title", "kind", "venue", "year", "forwards", "state")  # the arguments of `About`, in order


class MethodError(Exception):
    """A method that cannot be used; the text is one sentence for the user."""


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

    @functools.cached_property  # resolving a path reads the disk, and a plan asks once per run
    def built_in(self) -> bool:
        return self.file.resolve().parent in FOLDERS


def built_in_files() -> list[Path]:
    """Return the files that may hold built-in methods."""
    return [path for folder in FOLDERS for path in sorted(folder.glob("*.py"))]


def scan(path: Path) -> list[Entry]:
    """Return the methods of a file; a file without any is an error."""
    entries = methods_in(path)
    if not entries:
        raise MethodError(f"{path}: no class is decorated with @register; decorate your Method subclass with it.")
    return entries


@functools.lru_cache(maxsize=256)  # files import from each other, and every search reads all of them
def _parsed(text: str, file: str = "") -> ast.Module:
    return ast.parse(text, filename=file)


def methods_in(path: Path) -> list[Entry]:
    """Return the methods of one file: the classes decorated with @register, if there are any."""
    try:
        tree = _parsed(path.read_text(encoding="utf-8"), str(path))
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
    """Return the classes that a file imports from built-in methods, with their bases: their attributes are inherited."""
    classes: dict[str, ast.ClassDef] = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("methods."):
            source = FOLDER / f"{(node.module or '').removeprefix('methods.').replace('.', '/')}.py"
            if source.is_file():
                inner = _parsed(source.read_text(encoding="utf-8"))
                names = {alias.name: alias.asname or alias.name for alias in node.names}
                for item in inner.body:
                    if isinstance(item, ast.ClassDef):
                        classes.setdefault(names.get(item.name, item.name), item)
    return classes


def _config(path: Path, node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> dict[str, Setting]:
    """Return the fields of the nested Config, those of its base classes first."""
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
            annotation, is_added = item.annotation, False
            if isinstance(annotation, ast.Subscript) and getattr(annotation.value, "id", "") == "Added":
                annotation, is_added = annotation.slice, True
            settings[item.target.id] = Setting(ast.unparse(_spell_out(path, annotation)), default, is_added)
    return settings


def _constant(node: ast.expr) -> Any:
    """Evaluate a literal, or a quotient such as 60 / 450, the form in which a paper's epochs become fractions."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return ast.literal_eval(node.left) / ast.literal_eval(node.right)
    return ast.literal_eval(node)


def _spell_out(path: Path, annotation: ast.expr) -> ast.expr:
    """Replace a type alias such as `Variant` by what the file or a built-in method assigned to it, `Literal['a', 'b']`."""
    if isinstance(annotation, ast.Name) and annotation.id not in ("float", "int", "bool", "str"):
        for source in (path, *built_in_files()):
            for item in _parsed(source.read_text(encoding="utf-8")).body:
                if isinstance(item, ast.Assign) and any(getattr(t, "id", "") == annotation.id for t in item.targets):
                    return item.value
    return annotation


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
    values: dict[str, Any] = {"title": name, "kind": "PLL", "venue": "–", "year": 0}
    if isinstance(about, ast.Call):
        arguments = [*zip(ABOUT, about.args, strict=False), *((k.arg, k.value) for k in about.keywords)]
        values |= {key: literal(value, "about") for key, value in arguments if key in ABOUT}
    return Entry(
        name=name,
        **values,
        views=tuple(literal(_class_value(node, "views", classes), "views") or ("weak",)),
        file=path,
        class_name=node.name,
        line=node.lineno,
        config=_config(path, node, classes),
    )
