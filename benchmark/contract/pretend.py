"""Pretend CUDA device: tensors that say `cuda:0` and are computed on the CPU, with real values.

    with PretendCuda() as device:
        ...  # build and train on torch.device("cuda")
    device.waits  # counter of (operation, "file:line")

It raises where CUDA raises: for tensors of two devices in one call, a CPU generator with tensors of the device, pinning
or `.numpy()` of such tensors, and, with deterministic algorithms on, operations that have no deterministic form. It records
every place where the host waits for the device. With `index=1` it is the second of two GPUs, and tensors for another GPU,
or for none by number, are errors. With `collects=True` it records refusals in `mixed` and continues, so that one run
reports every line.

A wrapper's C++ device is `meta`, its Python `device` is cuda:0, the tensor inside is real. Not covered: CUDA's rounding
and generators, autocast on CUDA, fused attention (the plain path is used).
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar, Self
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map_only

from benchmark.files import ROOT
from benchmark.trainer import device as trainer_device

SMALL_COPY = 2**16  # bytes from ordinary memory up to which a copy to the device returns at once
HERE = str(Path(__file__).resolve().parent)
aten = torch.ops.aten

# The host waits inside these operations, because the result's size or value is needed to go on.
WAITS = {
    *("_local_scalar_dense", "nonzero", "equal", "is_nonzero", "masked_select", "bincount", "histc"),
    *("_unique", "_unique2", "unique_dim", "unique_consecutive"),
    "repeat_interleave",  # of repeats that are a tensor
}
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}
# Operations that CUDA refuses when deterministic algorithms are on, after the documentation of
# `torch.use_deterministic_algorithms` (2.15): always, of floats only, and with a second argument (indices, weights) only.
NOT_DETERMINISTIC = {
    *("put_", "avg_pool3d_backward", "_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward"),
    *("adaptive_max_pool2d_backward", "fractional_max_pool2d_backward", "max_unpool2d", "upsample_linear1d_backward"),
    *("upsample_bilinear2d_backward", "_upsample_bilinear2d_aa_backward", "upsample_bicubic2d_backward"),
    *("_upsample_bicubic2d_aa_backward", "reflection_pad1d_backward", "reflection_pad2d_backward"),
    *("nll_loss2d_forward", "_ctc_loss_backward", "grid_sampler_2d_backward", "grid_sampler_3d_backward"),
}
NOT_DETERMINISTIC_OF_FLOATS = {"scatter_reduce", "scatter_reduce_", "index_reduce", "index_reduce_", "histc"}
NOT_DETERMINISTIC_WITH_MORE = {"median", "nanmedian", "bincount"}


class MixedDevices(RuntimeError):
    """Raised for what CUDA refuses, with the line that requested it."""


class Pretend(Tensor):
    """Tensor of the pretend device."""

    payload: Tensor  # the real one

    @staticmethod
    def __new__(cls, payload: Tensor) -> Pretend:
        wrapper = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, payload.size(), strides=payload.stride(), storage_offset=payload.storage_offset(), dtype=payload.dtype,
            layout=payload.layout, device=torch.device("meta"), requires_grad=False,
        )  # fmt: skip
        wrapper.payload = payload
        return wrapper

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]
    device = property(lambda self: active().place)  # type: ignore[assignment]
    is_cuda = property(lambda self: True)  # type: ignore[assignment]
    is_cpu = property(lambda self: False)  # type: ignore[assignment]
    is_meta = property(lambda self: False)  # type: ignore[assignment]

    def tolist(self) -> Any:
        active().wait("tolist")
        return self.payload.detach().tolist()

    def numpy(self, *_: Any, **__: Any) -> Any:
        active().refuse(f"can't convert {active().place} device type tensor to numpy", TypeError)
        return self.payload.detach().numpy()

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self.numpy()

    def pin_memory(self, *_: Any) -> Tensor:
        active().refuse(f"cannot pin a tensor of {active().place}, only one of the CPU")
        return self

    def record_stream(self, *_: Any) -> None: ...

    def __reduce_ex__(self, protocol: Any) -> Any:  # a checkpoint holds what is inside
        return self.payload.detach().__reduce_ex__(protocol)

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"Pretend({tuple(self.shape)}, {self.dtype})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        return active().call(func, args, kwargs or {})


def active() -> PretendCuda:
    if PretendCuda.current is None:
        raise RuntimeError("a tensor of the pretend device is used outside it")
    return PretendCuda.current


def unwrapped(value: Any) -> Any:
    return tree_map_only(Pretend, lambda one: one.payload, value)


def is_device(device: Any) -> bool:
    if device is None or torch.device(device).type not in ("cuda", "meta"):
        return False
    if torch.device(device).type == "cuda" and (torch.device(device).index or 0) != active().place.index:
        active().refuse(f"a tensor goes to {device}, but this process has {active().place}")
    return True


def is_deterministic(name: str, args: Any) -> bool:
    if name in NOT_DETERMINISTIC_OF_FLOATS:
        return not args[0].is_floating_point()
    if name in NOT_DETERMINISTIC_WITH_MORE:
        return len(args) < 2 or args[1] is None
    return name not in NOT_DETERMINISTIC


def has_mask(indices: Any) -> bool:
    """Return whether an index is a boolean mask, whose hits must be counted before the result has a shape."""
    return any(isinstance(one, Tensor) and one.dtype in (torch.bool, torch.uint8) for one in tree_leaves(indices))


class Stream:
    """Replace `torch.cuda.Stream` and `Event`: everything is done at once, in order."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def wait_stream(self, *_: Any) -> None: ...

    def record(self, *_: Any) -> None: ...

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        active().wait("synchronize")


