"""Check values against an annotation, or parse them from text, without importing the annotated class."""

from __future__ import annotations

import ast
import functools
import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Setting:
    """One field of a method's Config: its annotation as written, and its default."""

    annotation: str
    default: Any
    added: bool = False  # marked `Added[…]`: newer than recorded runs, so left out of identities at its default

    def parse(self, text: str) -> Any:
        """Return a value given as text (`--set`) in the type of the annotation; ValueError says what would fit."""
        return self.check(_from_text(text, self.annotation))

    def check(self, value: Any) -> Any:
        """Return the value if it fits the annotation (an int becomes a float where a float is asked for)."""
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{value} is not a finite number")
        return _fit(value, _parsed(self.annotation), self.annotation)


def _from_text(text: str, annotation: str) -> Any:
    try:
        # A choice of the annotation is text, even if it reads like a value ("none").
        return text if annotation == "str" or repr(text) in annotation else ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return {"true": True, "false": False, "none": None}.get(text.lower(), text)


@functools.cache
def _parsed(annotation: str) -> ast.expr:
    return ast.parse(annotation, mode="eval").body


def _fit(value: Any, kind_node: ast.expr, annotation: str) -> Any:
    if isinstance(kind_node, ast.BinOp):  # X | None
        for side in (kind_node.left, kind_node.right):
            try:
                return _fit(value, side, annotation)
            except ValueError:
                continue
    elif isinstance(kind_node, ast.Constant):
        if kind_node.value is None and value is None:
            return None
    elif isinstance(kind_node, ast.Subscript) and getattr(kind_node.value, "id", "") == "Literal":
        choices = ast.literal_eval(kind_node.slice)
        if value in (choices if isinstance(choices, tuple) else (choices,)):
            return value
    elif isinstance(kind_node, ast.Subscript) and getattr(kind_node.value, "id", "") == "tuple":
        if isinstance(value, list | tuple):
            return tuple(value)
    elif isinstance(kind_node, ast.Name):
        kind = {"float": float, "int": int, "bool": bool, "str": str}.get(kind_node.id)
        if kind is float and type(value) in (int, float):
            return float(value)
        if kind is not None and type(value) is kind:
            return value
    raise ValueError(f"{value!r} does not fit {annotation}")
