"""What is known of torch's operations on a CUDA device: which launch nothing, which make the host wait, which are inexact."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

# Views, allocation, bookkeeping: no kernel is launched.
_NAMES = """
    detach alias view _unsafe_view reshape _reshape_alias t transpose permute expand slice select unsqueeze squeeze
    split split_with_sizes chunk unbind as_strided unfold diagonal lift lift_fresh empty empty_like new_empty
    empty_strided new_empty_strided is_same_size _has_same_storage_numel size stride set_ resize_ record_stream
    is_pinned view_as_real _version"""
NO_KERNEL = frozenset(_NAMES.split())
# How often the host waits inside an operation, because the result's size or value is needed to go on.
WAITS = {
    "_local_scalar_dense": 1,
    "nonzero": 1,
    "equal": 1,
    "is_nonzero": 1,
    "masked_select": 1,
    "_unique": 1,
    "_unique2": 1,
    "unique_dim": 1,
    "unique_consecutive": 1,
    "repeat_interleave": 1,  # of repeats that are a tensor
    "bincount": 2,  # it asks for its smallest and its largest value
    "histc": 2,
}
INDEXING = frozenset({"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"})


def _float(args: Sequence[Any]) -> bool:
    return isinstance(args[0], Tensor) and args[0].is_floating_point()


def _accumulating(args: Sequence[Any]) -> bool:
    return len(args) > 3 and bool(args[3]) and _float(args)


def _further(args: Sequence[Any]) -> bool:
    return len(args) > 1 and args[1] is not None


def _any(args: Sequence[Any]) -> bool:
    return True


# Both lists after the documentation of `torch.use_deterministic_algorithms` (2.15). Sums whose order changes from call to
# call; whole numbers add up alike in any order, so mostly floats count. Exact as soon as deterministic algorithms are on:
REPAIRED: dict[str, Callable[[Sequence[Any]], bool]] = {
    **dict.fromkeys(("index_add", "index_add_", "scatter_add", "scatter_add_", "cumsum"), _float),
    **dict.fromkeys(("index_put", "index_put_", "_index_put_impl_"), _accumulating),
    **dict.fromkeys(
        (
            "embedding_dense_backward",
            "replication_pad1d_backward",
            "replication_pad2d_backward",
            "max_pool3d_with_indices_backward",
            "_scaled_dot_product_efficient_attention_backward",
            "_scaled_dot_product_flash_attention_backward",
        ),
        _any,
    ),
}
# Without an exact form: with deterministic algorithms on, CUDA refuses them.
REFUSED: dict[str, Callable[[Sequence[Any]], bool]] = {
    **dict.fromkeys(("scatter_reduce", "scatter_reduce_", "index_reduce", "index_reduce_", "histc"), _float),
    **dict.fromkeys(("median", "nanmedian", "bincount"), _further),  # with indices; with weights
    **dict.fromkeys(
        (
            "put_",
            "avg_pool3d_backward",
            "_adaptive_avg_pool2d_backward",
            "_adaptive_avg_pool3d_backward",
            "adaptive_max_pool2d_backward",
            "fractional_max_pool2d_backward",
            "max_unpool2d",
            "upsample_linear1d_backward",
            "upsample_bilinear2d_backward",
            "_upsample_bilinear2d_aa_backward",
            "upsample_bicubic2d_backward",
            "_upsample_bicubic2d_aa_backward",
            "reflection_pad1d_backward",
            "reflection_pad2d_backward",
            "nll_loss2d_forward",
            "_ctc_loss_backward",
            "grid_sampler_2d_backward",
            "grid_sampler_3d_backward",
        ),
        _any,
    ),
}


def is_inexact(name: str, args: Sequence[Any]) -> bool:
    """Whether repeating this call on a CUDA device may give other bits, or is refused, as torch comes."""
    rule = REPAIRED.get(name) or REFUSED.get(name)
    return rule is not None and rule(args)


def mask_in(indices: Any) -> bool:
    """Whether an index is a boolean mask, whose hits must be counted before the result has a shape."""
    found = indices if isinstance(indices, list | tuple) else (indices,)
    return any(isinstance(one, Tensor) and one.dtype in (torch.bool, torch.uint8) for one in found)
