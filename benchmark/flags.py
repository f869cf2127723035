"""Flags of a command or exhibit as fields of a frozen dataclass; cli/options.py makes the command line of them."""

from __future__ import annotations

import dataclasses
from typing import Any


def flag(default: Any = None, text: str = "", **how: Any) -> Any:
    """A field that the command line offers as --its-name.

    `how`: `choices`; `metavar`; `kind`, the conversion of the typed word; `names` instead of the field's own;
    `repeat`, it may be given several times; `positional`, without dashes; `hidden` from the help.
    """
    return dataclasses.field(default=default, metadata={"help": text, **how})
