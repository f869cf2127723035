"""Peak memory of runs against what a device has, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmark.run.devices import memory_of
from benchmark.run.estimate import pair_of

if TYPE_CHECKING:
    from benchmark.plan.spec import RunSpec
    from benchmark.run.estimate import Estimate

OWN_OF_CUDA = 1.5e9  # bytes of a GPU that are not tensors of a run: context, kernels, cuDNN's workspace
MEGABYTE, GIGABYTE = 1e6, 1e9


def memory_of_a_run(slots: Sequence[str]) -> float:
    """Bytes that each run has if the slots of the first device share it evenly."""
    return memory_of(slots[0]) / slots.count(slots[0])


def memory_lines(estimate: Estimate, specs: Sequence[RunSpec], capacity: float) -> list[str]:
    """Peak memory of every method, and which runs a device with so many bytes for each cannot hold."""
    largest: dict[str, float] = {}
    beyond: dict[str, list[str]] = {}
    for (label, dataset), spec in {pair_of(spec): spec for spec in specs}.items():
        needed = estimate.cost(spec).peak_bytes
        largest[label] = max(needed, largest.get(label, 0.0))
        if capacity and needed and needed + OWN_OF_CUDA + resident(estimate, spec, capacity) > capacity:
            beyond.setdefault(label, []).append(dataset)
    ordered = sorted((label for label in largest if largest[label]), key=lambda label: -largest[label])
    lines = []
    if ordered:
        lines.append(f"Memory           of tensors: {', '.join(f'{name} {_size(largest[name])}' for name in ordered)}")
    if beyond:
        lower = "--set train.amp=bfloat16 or " if any(spec.train.amp == "off" for spec in specs) else ""
        runs = "; ".join(f"{label} on {', '.join(names)}" for label, names in beyond.items())
        lines.append(
            f"Too large        {runs}: with {_size(OWN_OF_CUDA)} for CUDA and the pictures that are kept there more than the {_size(capacity)} that a "
            f"run has. Take a larger card or fewer --jobs, or as another run {lower}a smaller train.batch."
        )
    return lines


def resident(estimate: Estimate, spec: RunSpec, capacity: float) -> float:
    """Bytes of pictures that a run keeps on a card of this size."""
    from benchmark.train.pixels import RESIDENT_SHARE

    outline = estimate.outline(spec)
    kept = outline.picture_bytes if outline else 0.0
    return kept if kept <= RESIDENT_SHARE * capacity else 0.0


def _size(count: float) -> str:
    return f"{count / GIGABYTE:.1f} GB" if count >= 0.1 * GIGABYTE else f"{count / MEGABYTE:.0f} MB"
