"""Properties of torch's operations on a CUDA device: which make the host wait, which are inexact."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

# The host waits inside these operations, because the result's size or value is needed to go on.
WAITS = frozenset(
    {
        "_local_scalar_dense",
        "nonzero",
        "equal",
        "is_nonzero",
        "masked_select",
        "_unique",
        "_unique2",
        "unique_dim",
        "unique_consecutive",
        "repeat_interleave",  # of repeats that are a tensor
        "bincount",
        "histc",
    }
)
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


def has_mask(indices: Any) -> bool:
    """Return whether an index is a boolean mask, whose hits must be counted before the result has a shape."""
    parts = indices if isinstance(indices, list | tuple) else (indices,)
    return any(isinstance(one, Tensor) and one.dtype in (torch.bool, torch.uint8) for one in parts)
