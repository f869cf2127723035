"""Find exact k-nearest neighbours in bounded memory: distances exist for one block of rows at a time, never as n × n."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

BLOCK_ENTRIES = 2**26  # distances in memory at once: 256 MB in float32
GROUP = 64  # columns that share one minimum in the search for the smallest distances
SPARE = 8  # neighbours beyond k whose order is settled by exact differences, against rounding in the matrix product


@torch.no_grad()
def nearest_neighbours(features: Tensor, k: int, block_entries: int = BLOCK_ENTRIES) -> Tensor:
    """Return the k nearest rows in Euclidean distance, nearest first. (n, F) -> (n, min(k, n−1)) int64.

    A row is never its own neighbour, not even among duplicates; equal distances go to the lower row (if more than
    SPARE different rows are equally far, rounding may choose among them). Cost O(n²F).
    """
    n, dim = features.shape
    k = min(k, n - 1)
    if k <= 0:
        return torch.empty(n, 0, dtype=torch.long, device=features.device)
    features = features if features.dtype == torch.float64 else features.float()
    centred = features - features.mean(0)  # distances stay; the cancellation in ‖x‖² + ‖y‖² − 2x·y shrinks
    # ‖y‖² is one more coordinate, so a block is one product; ‖x‖² is constant in a row and left out.
    # Padding rows of the last group are infinitely far.
    width = -(-n // GROUP) * GROUP
    rows = torch.cat([centred, centred.new_ones(n, 1)], dim=1)
    columns = features.new_zeros(width, dim + 1)
    columns[:n, :dim] = -2.0 * centred
    columns[:, dim] = torch.inf
    columns[:n, dim] = centred.square().sum(1)
    block = max(1, min(n, block_entries // width))
    distances = features.new_empty(block, width)  # allocated once: fresh pages cost as much as the product
    nearest = torch.empty(n, k, dtype=torch.long, device=features.device)
    with _full_precision(features.device.type):
        for start in range(0, n, block):
            stop = min(start + block, n)
            part = distances[: stop - start]
            torch.mm(rows[start:stop], columns.T, out=part)
            own = torch.arange(start, stop, device=features.device)
            part.scatter_(1, own.unsqueeze(1), torch.inf)
            shortlist = smallest(part, min(k + SPARE, n - 1)).clamp_max(n - 1)  # NaN sorts after the padding
            nearest[start:stop] = _rerank(features, own, shortlist, k)
    return nearest


def smallest(values: Tensor, m: int) -> Tensor:
    """Return the columns of the m smallest entries of each row, ties to the lower. (R, W) -> (R, m), W a multiple of GROUP.

    They lie in the m groups with the smallest minima, so the wide row is read once and only the minima are sorted.
    """
    blocks = values.unflatten(1, (-1, GROUP))
    minima = blocks.amin(2)
    groups = torch.sort(minima, dim=1, stable=True).indices[:, :m].sort(dim=1).values  # ascending: stable ties below
    members = blocks.gather(1, groups.unsqueeze(2).expand(-1, -1, GROUP)).flatten(1)
    columns = (groups.unsqueeze(2) * GROUP + torch.arange(GROUP, device=values.device)).flatten(1)
    order = torch.sort(members, dim=1, stable=True).indices[:, :m]
    return columns.gather(1, order)


def _rerank(features: Tensor, own: Tensor, shortlist: Tensor, k: int) -> Tensor:
    """Return the k nearest of the shortlist by exact differences, ties to the lower row. (R, m) -> (R, k)."""
    shortlist = shortlist.sort(dim=1).values
    exact = features.new_empty(shortlist.shape, dtype=torch.float64)
    for column in range(shortlist.shape[1]):  # one neighbour at a time bounds memory at R × F
        difference = features[shortlist[:, column]].double() - features[own].double()
        exact[:, column] = difference.square().sum(1)
    return shortlist.gather(1, torch.sort(exact, dim=1, stable=True).indices[:, :k])


@contextmanager
def _full_precision(device_type: str) -> Iterator[None]:
    """Switch autocast and TF32 off: three digits do not separate neighbours."""
    products = torch.backends.cuda.matmul  # torch's newer switch cannot be combined with this one, which runs set
    before, products.allow_tf32 = products.allow_tf32, False
    try:
        with torch.autocast(device_type, enabled=False):
            yield
    finally:
        products.allow_tf32 = before


def batch_adjacency(neighbours: Tensor, index: Tensor) -> Tensor:
    """Return the batch's block of the directed row-normalised graph with self-loops. (N, k), (B,) -> (B, B)."""
    edges = (neighbours[index].unsqueeze(2) == index).any(1)  # (B, k, B)
    return edges.fill_diagonal_(True).to(torch.float32) / (neighbours.shape[1] + 1)
