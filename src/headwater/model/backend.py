"""`Backend`: which implementation computes each operation of a model. A model has one; there is no global table.

The default depends on the processor alone (`default_backend`), so a machine always computes the same bits:

* Float32 matmuls on an AMD processor use oneDNN: torch uses MKL, which is slow there.
* On a CPU, causal attention over a whole text is computed in blocks of queries, which skips the half above the
  diagonal; in bfloat16 on a processor with AMX all of it is one native kernel. Devices have fused kernels.
* GELU, LayerNorm, the residual add, attention's softmax, the loss's gradient and Adam run in the native kernels
  (`headwater.native`), one pass over memory each, if these were built: torch makes several passes where one is
  enough, and on many CPUs its bfloat16 GELU and softmax cost as much as a matmul.

`benchmarks/pretrain.py --pieces` measures each choice on a machine. `TORCH` is the readable twin of all of them.
Operations on other devices, in other dtypes, or under `torch.compile` always run in torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from headwater import native
from headwater.device import processor_vendor
from headwater.model import attention
from headwater.model.config import ACTIVATIONS
from headwater.native import Kernels

_NATIVE_DTYPES = (torch.float32, torch.bfloat16)
# Tokens of texts up to which the backward pass of torch's fused bfloat16 attention is slower than the plain one.
_SHORT = 256


@dataclass(frozen=True)
class Backend:
    """Implementations of a model's operations on a CPU.

    matmul: float32 matmuls by torch or by oneDNN. native: whether the native kernels compute attention and the
    element-wise operations. compiler: torch.compile's backend for the loss's gradient if no native kernel computes
    it; None computes it eagerly.
    """

    matmul: Literal["torch", "onednn"] = "torch"
    native: bool = False
    compiler: str | None = None

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return x weightᵀ + bias: (…, in), (out, in), (out,) -> (…, out)."""
        if self._uses_onednn(weight):
            return _OneDnnLinear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
        return functional.linear(x, weight, bias)

    def matmul_out(self, x: Tensor, weight: Tensor, out: Tensor) -> Tensor:
        """Write x weightᵀ to `out`, without gradients: (rows, in), (columns, in) -> (rows, columns)."""
        if self._uses_onednn(weight):
            return out.copy_(_onednn_linear(x, weight))
        return torch.mm(x, weight.t(), out=out)

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None = None,
        dropout: float = 0.0,
        causal: bool = True,
    ) -> Tensor:
        """Return attention; see `attention.attend`. Causal attention without dropout may be computed in blocks."""
        whole = mask is None and dropout == 0 and query.shape[-2] == key.shape[-2] > 1
        if causal and whole and (kernels := self.kernels_for(query)) is not None:
            return attention.attend_in_blocks(query, key, value, kernels)
        short = query.dtype == torch.bfloat16 and query.shape[-2] <= _SHORT
        if short and not causal and dropout == 0 and query.requires_grad and _is_eager_cpu(query):
            return attention.attend_plainly(query, key, value, mask, causal)
        return attention.attend(query, key, value, mask, dropout, causal)

    def activate(self, x: Tensor, activation: str) -> Tensor:
        """Return an activation by its name in `ModelConfig`."""
        if activation == "gelu-tanh" and (kernels := self.kernels_for(x)) is not None:
            return _Gelu.apply(x, kernels)  # type: ignore[no-untyped-call]
        return ACTIVATIONS[activation](functional, x)

    def norm(self, x: Tensor, weight: Tensor, bias: Tensor, epsilon: float, dtype: torch.dtype) -> Tensor:
        """Return LayerNorm of a float32 x over its last dimension (Ba et al. 2016), in `dtype`."""
        kernels = self.kernels_for(x)
        if kernels is not None and x.dtype == torch.float32 and dtype in _NATIVE_DTYPES:
            return _Norm.apply(x, weight.float(), bias.float(), epsilon, dtype, kernels)  # type: ignore[no-untyped-call]
        # Sharded training gathers gains and biases in the matrices' dtype; devices want one dtype.
        return functional.layer_norm(x, weight.shape, weight.to(x.dtype), bias.to(x.dtype), epsilon).to(dtype)

    def add(self, x: Tensor, branch: Tensor) -> Tensor:
        """Return the float32 residual stream plus a branch."""
        kernels = self.kernels_for(branch)
        if kernels is not None and branch.dtype == torch.bfloat16 and x.dtype == torch.float32:
            return _Add.apply(x, branch, kernels)  # type: ignore[no-untyped-call]
        return x + branch

    def assign_to(self, module: nn.Module) -> None:
        """Make a model and all its parts compute with this backend."""
        for part in module.modules():
            if hasattr(part, "backend"):
                setattr(part, "backend", self)  # noqa: B010 - not a name that every module has

    def kernels_for(self, x: Tensor) -> Kernels | None:
        """Return the native kernels if they compute operations on `x`, else None."""
        return native.kernels() if self.native and x.dtype in _NATIVE_DTYPES and _is_eager_cpu(x) else None

    def _uses_onednn(self, weight: Tensor) -> bool:
        return self.matmul == "onednn" and weight.dtype == torch.float32 and _is_eager_cpu(weight)


