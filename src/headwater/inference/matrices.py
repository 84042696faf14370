"""A weight matrix at one precision, for the torch backend.

`Dense` keeps the weights in float32 or bfloat16 and computes in their dtype. On a CPU oneDNN packs them once:
torch would pack them at every call, or use MKL, which is half as fast on some CPUs.

int8 is computed by the native kernels: `native.matrix` has the scheme.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from headwater import native
from headwater.inference.network import Matrix, Precision
from headwater.native import PackedMatrix


def arrange(weight: Tensor, bias: Tensor | None, precision: Precision, *, shared: bool = False) -> Matrix:
    """Return a matrix (out, in) and its bias (out,) at a precision; `shared`: it may keep `weight` itself."""
    if precision == "int8":
        kernels = native.kernels()
        assert kernels is not None  # `choose_precision` requires them
        return PackedMatrix(kernels, weight, bias, precision)
    return Dense(weight, bias, torch.float32 if precision == "fp32" else torch.bfloat16, shared=shared)


def owned(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a copy of a tensor in a dtype: the tensor itself may be mapped from a file that others write."""
    return tensor.detach().to(dtype, copy=True)


class Dense:
    """Weights in float32 or bfloat16; the product is in their dtype."""

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype, *, shared: bool = False) -> None:
        self.dtype = dtype
        self.bias = None if bias is None else owned(bias, dtype)
        packed = _packed(weight.detach().to(dtype))
        self.packed = packed is not None
        self.weight = (weight if shared else owned(weight, dtype)) if packed is None else packed

    def __call__(self, x: Tensor) -> Tensor:
        """(rows, in) -> (rows, out)."""
        x = x.to(self.dtype)
        if not self.packed:
            return functional.linear(x, self.weight, self.bias)
        return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")


def _packed(weight: Tensor) -> Tensor | None:
    """Return the weights in oneDNN's layout, or None if this torch or this device does not have it."""
    if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return None
    try:
        packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight)
        probe = torch.zeros(1, weight.shape[1], dtype=weight.dtype)
        torch.ops.mkldnn._linear_pointwise(probe, packed, None, "none", [], "")
    except (AttributeError, RuntimeError):
        return None
    return packed
