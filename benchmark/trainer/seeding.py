"""Seeds: every random number is a function of its purpose, never of earlier draws."""

from __future__ import annotations

import hashlib


def derive(*parts: object) -> int:
    """Return a 63-bit seed from any parts, e.g. derive(seed, "order", epoch), the same on every machine."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
