"""What a step must not do on a CUDA device, checked on a machine without one.

Code runs under `FakeTensorMode` on `cuda:0`: tensors have shapes, dtypes, strides and a device, and no data.
FakeTensor alone promotes dtypes that CUDA's kernels refuse, so a dispatch mode on top looks at every operator.

The autograd engine asks a tensor's device for its stream, which a CPU build of torch does not have. Only C++ asks
(`prim::device`), and is told "meta", whose work runs in the calling thread; Python code sees `cuda:0`.

What this cannot show: kernel selection, Inductor's code, races between streams, NCCL, determinism, speed.
"""

from __future__ import annotations

import math
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.autograd.graph import _engine_run_backward
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

DEVICE = torch.device("cuda:0")
META = torch.device("meta")
# Operators of these namespaces have CUDA kernels, or work on any device.
_NAMESPACES = {"aten", "prim", "prims", "profiler"}
_CPU_ONLY = ("mkldnn", "_cpu", "quantize", "fbgemm")
# Kernels that want one floating dtype: they do not promote.
_ONE_DTYPE = {
    *("mm", "addmm", "bmm", "baddbmm", "linear", "native_layer_norm", "native_layer_norm_backward"),
    *("_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention"),
    *("_scaled_dot_product_flash_attention_backward", "_scaled_dot_product_efficient_attention_backward"),
}
_MATMULS = {"mm", "addmm", "bmm", "baddbmm"}
# A smaller product costs its launch, whatever kernel is chosen.
_SMALL_PRODUCT = 1 << 22
# In a larger one the kernel's arithmetic takes the time.
_LARGE_PRODUCT = 1 << 30
_ALIGNMENT = 16  # bytes
_ALLOCATION = 512  # bytes that the allocator rounds up to
_HOST_READS = {"_local_scalar_dense", "item", "is_nonzero", "equal"}
_UNKNOWN_SIZES = {"nonzero", "masked_select", "unique_consecutive", "_unique2", "unique_dim"}


class BrokenContractError(AssertionError):
    """An operator that CUDA refuses, computes elsewhere, or waits for."""


