"""Every setting of a run as a table for the docs, from the dataclasses that hold them and the comments beside their fields."""

from __future__ import annotations

import dataclasses
import inspect
import re

from benchmark.config.sections import SECTIONS, fields_of


def comments(section: type) -> dict[str, str]:
    """What stands behind a field in the source."""
    found = {}
    for line in inspect.getsource(section).splitlines():
        match = re.match(r"\s+(\w+): .*?  # (.*)$", line)
        if match:
            found[match[1]] = match[2]
    return found


def settings_table() -> str:
    """One row per setting: how `--set` calls it, its default, what it may be, and what it is."""
    lines = ["| setting | default | may be | |", "|---|---|---|---|"]
    for name, section in SECTIONS.items():
        known, said = fields_of(section), comments(section)
        for field in dataclasses.fields(section):
            rule, kind = field.metadata.get("rule"), known[field.name].annotation
            choices = re.fullmatch(r"Literal\[(.*)\]", kind)
            wanted = f"one of {choices[1]}".replace("'", "") if choices else rule.text if rule else kind
            default = (
                "empty"
                if field.default == ""
                else str(field.default).lower()
                if isinstance(field.default, bool)
                else field.default
            )
            lines.append(f"| `{name}.{field.name}` | {default} | {wanted} | {said.get(field.name, '')} |")
    return "\n".join(lines).replace("|  |", "| |")
