"""A pretend accelerator: tensors that claim to live on a device and are computed on the CPU.

It shows where tensors are and how often host and device talk to each other, not how kernels
compute. A tensor of the device refuses to be mixed with those of the CPU, as real ones do. Copies
to the device, copies from it and reads of single values are counted.

PyTorch registers a device once for a whole process, by functions that are not public: use it in a
process of its own, see `pretended`.
"""

import weakref
from collections import Counter
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

NAME = "pretend"
DEVICE = torch.device("privateuseone", 0)  # before it has the name
TALK: Counter[str] = Counter()
"""`to_device`, `to_host` (copies) and `read` (single values that the host waits for)."""

CALLS: Counter[str] = Counter()
"""Operations on the device, by name."""

LIVE: dict[int, int] = {}
"""Bytes of the device's tensors that are alive, by where their numbers are."""
PEAK = [0]

_READS = {"aten._local_scalar_dense.default"}
_COPIES = {"aten._to_copy.default", "aten.copy_.default"}


class Pretend(torch.Tensor):
    """A tensor of the device; `held` is where its numbers are."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> "Pretend":
        with torch.inference_mode(False):
            made = torch.Tensor._make_wrapper_subclass(
                cls,
                held.size(),
                strides=held.stride(),
                storage_offset=held.storage_offset(),
                dtype=held.dtype,
                device=DEVICE,
            )
        made.held = held
        _note_life(made)
        return made

    def __repr__(self) -> str:
        return f"Pretend({self.held!r})"

    def numpy(self, *, force: bool = False) -> Any:
        if not force:
            raise TypeError(f"a tensor of {NAME} has no NumPy array; copy it to the host first")
        return self.cpu().numpy()

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return compute(func, args, kwargs or {})


class PretendMode(TorchDispatchMode):
    """Needed for what makes tensors on the device from nothing, or from tensors of the CPU."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return compute(func, args, kwargs or {})


def compute(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Any operation: on the CPU, with the result where a real device would have it."""
    flat = tree_flatten((args, kwargs))[0]
    tensors = [item for item in flat if isinstance(item, torch.Tensor)]
    ours = [item for item in tensors if isinstance(item, Pretend)]
    name, wanted = str(func), kwargs.get("device")
    if name in _COPIES:
        return _copy(func, args, kwargs, wanted)
    if name in _READS and ours:
        TALK["read"] += 1
        return func(*_held(args), **_held(kwargs))
    is_ours = bool(ours) or (wanted is not None and torch.device(wanted).type == NAME)
    if ours:
        strangers = [item for item in tensors if not isinstance(item, Pretend) and item.dim() > 0]
        if strangers and name not in {"aten.set_.source_Tensor"}:
            raise RuntimeError(f"{name} mixes tensors of {NAME} and of the CPU")
    if not is_ours:
        return func(*args, **kwargs)
    CALLS[name] += 1
    on_cpu = {**kwargs, **({"device": torch.device("cpu")} if "device" in kwargs else {})}
    on_cpu.pop("pin_memory", None)
    result = func(*_held(args), **_held(on_cpu))
    return _wrapped(result, args, kwargs)


def _copy(func: Any, args: Any, kwargs: dict[str, Any], wanted: Any) -> Any:
    if str(func) == "aten.copy_.default":
        target, source = args[:2]
        _count(isinstance(source, Pretend), isinstance(target, Pretend))
        _held(target).copy_(_held(source))
        return target
    (source,) = args
    was_ours = isinstance(source, Pretend)
    is_ours = was_ours if wanted is None else torch.device(wanted).type == NAME
    _count(was_ours, is_ours)
    on_cpu = {k: v for k, v in kwargs.items() if k not in {"device", "pin_memory", "non_blocking"}}
    copied = func(_held(source), **on_cpu)
    return Pretend(copied) if is_ours else copied


def _count(was_ours: bool, is_ours: bool) -> None:
    if was_ours != is_ours:
        TALK["to_device" if is_ours else "to_host"] += 1


def _note_life(tensor: Pretend) -> None:
    """Count the memory of a tensor once, however many views it has, until the last one dies."""
    storage = tensor.held.untyped_storage()
    place, size = storage.data_ptr(), storage.nbytes()
    _USERS[place] += 1
    LIVE[place] = size
    PEAK[0] = max(PEAK[0], sum(LIVE.values()))
    weakref.finalize(tensor, _note_death, place)


def _note_death(place: int) -> None:
    _USERS[place] -= 1
    if not _USERS[place]:
        del LIVE[place]


_USERS: Counter[int] = Counter()


def _held(tree: Any) -> Any:
    return tree_map(lambda item: item.held if isinstance(item, Pretend) else item, tree)


def _wrapped(result: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Results on the device; what was changed in place, or given as `out`, is the same object."""
    known = {
        id(item.held): item for item in tree_flatten((args, kwargs))[0] if isinstance(item, Pretend)
    }

    def wrap(item: Any) -> Any:
        if not isinstance(item, torch.Tensor):
            return item
        same = known.get(id(item))
        if same is None:
            return Pretend(item)
        if same.shape != item.shape:  # changed in place, as `squeeze_` does
            with torch._C._DisableTorchDispatch(), torch.no_grad():
                same.as_strided_(item.size(), item.stride(), item.storage_offset())
        return same

    return tree_map(wrap, result)


class _Module:
    """What PyTorch asks of `torch.pretend`."""

    @staticmethod
    def get_amp_supported_dtype() -> list[torch.dtype]:
        return [torch.bfloat16]

    @staticmethod
    def is_available() -> bool:
        return True

    @staticmethod
    def device_count() -> int:
        return 1

    @staticmethod
    def current_device() -> int:
        return 0

    @staticmethod
    def _is_in_bad_fork() -> bool:
        return False

    @staticmethod
    def manual_seed_all(seed: int) -> None:
        pass


def install() -> PretendMode:
    """Register the device; use the result as a context."""
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

    _setup_privateuseone_for_python_backend(NAME, backend_module=_Module())
    torch._C._set_only_lift_cpu_tensors(True)  # or `as_tensor(..., device=)` fails
    _register_autocast()
    return PretendMode()


def _register_autocast() -> None:
    """As CUDA has it: products are lowered, in-place ones and all else are left as they are."""
    rest = torch.library.Library("_", "IMPL")
    rest.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    products = torch.library.Library("aten", "IMPL")
    for name in ("bmm", "baddbmm", "linear", "conv2d"):
        products.impl(name, _lowered(getattr(torch.ops.aten, name)), "AutocastPrivateUse1")
    _LIBRARIES.extend([rest, products])  # they end with the object


_LIBRARIES: list[torch.library.Library] = []


def _lowered(product: Any) -> Any:
    key = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)

    def compute_lowered(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(key):
            return product(*tree_map(_lower, args), **tree_map(_lower, kwargs))

    return compute_lowered


def _lower(item: Any) -> Any:
    is_float = isinstance(item, torch.Tensor) and item.dtype == torch.float32
    return item.to(torch.bfloat16) if is_float else item