class Contract(TorchDispatchMode):
    """Checks every operator; counts operators and waits of the host for the device."""

    def __init__(self) -> None:
        super().__init__()
        self.operators: Counter[str] = Counter()
        self.waits: list[str] = []
        self.held = self.peak = 0  # bytes on the device
        self._storages: Any = WeakIdKeyDictionary()

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is torch.ops.prim.device.default:
            return META
        kwargs = dict(kwargs or {})
        if torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is None:
            return func(*args, **kwargs)  # set aside, for tensors with data
        if func._can_decompose():  # in inference mode composite functions arrive whole
            with self:
                return func.decompose(*args, **kwargs)
        if kwargs.get("device") == META:  # a factory inside a C++ function, as told above
            kwargs["device"] = DEVICE
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        on_device = [t for t in tensors if t.device.type == "cuda"]
        name = func._schema.name.split("::")[1]
        self.operators[name] += 1
        if on_device or _names_the_device(kwargs):
            self._check(func, name, args, kwargs, tensors, on_device)
        if on_device and name in _HOST_READS:
            self.waits.append(name)
            return 1.0 if on_device[0].is_floating_point() else 1
        if tensors and not any(isinstance(t, FakeTensor) for t in tensors) and not _names_the_device(kwargs):
            with unset_fake_temporarily():  # the host's own data
                return func(*args, **kwargs)
        if on_device and name == "index" and any(t is not None and t.dtype == torch.bool for t in args[1]):
            self.waits.append("index with a mask")
            return args[0].flatten()
        if on_device and name in _UNKNOWN_SIZES:
            self.waits.append(name)
            return on_device[0].new_empty((on_device[0].numel(), on_device[0].dim()), dtype=torch.int64)
        if name == "threshold_backward":  # ReLU's; FakeTensor would decompose it into operators on META
            func, args = torch.ops.aten.empty_like.default, args[:1]
        if name == "_to_copy" and not on_device:  # to the device: what is there has no data
            args = (torch.empty_strided(args[0].shape, args[0].stride(), dtype=args[0].dtype), *args[1:])
        result = func(*args, **kwargs)
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor) and tensor.device.type == "cuda":
                self._hold(tensor.untyped_storage())
        return result

    def _hold(self, storage: torch.UntypedStorage) -> None:
        if storage not in self._storages:
            size = -(-storage.nbytes() // _ALLOCATION) * _ALLOCATION
            self._storages[storage] = size
            weakref.finalize(storage, self._release, size)
            self.held += size
            self.peak = max(self.peak, self.held)

    def _release(self, size: int) -> None:
        self.held -= size

    def _check(
        self,
        func: Any,
        name: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        tensors: Sequence[Tensor],
        on_device: Sequence[Tensor],
    ) -> None:
        namespace = func._schema.name.split("::")[0]
        if namespace not in _NAMESPACES or any(part in name for part in _CPU_ONLY):
            raise BrokenContractError(f"{func} has no CUDA kernel")
        copies = name in ("_to_copy", "copy_")
        elsewhere = [t for t in tensors if t.device.type != "cuda" and t.dim() > 0]
        if elsewhere and on_device and not copies:
            raise BrokenContractError(f"{func} mixes {[t.device.type for t in tensors]}")
        if copies and self._crosses(args, kwargs) and not (kwargs.get("non_blocking") or args[2:] == (True,)):
            self.waits.append(name)
        floats = {t.dtype for t in on_device if t.is_floating_point()}
        if name in _ONE_DTYPE and len(floats) > 1 and not _float32_statistics(name, args, floats):
            raise BrokenContractError(f"{func} mixes {sorted(map(str, floats))}")
        if name in _MATMULS:
            for operand in tensors[-2:] if "out" not in kwargs else tensors[-3:-1]:
                _check_strides(func, operand, tensors)

    def _crosses(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        source = args[1] if isinstance(args[1:2], tuple) and args[1:2] and isinstance(args[1], Tensor) else args[0]
        target = kwargs.get("device") or args[0].device
        return source.device.type != torch.device(target).type and source.dim() > 0


def _names_the_device(kwargs: Mapping[str, Any]) -> bool:
    return kwargs.get("device") is not None and torch.device(kwargs["device"]).type == "cuda"


def _float32_statistics(name: str, args: Sequence[Any], floats: set[torch.dtype]) -> bool:
    """Whether what differs are the means and log-sums that a forward kernel kept in float32 for its backward."""
    if not name.endswith("_backward"):
        return False
    operands = args[:3] if "attention" in name else (args[0], args[1], args[5])
    return len({t.dtype for t in operands if t is not None}) == 1


def _check_strides(func: Any, operand: Tensor, operands: Sequence[Tensor]) -> None:
    rows, columns = operand.shape[-2:]
    size = operands[-1].shape[-1] * operands[-2].shape[-1] * operands[-2].shape[-2]
    if min(rows, columns) <= 1 or size * math.prod(operand.shape[:-2]) < _SMALL_PRODUCT:
        return
    inner, outer = sorted(operand.stride()[-2:])
    item = operand.element_size()
    if inner != 1 or outer * item % _ALIGNMENT or operand.storage_offset() * item % _ALIGNMENT:
        raise BrokenContractError(
            f"{func}: an operand {tuple(operand.shape)} {operand.dtype} has strides {operand.stride()}, "
            f"offset {operand.storage_offset()}"
        )
    shapes = [tuple(other.shape) for other in operands[-2:]]
    if size >= _LARGE_PRODUCT and any(shape[-1] * item % _ALIGNMENT for shape in shapes):
        raise BrokenContractError(f"{func}: only slow kernels take the columns of {shapes}")


class _Functions(TorchFunctionMode):
    """Composite functions that choose a kernel by the device, which torch without CUDA cannot do."""

    def __init__(self, contract: Contract, masks: bool) -> None:
        super().__init__()
        self.contract, self.masks = contract, masks

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.nn.functional.scaled_dot_product_attention and args[0].device.type == "cuda":
            return self._attend(*args, **kwargs)
        if func in (torch.lstm, torch._VF.lstm) and args[0].device.type == "cuda":
            floats = {t.dtype for t in tree_leaves(args) if isinstance(t, Tensor)}
            if len(floats) > 1:
                raise BrokenContractError(f"cuDNN's LSTM is given {sorted(map(str, floats))}")
        if func is Tensor.pin_memory:
            return args[0]
        if func is Tensor.backward:  # a mode is off inside its own function, and recomputation needs it
            (loss,) = args
            with self:
                return _engine_run_backward(
                    (loss,),
                    (torch.ones_like(loss),),
                    False,
                    False,
                    (),
                    allow_unreachable=True,
                    accumulate_grad=True,
                )
        return func(*args, **kwargs)

    def _attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
    ) -> Tensor:
        if attn_mask is not None and not self.masks:
            raise BrokenContractError("attention with a mask has no flash kernel")
        _check_attention(query, key, value)
        if attn_mask is None and query.dtype != torch.float32:
            return torch.ops.aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal)[0]
        bias = attn_mask
        if attn_mask is not None:  # as torch's own function turns a mask into a bias
            zeros = torch.zeros(attn_mask.shape, dtype=query.dtype, device=query.device)
            bias = zeros.masked_fill(~attn_mask, float("-inf"))
            bias = bias.expand(*query.shape[:3], key.shape[2])
        return torch.ops.aten._scaled_dot_product_efficient_attention(
            query, key, value, bias, torch.is_grad_enabled(), dropout_p, is_causal
        )[0]


