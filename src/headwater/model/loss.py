"""The projection to the vocabulary and the cross-entropy, fused in chunks of positions.

The logits of a batch are its largest tensor: 200 kB a position in float32 for GPT-2's vocabulary. Here they exist
for one chunk of positions at a time and the forward pass computes the gradients, so that memory does not grow with
vocabulary × positions. `cross_entropy_plainly` is the readable twin.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from headwater.model.backend import Backend, default_backend
from headwater.native import Kernels

IGNORE = -100  # target of a position that carries no loss

# Logits of one chunk: enough rows for an efficient matrix product, few enough to be a small share of memory.
_CHUNK_BYTES = 128 * 1024**2
_DEVICE_CHUNK_BYTES = 512 * 1024**2
# Bytes of the softmax's parts, small enough for the cache.
_SOFTMAX_BYTES = 4 * 1024**2
# Matmuls are fastest if their numbers of rows and columns are multiples of this.
_EVEN = 64
# Bytes of bfloat16 logits that are converted to float32 at a time.
_PROJECT_BYTES = 24 * 1024**2


def cross_entropy(
    hidden: Tensor,
    matrix: Tensor,
    targets: Tensor,
    weights: Tensor,
    backend: Backend | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """Return Σ weights · −log softmax(hidden · matrixᵀ + bias)[targets].

    hidden: (positions, width); matrix: (vocabulary, width); targets: (positions,) int64, IGNORE for no loss;
    weights: (positions,) float32; backend: the model's, None is `default_backend`; bias: (vocabulary,) or None.
    Returns a float32 scalar.
    """
    if not torch.is_grad_enabled():  # compute no gradients
        hidden, matrix, bias = hidden.detach(), matrix.detach(), None if bias is None else bias.detach()
    if targets.device.type == "cpu":
        keep = (targets != IGNORE).nonzero().squeeze(1)
        if len(keep) < len(targets):  # compute no logits of positions without loss
            hidden, targets, weights = hidden[keep], targets[keep], weights[keep]
    else:  # selecting positions would make the host wait for the device: they get the weight 0 instead
        weights = weights * (targets != IGNORE)
        targets = targets.clamp(min=0)
    return _ChunkedCrossEntropy.apply(  # type: ignore[no-untyped-call]
        hidden.to(matrix.dtype),
        matrix,
        targets.contiguous(),
        weights.float().contiguous(),
        backend or default_backend(),
        bias,
    )


def cross_entropy_plainly(
    hidden: Tensor, matrix: Tensor, targets: Tensor, weights: Tensor, bias: Tensor | None = None
) -> Tensor:
    """Return the same with all logits at once."""
    logits = functional.linear(hidden.to(matrix.dtype), matrix, bias).float()
    losses = functional.cross_entropy(logits, targets, ignore_index=IGNORE, reduction="none")
    return (losses * weights).sum()


def project(hidden: Tensor, matrix: Tensor) -> Tensor:
    """Return logits: (…, width), (vocabulary, width) -> (…, vocabulary) float32; matmul in the matrix's dtype."""
    if matrix.dtype == torch.float32 or torch.is_grad_enabled() or hidden.device.type != "cpu":
        return functional.linear(hidden.to(matrix.dtype), matrix).float()
    # In parts, each converted while it is in cache, without a bfloat16 copy of all logits.
    flat = hidden.to(matrix.dtype).reshape(-1, hidden.shape[-1])
    logits = torch.empty(len(flat), matrix.shape[0], dtype=torch.float32)
    rows = _rows(_PROJECT_BYTES, matrix)
    for start in range(0, len(flat), rows):
        logits[start : start + rows] = functional.linear(flat[start : start + rows], matrix)
    return logits.view(*hidden.shape[:-1], matrix.shape[0])


