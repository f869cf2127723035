"""The options of an exhibit as fields of a frozen dataclass; cli/options.py makes the command line of them."""

from __future__ import annotations

import dataclasses
from typing import Any


def flag(default: Any = None, text: str = "", **how: Any) -> Any:
    """Return a field that the command line offers as --its-name.

    `how`: `choices`; `metavar`; `kind`, the type of the value; `hidden` from the help.
    """
    return dataclasses.field(default=default, metadata={"help": text, **how})
