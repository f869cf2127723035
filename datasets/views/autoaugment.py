"""AutoAugment's sub-policies (Cubuk et al., CVPR 2019) as tables to be indexed by a whole batch.

Two readings. "v2" is torchvision's `v2.AutoAugment(fill=128)`: 25 sub-policies, every sign random, whole-pixel shifts.
"extended" is what DIRK's released code runs: longer lists, rotation always positive, fractional shifts, bicubic shears.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Literal

import torch
from torch import Tensor

from datasets.views import ops

FILL = 128.0
LEVELS = 10  # magnitudes are indices 0…9

# Operation, probability, magnitude index (none where it has no effect)
_CIFAR = """
Inv .1 + Con .2 6; Rot .7 2 + TrX .3 9; Sha .8 1 + Sha .9 3; ShY .5 8 + TrY .7 9; Aut .5 + Equ .9; ShY .2 7 + Pos .3 7;
Col .4 3 + Bri .6 7; Sha .3 9 + Bri .7 9; Equ .6 + Equ .5; Con .6 7 + Sha .6 5; Col .7 7 + TrX .5 8; Equ .3 + Aut .4;
TrY .4 3 + Sha .2 6; Bri .9 6 + Col .2 8; Sol .5 2 + Inv 0; Equ .2 + Aut .6; Equ .2 + Equ .6; Col .9 9 + Equ .6;
Aut .8 + Sol .2 8; Bri .1 3 + Col .7 0; Sol .4 5 + Aut .9; TrY .9 9 + TrY .7 9; Aut .9 + Sol .8 3; Equ .8 + Inv .1;
TrY .7 9 + Aut .9"""

_IMAGENET = """
Pos .4 8 + Rot .6 9; Sol .6 5 + Aut .6; Equ .8 + Equ .6; Pos .6 7 + Pos .6 6; Equ .4 + Sol .2 4; Equ .4 + Rot .8 8;
Sol .6 3 + Equ .6; Pos .8 5 + Equ 1; Rot .2 3 + Sol .6 8; Equ .6 + Pos .4 6; Rot .8 8 + Col .4 0; Rot .4 9 + Equ .6;
Equ 0 + Equ .8; Inv .6 + Equ 1; Col .6 4 + Con 1 8; Rot .8 8 + Col 1 2; Col .8 8 + Sol .8 7; Sha .4 7 + Inv .6;
ShX .6 5 + Equ 1; Col .4 0 + Equ .6; Equ .4 + Sol .2 4; Sol .6 5 + Aut .6; Inv .6 + Equ 1; Col .6 4 + Con 1 8;
Equ .8 + Equ .6"""

_EXTRA = """
Sol .4 5 + Aut .9; TrY .9 9 + TrY .7 9; Aut .9 + Sol .8 3; Equ .8 + Inv .1; TrY .7 9 + Aut .9; Sol .4 5 + Aut .9;
TrY .8 9 + TrY .9 9; Aut .8 + TrY .7 9; TrY .2 7 + Col .9 6; Equ .7 + Col .4 9; Bri .3 7 + Aut .5; Aut .9 + Aut .5;
Sol .3 5 + Equ .6; TrY .2 4 + Sha .3 3; Bri 0 8 + Col .8 8; Sol .2 6 + Col .8 6; Sol .2 6 + Aut .8; Sol .4 1 + Equ .6;
Bri 0 0 + Sol .5 2; Aut .9 + Bri .5 3; Con .7 5 + Bri 0 2; Sol .2 8 + Sol .1 5; Con .5 1 + TrY .2 9; Aut .6 + TrY 0 9;
Aut .9 + Equ .8; Bri 0 7 + Equ .4; Sol .2 5 + Equ .7; Equ .6 + Col .6 2; Col .3 7 + Col .2 4; Aut .5 + Sol .7 2;
Aut .2 + Equ .1; ShY .6 5 + Equ .6; Bri .9 3 + Aut .4; Equ .8 + Equ .7; Equ .7 + Sol .5 0; Equ .8 + TrY .8 9;
TrY .8 9 + TrY .6 9; TrY .9 0 + TrY .5 9; Aut .5 + Sol .3 4; Sol .5 3 + Equ .4; Aut .1 + Bri 0 0; Equ .7 + Aut .6;
Col .1 8 + ShY .2 3; ShY .4 2 + Rot .7 0; ShY .1 3 + Aut .9; Equ .5 + Sol .6 6; Aut .3 + Rot .2 7; Equ .8 + Inv .4;
Equ .9 + Col .7 0; Equ .1 + ShY .1 3; Aut .7 + Equ .7; Bri .5 1 + Con .1 7; Con .1 4 + Sol .6 5; Sol .2 3 + ShX 0 0;
TrX .3 0 + TrX .6 0; Equ .5 + TrY .6 7; ShX .1 0 + Sha .5 1; Equ .8 + Inv .3; ShX .4 4 + Aut .9; ShX 0 3 + Pos 0 3;
Sol .4 3 + Col .2 4; Equ .1 + Equ .7; Equ .3 + Aut .4; Sol .6 4 + Aut .7; Aut .2 + Bri .4 8; Equ .1 + Equ 0;
Equ .8 + Equ 0; Equ .5 + Aut .1; Sol .5 5 + Aut .9; Aut .6 + Aut .7; Equ .2 + Aut .1; Equ .6 + Equ .4"""

Step = tuple[str, float, int]


def _parse(text: str) -> list[tuple[Step, Step]]:
    def step(words: str) -> Step:
        name, probability, *level = words.split()
        return name, float(probability), int(level[0]) if level else 0

    pairs = [tuple(step(part) for part in entry.split("+")) for entry in text.split(";")]
    return [(first, second) for first, second in pairs]


def sub_policies(kind: Literal["cifar", "imagenet"], reading: Literal["v2", "extended"]) -> list[tuple[Step, Step]]:
    """Return pairs of (operation, probability, magnitude index)."""
    if reading == "v2":
        return _parse(_CIFAR if kind == "cifar" else _IMAGENET)
    # the released CIFAR list has .8 where torchvision has .6
    cifar = _parse(_CIFAR.replace("Equ .2 + Equ .6", "Equ .2 + Equ .8")) + _parse(_EXTRA)
    return cifar if kind == "cifar" else _parse(_IMAGENET) + cifar[:-3]


def operations(reading: Literal["v2", "extended"]) -> Mapping[str, ops.Operation]:
    """Return the operations by the names of the tables; "Ide" leaves the image unchanged."""
    is_extended = reading == "extended"

    def grey(warp: ops.Warp) -> ops.Warp:
        return replace(warp, fill=FILL)

    # the affine ones stand together, so that neighbours share one call of `ops.affine`
    return {
        "Ide": ops.identity,
        "Aut": ops.autocontrast,
        "Bri": ops.brightness,
        "Col": ops.saturation,
        "Con": ops.contrast,
        "Equ": ops.equalize,
        "Inv": ops.invert,
        "Pos": ops.posterize,
        "Sha": ops.sharpness,
        "Sol": ops.solarize,
        "ShX": partial(ops.shear_x_bicubic, fill=FILL) if is_extended else grey(ops.shear_x),
        "ShY": partial(ops.shear_y_bicubic, fill=FILL) if is_extended else grey(ops.shear_y),
        "Rot": grey(ops.rotate),
        "TrX": grey(ops.translate_x),
        "TrY": grey(ops.translate_y),
    }


def _ramp(name: str, reading: str, size: int) -> tuple[list[float], bool]:
    """Return the magnitude of the indices 0…9, and whether its sign (for enhancements: the side of 1) is random."""
    share = [level / (LEVELS - 1) for level in range(LEVELS)]
    if name in ("ShX", "ShY"):
        return [0.3 * s for s in share], True
    if name in ("TrX", "TrY"):
        shifts = [150 / 331 * size * s for s in share]
        return [(math.trunc(shift) if reading == "v2" else shift) / size for shift in shifts], True
    if name == "Rot":
        return [30 * s for s in share], reading == "v2"
    if name in ("Bri", "Col", "Con", "Sha"):
        return [0.9 * s for s in share], True
    if name == "Pos":
        return [float(round(8 - 4 * s)) for s in share], False
    if name == "Sol":
        return [(255 if reading == "v2" else 256) * (1 - s) for s in share], False
    return [0.0] * LEVELS, False


@dataclass(frozen=True)
class Tables:
    """P sub-policies of two operations, and the O operations they refer to."""

    operations: tuple[ops.Operation, ...]
    choice: Tensor  # (P, 2) int64
    probability: Tensor  # (P, 2)
    level: Tensor  # (P, 2) int64
    ramp: Tensor  # (O, 10)
    signed: Tensor  # (O,) bool
    around_one: Tensor  # (O,) bool: the magnitude is a factor's distance from 1


@cache
def tables(
    kind: Literal["cifar", "imagenet"], reading: Literal["v2", "extended"], size: int, device: torch.device
) -> Tables:
    """Return the tables for square images of side `size`."""
    by_name = operations(reading)
    names = list(by_name)
    policies = sub_policies(kind, reading)
    ramps = [_ramp(name, reading, size) for name in names]

    def put(values: list, dtype: torch.dtype) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=device)

    return Tables(
        operations=tuple(by_name.values()),
        choice=put([[names.index(name) for name, _, _ in pair] for pair in policies], torch.int64),
        probability=put([[p for _, p, _ in pair] for pair in policies], torch.float64),
        level=put([[level for _, _, level in pair] for pair in policies], torch.int64),
        ramp=put([ramp for ramp, _ in ramps], torch.float64),
        signed=put([signed for _, signed in ramps], torch.bool),
        around_one=put([name in ("Bri", "Col", "Con", "Sha") for name in names], torch.bool),
    )


def draw(table: Tables, policy: Tensor, happens: Tensor, sign: Tensor) -> tuple[Tensor, Tensor]:
    """Return (B, 2) indices of the operation (0: none) and (B, 2) magnitudes from uniforms (B,), (B, 2), (B, 2)."""
    entry = (policy * table.choice.shape[0]).to(torch.int64)
    choice = torch.where(happens < table.probability[entry], table.choice[entry], 0)
    magnitude = table.ramp[choice, table.level[entry]]
    magnitude = torch.where(table.signed[choice] & (sign < 0.5), -magnitude, magnitude)
    return choice, torch.where(table.around_one[choice], 1 + magnitude, magnitude)