def _check_attention(query: Tensor, key: Tensor, value: Tensor) -> None:
    head = query.shape[-1]
    if len({t.dtype for t in (query, key, value)}) > 1:
        raise BrokenContractError("attention mixes dtypes")
    if any(t.stride(-1) != 1 for t in (query, key, value)) or head % 8 or head > 256:
        raise BrokenContractError(f"no fused kernel takes heads of {head} with strides {query.stride()}")


FakeCuda = Callable[..., AbstractContextManager[Contract]]


@pytest.fixture
def fake_cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    """`with fake_cuda(masks=False) as contract`: compute on `DEVICE` without data; attention may have masks."""
    return lambda masks=False: _fake_cuda(monkeypatch, masks)


@contextmanager
def _fake_cuda(monkeypatch: pytest.MonkeyPatch, masks: bool) -> Iterator[Contract]:
    contract = Contract()

    def read(tensor: Tensor) -> Any:
        if tensor.device.type == "cuda":
            contract.waits.append("tolist")
        values: Any = 1.0 if tensor.is_floating_point() else 1
        for size in reversed(tensor.shape):
            values = [values] * size
        return values

    monkeypatch.setitem(fake_tensor._DISPATCH_META_HANDLERS, torch.ops.prim.device.default, lambda args: META)
    monkeypatch.setattr(FakeTensor, "tolist", read)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: None)
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: None)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: True)
    functions = _Functions(contract, masks)
    with ExitStack() as stack:
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        stack.enter_context(contract)
        stack.enter_context(functions)
        yield contract


@pytest.fixture
def device() -> torch.device:
    """The device of `fake_cuda`."""
    return DEVICE


@pytest.fixture
def on_device() -> Callable[[M], M]:
    """Put a module's parameters on `device`, without data; call it inside `fake_cuda`."""
    return _on_device


M = TypeVar("M", bound=torch.nn.Module)


def _on_device(module: M) -> M:
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                empty = torch.empty(parameter.shape, dtype=parameter.dtype, device=DEVICE)
                part._parameters[name] = torch.nn.Parameter(empty, requires_grad=parameter.requires_grad)
        if isinstance(part, torch.nn.LSTM):
            part._init_flat_weights()
    return module
