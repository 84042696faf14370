"""Two pieces of arithmetic, each with a fast road for some machines, chosen by asking the machine.

Matrix products: torch's own library for float32 leaves half of some CPUs unused where oneDNN does not. Causal
attention: computed in blocks of queries, the half above the diagonal is never computed; torch's fused CPU kernel
is slower than that. Which road is taken holds for the process, for each device and dtype: `fastest` measures,
`use` sets. The plain road is the readable twin of each, and the default.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from headwater.model.attention import attend as attend_fused
from headwater.model.attention import attend_in_blocks

Matmul = Literal["torch", "onednn"]
Attention = Literal["fused", "blocks"]

# A road must be this much faster than the plain one to be taken: below it, it is noise.
WORTH = 1.1


class Kernels(NamedTuple):
    """The roads taken for one device and dtype."""

    matmul: Matmul = "torch"
    attention: Attention = "fused"


PLAIN = Kernels()
_in_use: dict[tuple[str, torch.dtype], Kernels] = {}


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x weightᵀ + bias: (…, in), (out, in), (out,) -> (…, out)."""
    if _used(weight).matmul == "onednn":
        product: Tensor = _OneDnnLinear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
        return product
    return functional.linear(x, weight, bias)


def product(x: Tensor, weight: Tensor, out: Tensor) -> Tensor:
    """out = x weightᵀ without gradients: (rows, in), (columns, in) -> (rows, columns)."""
    if _used(weight).matmul == "onednn":
        return out.copy_(_onednn_product(x, weight))
    return torch.mm(x, weight.t(), out=out)


def product_roads(device: torch.device, dtype: torch.dtype) -> list[Callable[[Tensor, Tensor], Tensor]]:
    """Every way to multiply x by weightᵀ that this build of torch has."""
    roads: list[Callable[[Tensor, Tensor], Tensor]] = [functional.linear]
    if device.type == "cpu" and dtype == torch.float32 and _works(_OneDnnLinear.apply):
        roads.append(_onednn_product)
    return roads


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, dropout: float = 0.0) -> Tensor:
    """Scaled dot-product attention, see `attention.attend`; blocks serve causal attention without dropout."""
    whole = mask is None and dropout == 0 and query.shape[-2] == key.shape[-2] > 1
    if whole and _used(query).attention == "blocks":
        return attend_in_blocks(query, key, value)
    return attend_fused(query, key, value, mask, dropout)


def use(device: torch.device, dtype: torch.dtype, kernels: Kernels) -> None:
    """Take these roads from now on, for tensors of this device and dtype."""
    _in_use[device.type, dtype] = kernels


@cache
def fastest(device: torch.device, dtype: torch.dtype) -> Kernels:
    """The faster of each two roads on this machine, both passes measured at a small model's size."""
    if device.type != "cpu":
        return PLAIN
    attention: Attention = "blocks" if _gain(attend_fused, attend_in_blocks, _heads(dtype)) > WORTH else "fused"
    matmul: Matmul = "torch"
    if len(product_roads(device, dtype)) > 1:  # bfloat16 goes through oneDNN as it is
        matmul = "onednn" if _gain(functional.linear, _OneDnnLinear.apply, _layer()) > WORTH else "torch"
    return Kernels(matmul, attention)


def _used(tensor: Tensor) -> Kernels:
    if torch.compiler.is_compiling():  # a compiler writes its own
        return PLAIN
    return _in_use.get((tensor.device.type, tensor.dtype), PLAIN)


class _OneDnnLinear(torch.autograd.Function):
    """The product and both gradients through oneDNN."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        return _onednn_product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *upstream: Any) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        gradient = upstream[0].flatten(0, -2)
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        return (
            _onednn_product(gradient, weight.t()).view(x.shape) if needs_x else None,
            _onednn_product(gradient.t(), x.flatten(0, -2).t()) if needs_weight else None,
            gradient.sum(dim=0) if ctx.has_bias and needs_bias else None,
        )


def _onednn_product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return product


def _works(function: Callable[..., Tensor]) -> bool:
    try:
        function(torch.zeros(2, 4), torch.zeros(3, 4), torch.zeros(3))
    except (RuntimeError, AttributeError):  # a build of torch without oneDNN
        return False
    return True


def _layer() -> tuple[Tensor, ...]:
    return tuple(torch.randn(shape, requires_grad=True) for shape in ((1024, 384), (1536, 384), (1536,)))


def _heads(dtype: torch.dtype) -> tuple[Tensor, ...]:
    return tuple(torch.randn(2, 6, 256, 64).to(dtype).requires_grad_() for _ in range(3))


def _gain(plain: Callable[..., Tensor], other: Callable[..., Tensor], operands: tuple[Tensor, ...]) -> float:
    """How many times faster `other` is, forward and backward: the best of a few, in turns."""
    best = [float("inf"), float("inf")]
    for _ in range(6):
        for index, function in enumerate((plain, other)):
            started = time.perf_counter()
            result = function(*operands)
            torch.autograd.grad(result, operands, torch.ones_like(result))
            best[index] = min(best[index], time.perf_counter() - started)
    return best[0] / best[1]