class PretendCuda(TorchDispatchMode):
    """Context in which the device exists; one at a time."""

    current: ClassVar[PretendCuda | None] = None
    place: torch.device

    def __init__(self, sources: tuple[Path, ...] = (), index: int = 0, collects: bool = False) -> None:
        super().__init__()
        self.collects = collects
        self.mixed: dict[str, str] = {}  # what CUDA refuses, by file:line
        self.place = torch.device("cuda", index)
        self.sources = tuple(str(path.resolve()) for path in (ROOT, *sources))
        self.refuses_waits = False  # as after `torch.cuda.set_sync_debug_mode("error")`
        self._changes = ExitStack()
        self._pinned: dict[int, Tensor] = {}  # by the address of their memory
        self.waits: Counter[tuple[str, str]] = Counter()

    def wait(self, what: str) -> None:
        """Record that the host waits until the device has finished."""
        if self.refuses_waits:
            raise RuntimeError(f"called a synchronizing CUDA operation ({what}), at {self.where()}")
        self.waits[what, self.where()] += 1

    def refuse(self, what: str, error: type[Exception] = MixedDevices) -> None:
        """Raise what CUDA raises, or record the first refusal of every line."""
        if not self.collects:
            raise error(f"{what}, at {self.where()}")
        self.mixed.setdefault(self.where(), what)

    # bookkeeping ------------------------------------------------------------------------------------------------------
    def where(self) -> str:
        """Return file:line of the innermost frame of the further sources, or else of the project."""
        frame: FrameType | None = sys._getframe(1)
        innermost = "?"
        while frame is not None:
            file = frame.f_code.co_filename
            if file.startswith(self.sources) and not file.startswith(HERE) and "site-packages" not in file:
                place = f"{file.removeprefix(self.sources[0] + '/')}:{frame.f_lineno}"
                if not self.sources[1:] or file.startswith(self.sources[1:]):
                    return place
                innermost = place if innermost == "?" else innermost
            frame = frame.f_back
        return innermost

    def pinned(self, tensor: Tensor) -> Tensor:
        self._pinned[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    def is_pinned(self, tensor: Tensor) -> bool:
        return tensor.untyped_storage().data_ptr() in self._pinned

    def __enter__(self) -> Self:
        if PretendCuda.current is not None:
            raise RuntimeError("the pretend device is in use already")
        torch.compiler.reset()  # imports the compiler, as optimisers do at their first step: not in here
        PretendCuda.current = self
        trainer_device.pretended = True
        torch._C._ensureCUDADeviceGuardSet()  # resolves "cuda" without a number where there is no driver
        for owner, name, stand_in in replacements():
            self._changes.enter_context(mock.patch.object(owner, name, stand_in))
        for read, change in flags():
            self._changes.callback(change, read())
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        torch._C._set_only_lift_cpu_tensors(True)  # makes torch.tensor(…, device=) visible here
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._changes.close()
        PretendCuda.current = None
        forget_constants()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.call(func, args, kwargs or {})

    # one call ---------------------------------------------------------------------------------------------------------
    def call(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        name = func._schema.name.split("::")[1]
        leaves = tree_leaves((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        ours = any(isinstance(one, Pretend) for one in tensors)
        if not ours and not is_device(kwargs.get("device")):
            return self._on_cpu(func, name, args, kwargs)
        for leaf in leaves:
            if isinstance(leaf, torch.Generator) and leaf.device.type == "cpu":
                self.refuse(f"Expected a 'cuda' generator but found 'cpu' in {name}")
        if name == "_to_copy":
            return self._copied(args[0], kwargs)
        if name == "copy_" and isinstance(args[0], Pretend) != isinstance(args[1], Pretend):
            return self._copied_into(*args, **kwargs)
        if ours:
            self._check_one_device(name, args, tensors)
        if name in INDEXING and has_mask(args[1]):
            self.wait("boolean mask")
        if name in WAITS:
            self.wait("a value is read" if name == "_local_scalar_dense" else name)
        if name == "_local_scalar_dense":
            return args[0].payload.item()
        if torch.are_deterministic_algorithms_enabled() and not is_deterministic(name, args):
            self.refuse(f"{name} does not have a deterministic implementation on CUDA", RuntimeError)
        inside = {"device": torch.device("cpu")} if is_device(kwargs.get("device")) else {}
        result = func(*unwrapped(args), **unwrapped(kwargs) | inside)
        wrapped = tree_map_only(Tensor, lambda one: one if isinstance(one, Pretend) else Pretend(one), result)
        return return_and_correct_aliasing(func, args, kwargs, wrapped) if ours else wrapped

    def _on_cpu(self, func: Any, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
        if name in ("_pin_memory", "pin_memory"):
            return self.pinned(args[0].clone())
        if name == "is_pinned":
            return self.is_pinned(args[0])
        if kwargs.get("pin_memory"):
            return self.pinned(func(*args, **kwargs | {"pin_memory": False}))
        return func(*args, **kwargs)

    def _check_one_device(self, name: str, args: Any, tensors: list[Tensor]) -> None:
        for one in tensors:
            if not isinstance(one, Pretend) and one.dim() > 0:
                if name in INDEXING and one is not args[0]:
                    self.wait("CPU index into a tensor of the device")
                    continue
                what = f"Expected all tensors to be on the same device, but found {self.place} and cpu in {name}"
                self.refuse(what)

    def _to_device(self, source: Tensor, non_blocking: bool) -> None:
        size = source.nelement() * source.element_size()
        if not non_blocking or (size > SMALL_COPY and not self.is_pinned(source)):
            self.wait("copy to the device")

    def _copied(self, source: Tensor, kwargs: dict[str, Any]) -> Tensor:
        device = kwargs.get("device")
        rest = {key: value for key, value in kwargs.items() if key not in ("device", "non_blocking", "pin_memory")}
        copy = aten._to_copy.default(unwrapped(source), **rest)
        if not isinstance(source, Pretend):
            self._to_device(source, bool(kwargs.get("non_blocking")))
        elif device is not None and not is_device(device):
            self.wait("copy to the host")
            return copy
        return Pretend(copy)

    def _copied_into(self, target: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
        if isinstance(target, Pretend):
            self._to_device(source, non_blocking)
            target.payload.copy_(source)
        else:
            self.wait("copy to the host")
            target.copy_(source.payload)  # type: ignore[attr-defined]
        return target


def forget_constants() -> None:
    """Clear the constants that views cache per device: the next one may have another number."""
    for name, module in list(sys.modules.items()):
        for value in vars(module).values() if name.startswith("datasets.views.") else ():
            if hasattr(value, "cache_clear"):
                value.cache_clear()


def flags() -> list[tuple[Callable[[], Any], Callable[[Any], Any]]]:
    """Return how to read and to change the global settings that a run on CUDA and this device change."""
    cuda, cudnn = torch.backends.cuda, torch.backends.cudnn
    memory: Any = torch.utils.deterministic
    return [
        (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
        (lambda: memory.fill_uninitialized_memory, lambda on: setattr(memory, "fill_uninitialized_memory", on)),
        (cuda.flash_sdp_enabled, cuda.enable_flash_sdp),
        (cuda.mem_efficient_sdp_enabled, cuda.enable_mem_efficient_sdp),
        (cuda.cudnn_sdp_enabled, cuda.enable_cudnn_sdp),
        (lambda: cudnn.allow_tf32, lambda on: setattr(cudnn, "allow_tf32", on)),
        (lambda: cuda.matmul.allow_tf32, lambda on: setattr(cuda.matmul, "allow_tf32", on)),
        (
            torch.__future__.get_overwrite_module_params_on_conversion,
            torch.__future__.set_overwrite_module_params_on_conversion,
        ),
        (torch._C._only_lift_cpu_tensors, torch._C._set_only_lift_cpu_tensors),
    ]


def replacements() -> Iterator[tuple[Any, str, Any]]:
    """Yield the attributes of torch that need a driver, with what replaces them."""

    def constant(value: Any) -> Callable[..., Any]:
        return lambda *_, **__: value

    def set_sync_debug_mode(mode: str) -> None:
        active().refuses_waits = mode == "error"

    cuda = torch.cuda
    nothing = ("_lazy_init", "set_device", "reset_peak_memory_stats", "empty_cache", "manual_seed_all", "manual_seed")
    for name, value in {
        **dict.fromkeys(nothing),
        "is_available": True,
        "device_count": active().place.index + 1,
        "current_device": 0,
        "max_memory_allocated": 0,
        "is_bf16_supported": True,
        "get_device_name": "pretend",
        "get_device_capability": (8, 0),
        "mem_get_info": (2**36, 2**36),
        "current_stream": Stream(),
        "get_rng_state": torch.zeros(16, dtype=torch.uint8),
        "set_rng_state": None,
        "stream": nullcontext(),
    }.items():
        yield cuda, name, constant(value)
    yield cuda, "synchronize", lambda *_: active().wait("synchronize")
    yield cuda, "set_sync_debug_mode", set_sync_debug_mode
    yield cuda, "Stream", Stream
    yield cuda, "Event", Stream
    yield torch, "inference_mode", torch.no_grad  # its tensors do not pass through wrappers
