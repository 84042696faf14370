"""One weight matrix, laid out for inference at one precision.

`Dense` keeps the weights in float32 or bfloat16 and computes in their dtype. On a CPU it lets oneDNN arrange
them once: torch's own road packs them anew at every call, and takes MKL, which is half as fast on some CPUs.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional


class Matrix(Protocol):
    """y = x Wᵀ + b: (rows, in) float32 -> (rows, out), in whatever dtype the kernel gives."""

    def __call__(self, x: Tensor) -> Tensor:
        """Apply to (rows, in)."""
        ...


class Dense:
    """Weights in float32 or bfloat16; the product is in their dtype."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        weight = weight.detach()
        self.dtype = weight.dtype
        self.bias = None if bias is None else bias.detach().to(self.dtype)
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
