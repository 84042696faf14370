"""The element-wise kernels of a training step (`native/elementwise.py`) and their place in autograd.

Torch makes several passes over memory where one is enough, and on many CPUs its GELU and softmax in bfloat16 cost
as much as a matrix product. CPU only; elements are float32 or bfloat16, arithmetic is float32.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from headwater import native
from headwater.native.elementwise import AdamStep

Piece = Literal["gelu", "norm", "add", "softmax", "loss", "adam"]


def library() -> native.Kernels | None:
    """Return the compiled kernels for this processor, or None if they were not built."""
    return native.kernels()


def gelu(x: Tensor) -> Tensor:
    """Return GELU in its tanh form, of any shape."""
    result: Tensor = _Gelu.apply(x)  # type: ignore[no-untyped-call]
    return result


def norm(x: Tensor, weight: Tensor, bias: Tensor, epsilon: float, dtype: torch.dtype) -> Tensor:
    """Return LayerNorm over the last dimension: x, weight, bias float32 -> the shape of x in `dtype`."""
    result: Tensor = _Norm.apply(x, weight, bias, epsilon, dtype)  # type: ignore[no-untyped-call]
    return result


def add(x: Tensor, branch: Tensor) -> Tensor:
    """Return x + branch, of one shape: float32 and bfloat16 -> float32."""
    result: Tensor = _Add.apply(x, branch)  # type: ignore[no-untyped-call]
    return result


def softmax_(scores: Tensor, scale: float) -> None:
    """Replace (…, queries, keys) by softmax(scale · scores), causal: the last query sees every key."""
    _kernels().softmax_(scores, scale)


def softmax_gradient_(gradient: Tensor, weights: Tensor, scale: float) -> None:
    """Replace the gradient of `softmax_`'s result by that of its scores."""
    _kernels().softmax_gradient_(gradient, weights, scale)


def loss_gradient_(logits: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Replace (rows, vocabulary) logits by the gradient of the weighted loss; return the loss."""
    return _kernels().loss_gradient_(logits, targets.contiguous(), weights.contiguous())


def sum_to(total: Tensor, part: Tensor, out: Tensor) -> Tensor:
    """Write total + part to `out`: float32 and bfloat16 -> either, contiguous, of one size; out may be `total`."""
    return _kernels().sum_to(total, part, out)


def sum_of_squares(x: Tensor) -> Tensor:
    """Return Σ x², float64."""
    return _kernels().sum_of_squares(x.contiguous())


def adam_(
    weight: Tensor,
    gradient: Tensor,
    moments: tuple[Tensor, Tensor],
    copy: Tensor | None,
    *,
    scale: float,
    keep: float,
    betas: tuple[float, float],
    rate: float,
    correction: float,
    epsilon: float,
) -> None:
    """Update a float32 weight by `scale` · gradient, and its bfloat16 copy where there is one. See `AdamStep`."""
    step = AdamStep(scale, keep, betas, rate, correction, epsilon)
    _kernels().adam_(weight, gradient.contiguous(), moments, copy, step)


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x = x.contiguous()
        ctx.save_for_backward(x)
        return _kernels().gelu(x)

    @staticmethod
    def backward(ctx: Any, *upstream: Any) -> Tensor:
        (x,) = ctx.saved_tensors
        return _kernels().gelu(x, upstream[0].contiguous())


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, epsilon: float, dtype: torch.dtype) -> Tensor:
        x, weight, bias = x.contiguous(), weight.contiguous(), bias.contiguous()
        out, means, deviations = _kernels().norm(x, weight, bias, epsilon, dtype)
        ctx.save_for_backward(x, weight, means, deviations)
        return out

    @staticmethod
    def backward(ctx: Any, *upstream: Any) -> tuple[Tensor, Tensor, Tensor, None, None]:
        return *_kernels().norm_gradient(upstream[0].contiguous(), *ctx.saved_tensors), None, None


class _Add(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, branch: Tensor) -> Tensor:
        ctx.dtype = branch.dtype
        x = x.contiguous()
        return sum_to(x, branch.contiguous(), torch.empty_like(x))

    @staticmethod
    def backward(ctx: Any, *upstream: Any) -> tuple[Tensor, Tensor]:
        return upstream[0], upstream[0].to(ctx.dtype)


def _kernels() -> native.Kernels:
    kernels = native.kernels()
    assert kernels is not None, "callers ask `library` first"
    return kernels
