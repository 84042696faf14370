"""Pieces of arithmetic, each with a fast road for some machines, chosen by asking the machine.

Matrix products: torch's own library for float32 leaves half of some CPUs unused where oneDNN does not. Causal
attention: computed in blocks of queries, the half above the diagonal is never computed; torch's fused CPU kernel
is slower than that. What lies between the products: compiled, in one pass over memory each (`elementwise`). Which
road is taken holds for the process, for each device and dtype of the matrices: `fastest` measures, `use` sets. The
plain road is the readable twin of each, and the default.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor
from torch.nn import functional

from headwater.model import elementwise
from headwater.model.attention import attend as attend_fused
from headwater.model.attention import attend_in_blocks
from headwater.model.elementwise import Piece

Matmul = Literal["torch", "onednn"]
Attention = Literal["fused", "blocks"]

PIECES: tuple[Piece, ...] = get_args(Piece)

# oneDNN keeps what it compiles for each shape of a product, and torch in front of it does so again: 0.2 to 0.4 MB
# each, by default for 1,024 shapes. Texts come in any shape, so those would be hundreds of megabytes; an update of
# one shape, context 1,024, is as fast with 32. Both read this when the first product is made.
for _cache in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
    os.environ.setdefault(_cache, "256")

# A road must be this much faster than the plain one to be taken: below it, it is noise.
WORTH = 1.1


class Kernels(NamedTuple):
    """The roads taken for one device and dtype."""

    matmul: Matmul = "torch"
    attention: Attention = "fused"
    compiled: frozenset[Piece] = frozenset()


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
    used = _used(query)
    if whole and used.attention == "blocks":
        return attend_in_blocks(query, key, value, compiled="softmax" in used.compiled)
    return attend_fused(query, key, value, mask, dropout)


def gelu(x: Tensor) -> Tensor:
    """GELU in its tanh form (Hendrycks and Gimpel 2016)."""
    if "gelu" in _used(x).compiled:
        return elementwise.gelu(x)
    return functional.gelu(x, approximate="tanh")


def norm(x: Tensor, weight: Tensor, bias: Tensor, epsilon: float, dtype: torch.dtype) -> Tensor:
    """LayerNorm of a float32 x over its last dimension (Ba et al. 2016), as the `dtype` of the next product."""
    if "norm" in _in(x.device, dtype).compiled:
        return elementwise.norm(x, weight.float(), bias.float(), epsilon, dtype)
    return functional.layer_norm(x, weight.shape, weight, bias, epsilon).to(dtype)


def add(x: Tensor, branch: Tensor) -> Tensor:
    """The residual stream, float32, and what a branch adds to it."""
    if branch.dtype == torch.bfloat16 and "add" in _used(branch).compiled:
        return elementwise.add(x, branch)
    return x + branch


def compiled(piece: Piece, device: torch.device, dtype: torch.dtype) -> bool:
    """Whether this piece runs compiled where the matrices are of this device and dtype."""
    return piece in _in(device, dtype).compiled


def available(pieces: Iterable[Piece], device: torch.device) -> frozenset[Piece]:
    """Those of the pieces that this machine has compiled: all of them or none."""
    there = device.type == "cpu" and elementwise.library() is not None
    return frozenset(pieces if there else ())


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
    return Kernels(matmul, attention, frozenset(PIECES) if _compiled_pieces_are_faster(dtype) else frozenset())


def _compiled_pieces_are_faster(dtype: torch.dtype) -> bool:
    """GELU stands for all of them: they are of one kind, and it is the one that a poor compiler loses."""
    if elementwise.library() is None:
        return False
    x = torch.randn(256, 1536).to(dtype).requires_grad_()
    return _gain(lambda x: functional.gelu(x, approximate="tanh"), elementwise.gelu, (x,)) > WORTH


def _used(tensor: Tensor) -> Kernels:
    return _in(tensor.device, tensor.dtype)


def _in(device: torch.device, dtype: torch.dtype) -> Kernels:
    if torch.compiler.is_compiling():  # a compiler writes its own
        return PLAIN
    return _in_use.get((device.type, dtype), PLAIN)


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