# The backend that computes everything in torch.
TORCH = Backend()


@cache
def default_backend() -> Backend:
    """Return the backend for this processor."""
    onednn = "AMD" in processor_vendor() and torch.backends.mkldnn.is_available()
    return Backend("onednn" if onednn else "torch", native.kernels() is not None)


def _is_eager_cpu(x: Tensor) -> bool:
    return x.device.type == "cpu" and not torch.compiler.is_compiling()  # torch.compile generates its own kernels


class _Gelu(torch.autograd.Function):
    """GELU in its tanh form, of any shape."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kernels: Kernels) -> Tensor:
        x = x.contiguous()
        ctx.save_for_backward(x)
        ctx.kernels = kernels
        return kernels.gelu(x)

    @staticmethod
    def backward(ctx: Any, *upstream: Any) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return ctx.kernels.gelu(x, upstream[0].contiguous()), None


class _Norm(torch.autograd.Function):
    """LayerNorm over the last dimension: x, weight, bias float32 -> the shape of x in `dtype`."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, epsilon: float, dtype: torch.dtype, kernels: Kernels
    ) -> Tensor:
        x, weight, bias = x.contiguous(), weight.contiguous(), bias.contiguous()
        out, means, deviations = kernels.norm(x, weight, bias, epsilon, dtype)
        ctx.save_for_backward(x, weight, means, deviations)
        ctx.kernels = kernels
        return out

    @staticmethod
    def backward(ctx: Any, *upstream: Any) -> tuple[Tensor, Tensor, Tensor, None, None, None]:
        return *ctx.kernels.norm_gradient(upstream[0].contiguous(), *ctx.saved_tensors), None, None, None


class _Add(torch.autograd.Function):
    """x + branch, of one shape: float32 and bfloat16 -> float32."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, branch: Tensor, kernels: Kernels) -> Tensor:
        ctx.dtype = branch.dtype
        x = x.contiguous()
        return kernels.sum_to(x, branch.contiguous(), torch.empty_like(x))

    @staticmethod
    def backward(ctx: Any, *upstream: Any) -> tuple[Tensor, Tensor, None]:
        return upstream[0], upstream[0].to(ctx.dtype), None


class _OneDnnLinear(torch.autograd.Function):
    """A matmul and both its gradients by oneDNN."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        return _onednn_linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *upstream: Any) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        gradient = upstream[0].flatten(0, -2)
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        return (
            _onednn_linear(gradient, weight.t()).view(x.shape) if needs_x else None,
            _onednn_linear(gradient.t(), x.flatten(0, -2).t()) if needs_weight else None,
            gradient.sum(dim=0) if ctx.has_bias and needs_bias else None,
        )


def _onednn_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