def _chunk_rows(matrix: Tensor, positions: int) -> int:
    """Return how many positions a chunk has: as few chunks as memory allows, all but the last of one size."""
    most = _rows(_CHUNK_BYTES if matrix.device.type == "cpu" else _DEVICE_CHUNK_BYTES, matrix)
    return -(-positions // max(1, -(-positions // most)))


def _aligned(matrix: Tensor) -> Tensor:
    """Return a matrix with rows of zeros up to a multiple of 64; on a CPU the matrix itself.

    A device's kernels for matmuls with an odd number of columns, as the papers' vocabularies have, take four times
    as long.
    """
    vocabulary, width = matrix.shape
    if matrix.device.type == "cpu" or vocabulary % _EVEN == 0:
        return matrix
    aligned = matrix.new_zeros(-(-vocabulary // _EVEN) * _EVEN, width)
    aligned[:vocabulary] = matrix
    return aligned


def _rows(budget: int, matrix: Tensor) -> int:
    """Return how many positions have logits of `budget` bytes in the dtype of `matrix`, (vocabulary, …)."""
    return max(16, budget // (matrix.element_size() * matrix.shape[0]))


def workspace_bytes(matrix: Tensor, positions: int, backend: Backend) -> int:
    """Return the peak of temporary memory of `cross_entropy`, in bytes."""
    vocabulary, item = matrix.shape[0], matrix.element_size()
    rows = _chunk_rows(matrix, positions)
    logits, sums = rows * vocabulary * item, 0
    aligned = 0 if matrix.device.type == "cpu" or vocabulary % _EVEN == 0 else matrix.numel() * item
    if matrix.device.type != "cpu" and backend.compiler is None:
        logits += rows * vocabulary * 9  # float32 probabilities and targets, and their comparison
    if rows < positions:  # a chunk's part of the matrix's gradient, and their sum in float32
        sums = matrix.numel() * (item + (4 if item < 4 else 0))
    return aligned + max(logits, rows * vocabulary * item + sums)


class _ChunkedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        matrix: Tensor,
        targets: Tensor,
        weights: Tensor,
        backend: Backend,
        bias: Tensor | None,
    ) -> Tensor:
        needs_hidden, needs_matrix = ctx.needs_input_grad[:2]
        kernels = backend.kernels_for(matrix)
        softmax_gradient_ = (
            kernels.loss_gradient_ if kernels else _gradient_by(backend.compiler, matrix.dtype, len(matrix))
        )
        grad_hidden = torch.empty_like(hidden) if needs_hidden else None
        grad_matrix = None
        needs_bias = bias is not None and ctx.needs_input_grad[5]
        grad_bias = torch.zeros(matrix.shape[0], device=matrix.device) if needs_bias else None
        loss = torch.zeros((), dtype=torch.float32, device=hidden.device)
        rows = _chunk_rows(matrix, len(targets))
        vocabulary, aligned = matrix.shape[0], _aligned(matrix)
        # One buffer for all chunks: the first use of memory costs as much as a pass over it.
        buffer = hidden.new_empty(rows, len(aligned))
        for start in range(0, len(targets), max(1, rows)):
            part = slice(start, min(start + rows, len(targets)))
            whole = buffer[: part.stop - start]  # the columns after the vocabulary are and stay 0
            backend.matmul_out(hidden[part], aligned, out=whole)
            logits = whole[:, :vocabulary]
            if bias is not None:
                logits += bias
            loss += softmax_gradient_(logits, targets[part], weights[part])
            if grad_hidden is not None:
                backend.matmul_out(whole, aligned.t(), out=grad_hidden[part])
            if needs_matrix:
                grad_part = _row_gradient(whole, hidden[part], backend)[:vocabulary]
                grad_matrix = grad_part if grad_matrix is None else _sum(grad_matrix, grad_part, kernels)
            if grad_bias is not None:
                grad_bias += logits.sum(dim=0, dtype=torch.float32)
        if needs_matrix:
            grad_matrix = torch.zeros_like(matrix) if grad_matrix is None else grad_matrix.to(matrix.dtype)
        grad_bias = None if bias is None or grad_bias is None else grad_bias.to(bias)
        ctx.save_for_backward(grad_hidden, grad_matrix, grad_bias)
        return loss

    @staticmethod
    def backward(ctx: Any, *upstream: Any) -> tuple[Tensor | None, Tensor | None, None, None, None, Tensor | None]:
        grad_hidden, grad_matrix, grad_bias = ctx.saved_tensors
        factor = upstream[0]
        if factor.device.type == "cpu" and factor == 1:  # nothing to multiply, which is a pass over the matrix
            return grad_hidden, grad_matrix, None, None, None, grad_bias
        return (
            None if grad_hidden is None else grad_hidden * factor.to(grad_hidden.dtype),
            None if grad_matrix is None else grad_matrix.mul_(factor.to(grad_matrix.dtype)),
            None,
            None,
            None,
            None if grad_bias is None else grad_bias * factor.to(grad_bias.dtype),
        )


def _row_gradient(gradient: Tensor, hidden: Tensor, backend: Backend) -> Tensor:
    """Return gradientᵀ hidden: (positions, vocabulary), (positions, width) -> (vocabulary, width).

    In two parts: the matmul is a quarter slower if its rows are not a multiple of a vector's length, which the
    papers' vocabularies are not.
    """
    vocabulary = gradient.shape[1]
    result = hidden.new_empty(vocabulary, hidden.shape[1])
    even = vocabulary - vocabulary % _EVEN
    for start, end in ((0, even), (even, vocabulary)):
        if start < end:
            backend.matmul_out(gradient[:, start:end].t(), hidden.t(), out=result[start:end])
    return result


def _sum(total: Tensor, part: Tensor, kernels: Kernels | None) -> Tensor:
    """Return the sum of a matrix's gradient over chunks, in float32 for any dtype; it may overwrite `total`."""
    total = total.float()
    if kernels and part.dtype == torch.bfloat16:
        return kernels.sum_to(total, part, total)
    return total.add_(part)


def _softmax_gradient_(logits: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Replace logits by the gradient of the weighted loss; return the loss.

    torch.compile fuses it into two passes over memory, because it has no scatter.
    """
    loss = torch.zeros((), dtype=torch.float32, device=logits.device)
    vocabulary = torch.arange(logits.shape[1], device=logits.device)
    rows = _rows(_SOFTMAX_BYTES, logits.t()) if logits.device.type == "cpu" else len(targets)
    for start in range(0, len(targets), rows):
        part = slice(start, start + rows)
        log_probabilities = logits[part].float().log_softmax(dim=1)
        target, weight = targets[part, None], weights[part, None]
        loss -= (log_probabilities.gather(1, target) * weight).sum()
        gradient = log_probabilities.exp_().sub_((vocabulary == target).float())
        logits[part] = gradient.mul_(weight)
    return loss


@cache
def _gradient_by(
    compiler: str | None, dtype: torch.dtype, vocabulary: int
) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Return the softmax's gradient for logits of this dtype and vocabulary, which all models share."""
    if compiler is None:
        return _softmax_gradient_
    return torch.compile(with_own_code(_softmax_gradient_), backend=compiler, fullgraph=True)


def with_own_code(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a copy that shares no compilations with the original.

    torch stores them by code object, and refuses to compile one more than eight times: with shared code, a process
    that trains several models would fail.
    """
    assert isinstance(function, FunctionType)
    return FunctionType(
        function.__code__.replace(), function.__globals__, function.__name__, function.__defaults__
    )
