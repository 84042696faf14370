"""The compiled element-wise kernels of a training step (`native/elementwise.c`) and their place in autograd.

Torch makes several passes over memory where one would do, and on many CPUs its GELU and softmax in bfloat16 cost
as much as a matrix product. Each piece has its readable twin in torch: GELU in its tanh form (`functional.gelu`),
LayerNorm that writes the dtype of the next product (`functional.layer_norm`), the sum with the residual stream
(+), attention's softmax and the loss's gradient (`attention._causal_softmax_`, `loss._softmax_gradient_`), Adam
(`torch.optim.AdamW`). `kernels` decides which are used. CPU only; elements are float32 or bfloat16, arithmetic is
float32, and a result does not depend on the number of threads.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor

from headwater import native

Piece = Literal["gelu", "norm", "add", "softmax", "loss", "adam"]
_ELEMENTS = 4096  # of an item of work, as in the source
# Parts that the gains' gradients are summed in: fixed, so that the sum does not depend on the threads.
_PARTS = 32
_POINTER, _COUNT, _NUMBER = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
_ARGUMENTS = {
    "gelu": [_POINTER] * 3 + [_COUNT] * 3,
    "loss": [_POINTER] * 4 + [_COUNT] * 5,
    "softmax": [_POINTER] * 2 + [_NUMBER] + [_COUNT] * 5,
    "norm": [_POINTER] * 3 + [_NUMBER] + [_POINTER] * 3 + [_COUNT] * 4,
    "norm_gradient": [_POINTER] * 7 + [_COUNT] * 5,
    "sum": [_POINTER] * 3 + [_COUNT] * 3,
    "adam": [_POINTER] * 5 + [_COUNT] * 2 + [_NUMBER] * 7 + [_COUNT],
    "squares": [_POINTER] * 2 + [_COUNT] * 3,
}


@cache
def library() -> ctypes.CDLL | None:
    """Return the compiled kernels of `native/elementwise.c`, or None if they were not built."""
    variant = native.chosen()
    loaded = native.extension(variant) if variant else None
    for name, arguments in _ARGUMENTS.items() if loaded else ():
        function = getattr(loaded, f"headwater_{name}")
        function.restype, function.argtypes = None, arguments
    return loaded


def gelu(x: Tensor) -> Tensor:
    """GELU in its tanh form, of any shape."""
    result: Tensor = _Gelu.apply(x)  # type: ignore[no-untyped-call]
    return result


def norm(x: Tensor, weight: Tensor, bias: Tensor, epsilon: float, dtype: torch.dtype) -> Tensor:
    """LayerNorm over the last dimension: x, weight, bias float32 -> the shape of x in `dtype`."""
    result: Tensor = _Norm.apply(x, weight, bias, epsilon, dtype)  # type: ignore[no-untyped-call]
    return result


def add(x: Tensor, branch: Tensor) -> Tensor:
    """x + branch, of one shape: float32 and bfloat16 -> float32."""
    result: Tensor = _Add.apply(x, branch)  # type: ignore[no-untyped-call]
    return result


def softmax_(scores: Tensor, scale: float) -> None:
    """softmax(scale · scores) in place: (…, queries, keys) of a block whose last query sees every key."""
    *_, queries, keys = scores.shape
    _call("softmax", scores, None, scale, scores.numel() // keys, queries, keys, _is_half(scores))


def softmax_gradient_(gradient: Tensor, weights: Tensor, scale: float) -> None:
    """The gradient of `softmax_`'s result becomes that of its scores, in place."""
    *_, queries, keys = weights.shape
    _call("softmax", gradient, weights, scale, weights.numel() // keys, queries, keys, _is_half(weights))


def loss_gradient_(logits: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Turn (rows, vocabulary) logits, in place, into the gradient of the weighted loss; returns the loss."""
    losses = torch.empty(len(targets), dtype=torch.float32)
    rows, columns = logits.shape
    targets, weights = targets.contiguous(), weights.contiguous()
    _call("loss", logits, targets, weights, losses, rows, columns, logits.stride(0), _is_half(logits))
    return losses.sum()


def sum_to(total: Tensor, part: Tensor, out: Tensor) -> Tensor:
    """out = total + part: float32 and bfloat16 -> either, contiguous, of one size; out may be `total`."""
    _call("sum", total, part, out, total.numel(), _is_half(out))
    return out


def sum_of_squares(x: Tensor) -> Tensor:
    """Σ x², float64."""
    squares = torch.empty(-(-x.numel() // _ELEMENTS), dtype=torch.float64)
    _call("squares", x, squares, x.numel(), _is_half(x))
    return squares.sum()


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
    """One update of a float32 weight by `scale` · gradient, and of its bfloat16 copy where there is one.

    keep: what decay leaves of the weight; rate: the learning rate over 1 − β₁ᵗ; correction: 1/√(1 − β₂ᵗ).
    """
    numbers = (scale, keep, *betas, rate, correction, epsilon)
    _call("adam", weight, gradient, *moments, copy, weight.numel(), _is_half(gradient), *numbers)


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x = x.contiguous()
        ctx.save_for_backward(x)
        out = torch.empty_like(x)
        _call("gelu", x, None, out, x.numel(), _is_half(x))
        return out

    @staticmethod
    def backward(ctx: Any, *upstream: Any) -> Tensor:
        (x,) = ctx.saved_tensors
        out = torch.empty_like(x)
        _call("gelu", x, upstream[0].contiguous(), out, x.numel(), _is_half(x))
        return out


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, epsilon: float, dtype: torch.dtype) -> Tensor:
        x, weight, bias = x.contiguous(), weight.contiguous(), bias.contiguous()
        width = x.shape[-1]
        rows = x.numel() // width
        out = torch.empty(x.shape, dtype=dtype)
        means, deviations = torch.empty(rows), torch.empty(rows)
        _call("norm", x, weight, bias, epsilon, out, means, deviations, rows, width, _is_half(out))
        ctx.save_for_backward(x, weight, means, deviations)
        return out

    @staticmethod
    def backward(ctx: Any, *upstream: Any) -> tuple[Tensor, Tensor, Tensor, None, None]:
        x, weight, means, deviations = ctx.saved_tensors
        gradient = upstream[0].contiguous()
        width = x.shape[-1]
        rows = x.numel() // width
        grad_x = torch.empty_like(x)
        sums = torch.zeros(_PARTS, 2, width)
        half = _is_half(gradient)
        _call("norm_gradient", gradient, x, weight, means, deviations, grad_x, sums, _PARTS, rows, width, half)
        grad_weight, grad_bias = sums.sum(dim=0)
        return grad_x, grad_weight, grad_bias, None, None


class _Add(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, branch: Tensor) -> Tensor:
        ctx.dtype = branch.dtype
        x = x.contiguous()
        return sum_to(x, branch.contiguous(), torch.empty_like(x))

    @staticmethod
    def backward(ctx: Any, *upstream: Any) -> tuple[Tensor, Tensor]:
        return upstream[0], upstream[0].to(ctx.dtype)


def _is_half(tensor: Tensor) -> bool:
    return tensor.dtype == torch.bfloat16


def _call(name: str, *arguments: Tensor | float | None) -> None:
    """Tensors go as their addresses, and torch's number of threads behind the rest."""
    addresses = [a.data_ptr() if isinstance(a, Tensor) else a for a in arguments]
    getattr(library(), f"headwater_{name}")(*addresses, torch.get_num_threads())
