"""Random numbers as a pure function of where they are used, not of earlier draws.

A number depends on (seed, epoch, stream, index, slot) alone. Hence a resumed run, another batch size, another order or
another device sees the same numbers, and no generator state needs to be saved. The hash is the finaliser of SplitMix64
(Steele, Lea & Flood, 2014), in wrapping 64-bit integers.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

_MASK = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15  # 2^64 / golden ratio, odd: successive counters are far apart
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def _signed(value: int) -> int:
    """Return the int64 with the same bits as an unsigned 64-bit value."""
    value &= _MASK
    return value - (1 << 64) if value >> 63 else value


def _xor_shift(z: Tensor, bits: int) -> Tensor:
    # `>>` keeps the sign on int64; masking the copies of the sign away makes it the logical shift
    return z ^ ((z >> bits) & ((1 << (64 - bits)) - 1))


def _mix(z: Tensor) -> Tensor:
    z = _xor_shift(z, 30) * _signed(_FIRST)
    z = _xor_shift(z, 27) * _signed(_SECOND)
    return _xor_shift(z, 31)


def _key(seed: int, epoch: int, stream: int | str) -> int:
    """Return 64 bits for one (seed, epoch, stream), hashed from text, so that no two triples collide by arithmetic."""
    text = f"{seed}/{epoch}/{type(stream).__name__}:{stream}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def uniforms(seed: int, epoch: int, stream: int | str, index: Tensor, n: int) -> Tensor:
    """Return (B, n) float64 in [0, 1) for the rows `index` (B,) of a dataset, on the device of `index`."""
    rows = _mix(_mix(index.to(torch.int64) * _signed(_STEP) + _signed(_key(seed, epoch, stream))))
    slots = torch.arange(1, n + 1, device=index.device) * _signed(_STEP)
    bits = _mix(rows.unsqueeze(1) + slots)
    return ((bits >> 11) & ((1 << 53) - 1)).to(torch.float64) * 2.0**-53
