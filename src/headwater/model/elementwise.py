"""Autograd functions over the element-wise kernels of a training step (`native/elementwise.py`).

Torch makes several passes over memory where one is enough, and on many CPUs its bfloat16 GELU and softmax cost as
much as a matmul. CPU only; elements are float32 or bfloat16, arithmetic is float32.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headwater import native


def kernels() -> native.Kernels:
    """Return the compiled kernels; callers check first that they were built (`Backend.native`)."""
    found = native.kernels()
    assert found is not None
    return found


def gelu(x: Tensor) -> Tensor:
    """Return GELU in its tanh form, of any shape."""
    return _Gelu.apply(x)  # type: ignore[no-untyped-call]


def norm(x: Tensor, weight: Tensor, bias: Tensor, epsilon: float, dtype: torch.dtype) -> Tensor:
    """Return LayerNorm over the last dimension: x, weight, bias float32 -> the shape of x in `dtype`."""
    return _Norm.apply(x, weight, bias, epsilon, dtype)  # type: ignore[no-untyped-call]


def add(x: Tensor, branch: Tensor) -> Tensor:
    """Return x + branch, of one shape: float32 and bfloat16 -> float32."""
    return _Add.apply(x, branch)  # type: ignore[no-untyped-call]


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x = x.contiguous()
        ctx.save_for_backward(x)
        return kernels().gelu(x)

    @staticmethod
    def backward(ctx: Any, *upstream: Any) -> Tensor:
        (x,) = ctx.saved_tensors
        return kernels().gelu(x, upstream[0].contiguous())


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, epsilon: float, dtype: torch.dtype) -> Tensor:
        x, weight, bias = x.contiguous(), weight.contiguous(), bias.contiguous()
        out, means, deviations = kernels().norm(x, weight, bias, epsilon, dtype)
        ctx.save_for_backward(x, weight, means, deviations)
        return out

    @staticmethod
    def backward(ctx: Any, *upstream: Any) -> tuple[Tensor, Tensor, Tensor, None, None]:
        return *kernels().norm_gradient(upstream[0].contiguous(), *ctx.saved_tensors), None, None


class _Add(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, branch: Tensor) -> Tensor:
        ctx.dtype = branch.dtype
        x = x.contiguous()
        return kernels().sum_to(x, branch.contiguous(), torch.empty_like(x))

    @staticmethod
    def backward(ctx: Any, *upstream: Any) -> tuple[Tensor, Tensor]:
        return upstream[0], upstream[0].to(ctx.dtype)
