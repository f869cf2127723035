"""VALEN's neighbour graph at the size of CIFAR-100: seconds, and memory beyond the features themselves."""

from __future__ import annotations

from typing import Any

import torch

from benchmark.speed.timing import seconds
from benchmark.train.guard import peak_memory_mb, reset_peak_memory
from methods.parts.knn import nearest_neighbours

ROWS, WIDTH, NEIGHBOURS = 50_000, 512, 3
GOAL_MB = 2048.0


def measure(rows: int = ROWS, width: int = WIDTH) -> list[dict[str, Any]]:
    """One row: peak memory is that of the whole process, of which `own_mb` came with the search."""
    cpu = torch.device("cpu")
    features = torch.randn(rows, width, generator=torch.Generator().manual_seed(0))
    reset_peak_memory(cpu)
    before = peak_memory_mb(cpu)
    spent = seconds(lambda: nearest_neighbours(features, NEIGHBOURS), cpu)
    peak = peak_memory_mb(cpu)
    return [
        {
            "rows": rows,
            "width": width,
            "neighbours": NEIGHBOURS,
            "seconds": spent,
            "peak_mb": peak,
            "own_mb": peak - before,
            "goal": GOAL_MB,
            "met": peak < GOAL_MB,
        }
    ]
