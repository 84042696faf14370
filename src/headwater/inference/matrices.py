"""One weight matrix, laid out for inference at one precision.

`Dense` keeps the weights in float32 or bfloat16 and computes in their dtype. On a CPU it lets oneDNN arrange
them once: torch's own road packs them anew at every call, and takes MKL, which is half as fast on some CPUs.
`Int8` keeps one byte a weight with one scale an output channel, and rounds each row of the input to a byte with
a scale of its own: the sums are whole numbers, exact in any order. Where the compiled kernels are, `PanelInt8`
takes its place: a scale for every 64 inputs, so that one large value coarsens only its neighbours.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from headwater.errors import UsageError
from headwater.inference import kernels
from headwater.inference.panels import PANEL, PanelInt8
from headwater.inference.rounding import to_int8

Precision = Literal["fp32", "bf16", "int8"]


class Matrix(Protocol):
    """y = x Wᵀ + b: (rows, in) float32 -> (rows, out), in whatever dtype the kernel gives."""

    def __call__(self, x: Tensor) -> Tensor:
        """Apply to (rows, in)."""
        ...


def arrange(weight: Tensor, bias: Tensor | None, precision: Precision) -> Matrix:
    """The matrix (out, in) and its bias (out,) at a precision."""
    if precision == "int8":
        if weight.device.type != "cpu":
            raise UsageError(f"int8 on {weight.device.type}", expected="a CPU", repair="Use precision bf16 there")
        library = kernels.library()
        if library is not None and weight.shape[1] % PANEL == 0:
            return PanelInt8(library, weight, bias)
        return Int8(weight, bias)
    dtype = torch.float32 if precision == "fp32" else torch.bfloat16
    return Dense(weight.to(dtype), bias)


def arrange_linear(linear: nn.Linear, precision: Precision) -> Matrix:
    """The same for a Linear."""
    return arrange(linear.weight.detach(), linear.bias.detach(), precision)


class Dense:
    """Weights in float32 or bfloat16; the product is in their dtype."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.dtype = weight.dtype
        self.bias = None if bias is None else bias.to(self.dtype)
        packed = _arranged(weight)
        self.arranged, self.weight = packed is not None, weight if packed is None else packed

    def __call__(self, x: Tensor) -> Tensor:
        """(rows, in) -> (rows, out)."""
        x = x.to(self.dtype)
        if not self.arranged:
            return functional.linear(x, self.weight, self.bias)
        product: Any = torch.ops.mkldnn._linear_pointwise
        y: Tensor = product(x, self.weight, self.bias, "none", [], "")
        return y


class Int8:
    """Weights of one byte, W ≈ scale · weight with one scale a row of W; the product is float32."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        values, self.scale = to_int8(weight.float())  # (out, in) int8, (out, 1) float32
        self.weight = values.t()  # the layout that the product of whole numbers reads fastest
        self.bias = None if bias is None else bias.float()

    def __call__(self, x: Tensor) -> Tensor:
        """(rows, in) -> (rows, out)."""
        values, scale = to_int8(x.float())
        y = torch._int_mm(values, self.weight) * scale * self.scale.t()
        return y if self.bias is None else y + self.bias


def _arranged(weight: Tensor) -> Tensor | None:
    """The weights in oneDNN's own layout, or None where this torch or this device has no such road."""
    if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return None
    try:
        packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight)
        probe = torch.zeros(1, weight.shape[1], dtype=weight.dtype)
        torch.ops.mkldnn._linear_pointwise(probe, packed, None, "none", [], "")
    except (AttributeError, RuntimeError):
        return None
    return packed
