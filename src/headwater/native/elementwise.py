"""The element-wise kernels of a training step, with checked arguments.

`kernels` returns an immutable handle on one variant's kernels. Every method checks shapes, dtypes and layout
before memory reaches C. Elements are float32 or bfloat16, arithmetic is float32, and a result does not depend on
the number of threads. Where no kernels were compiled, `model.backend` computes the same in torch; the tests have a
readable twin of each method.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from headwater.native.dispatch import check, chosen, extension

_ELEMENTS = 4096  # of an item of work, as in elementwise.c
# Parts that the gains' gradients are summed in: fixed, so that the sum does not depend on the threads.
_PARTS = 32
_POINTER, _COUNT, _NUMBER = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
_ARGUMENTS: dict[str, list[Any]] = {
    "gelu": [_POINTER] * 3 + [_COUNT] * 3,
    "loss": [_POINTER] * 4 + [_COUNT] * 5,
    "log_sums": [_POINTER] * 3 + [_COUNT] * 4,
    "softmax": [_POINTER] * 2 + [_NUMBER] + [_COUNT] * 5,
    "attend": [_POINTER] * 10 + [_COUNT] * 5,
    "norm": [_POINTER] * 3 + [_NUMBER] + [_POINTER] * 3 + [_COUNT] * 4,
    "norm_gradient": [_POINTER] * 7 + [_COUNT] * 5,
    "sum": [_POINTER] * 3 + [_COUNT] * 2,
    "adam": [_POINTER] * 5 + [_COUNT] * 2 + [_NUMBER] * 7 + [_COUNT],
    "squares": [_POINTER] * 2 + [_COUNT] * 3,
    "product": [_POINTER] * 2 + [_COUNT] + [_POINTER] * 4 + [_COUNT] * 3,
    "forward": [_POINTER] * 4 + [_COUNT] * 2 + [_POINTER],
    "free": [_POINTER],
}
_FLOAT, _HALF = torch.float32, torch.bfloat16
_EITHER = (_FLOAT, _HALF)


class AdamStep(NamedTuple):
    """The numbers of one update by AdamW that the kernel needs.

    scale: the factor of the gradients; keep: 1 − learning rate · decay, the factor of the weight; rate: the
    learning rate over 1 − β₁ᵗ; correction: 1/√(1 − β₂ᵗ).
    """

    scale: float
    keep: float
    betas: tuple[float, float]
    rate: float
    correction: float
    epsilon: float


@dataclass(frozen=True)
class Kernels:
    """The kernels of one variant: the methods call the element-wise ones, `transformer` those for inference."""

    library: ctypes.CDLL
    variant: str

    def __post_init__(self) -> None:
        """Declare the functions' arguments."""
        for name, arguments in _ARGUMENTS.items():
            function = getattr(self.library, f"headwater_{name}")
            function.restype, function.argtypes = _COUNT, arguments
        self.library.headwater_allocate.restype, self.library.headwater_allocate.argtypes = _POINTER, [_COUNT]

    def give_way(self) -> None:
        """Let other threads' kernel calls go before the calling thread's, even while one of its calls runs."""
        self.library.headwater_give_way(1)

    def gelu(self, x: Tensor, gradient: Tensor | None = None) -> Tensor:
        """Return GELU(x) in its tanh form, or gradient · GELU'(x); any shape, contiguous."""
        require("x", x, _EITHER)
        if gradient is not None:
            require("gradient", gradient, (x.dtype,), tuple(x.shape))
        out = torch.empty_like(x)
        self._call("gelu", x, gradient, out, x.numel(), x.dtype == _HALF)
        return out

    def norm(
        self, x: Tensor, weight: Tensor, bias: Tensor, epsilon: float, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return LayerNorm of (…, width) float32 in `dtype`, and each row's mean and inverse deviation."""
        rows, width = _rows_of(x)
        for name, tensor in (("weight", weight), ("bias", bias)):
            require(name, tensor, (_FLOAT,), (width,))
        out = torch.empty(x.shape, dtype=dtype)
        require("out", out, _EITHER)
        means, deviations = torch.empty(rows), torch.empty(rows)
        self._call("norm", x, weight, bias, epsilon, out, means, deviations, rows, width, out.dtype == _HALF)
        return out, means, deviations

    def norm_gradient(
        self, gradient: Tensor, x: Tensor, weight: Tensor, means: Tensor, deviations: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients of `norm`'s x, weight and bias, float32."""
        rows, width = _rows_of(x)
        require("gradient", gradient, _EITHER, tuple(x.shape))
        require("weight", weight, (_FLOAT,), (width,))
        for name, tensor in (("means", means), ("deviations", deviations)):
            require(name, tensor, (_FLOAT,), (rows,))
        grad_x, sums = torch.empty_like(x), torch.zeros(_PARTS, 2, width)
        half = gradient.dtype == _HALF
        self._call(
            "norm_gradient", gradient, x, weight, means, deviations, grad_x, sums, _PARTS, rows, width, half
        )
        grad_weight, grad_bias = sums.sum(dim=0)
        return grad_x, grad_weight, grad_bias

    def sum_to(self, total: Tensor, part: Tensor, out: Tensor) -> Tensor:
        """Write total + part to `out`: float32 and bfloat16 -> float32, of one size; out may be `total`."""
        require("total", total, (_FLOAT,))
        require("part", part, (_HALF,))
        require("out", out, (_FLOAT,))
        if not total.numel() == part.numel() == out.numel():
            sizes = f"{total.numel()}, {part.numel()} and {out.numel()}"
            raise ValueError(f"total, part and out have {sizes} elements, expected one size")
        self._call("sum", total, part, out, total.numel())
        return out

    def softmax_(self, scores: Tensor, scale: float) -> None:
        """Replace (…, queries, keys) by softmax(scale · scores), causal: the last query sees every key."""
        queries, keys = _causal("scores", scores)
        rows = scores.numel() // keys
        self._call("softmax", scores, None, scale, rows, queries, keys, scores.dtype == _HALF)

    def softmax_gradient_(self, gradient: Tensor, weights: Tensor, scale: float) -> None:
        """Replace the gradient of `softmax_`'s result by that of its scores."""
        queries, keys = _causal("weights", weights)
        require("gradient", gradient, (weights.dtype,), tuple(weights.shape))
        rows = weights.numel() // keys
        self._call("softmax", gradient, weights, scale, rows, queries, keys, weights.dtype == _HALF)

    def attends(self, query: Tensor) -> bool:
        """Return whether `attend` computes heads of this shape and dtype: bfloat16 on a processor with tiles."""
        return self.variant == "amx" and query.dtype == _HALF and query.shape[-1] in (32, 64, 96, 128)

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Return causal attention over whole texts, and the logarithm of the sum of each query's weights.

        query, key, value: (text, head, time, dimension) bfloat16. Returns such a tensor, and (text, head, time)
        float32.
        """
        query, key, value = _alike(query, key, value)
        texts, heads, time, size = query.shape
        out = query.new_empty(texts, time, heads, size)
        sums = torch.empty(texts, heads, time)
        strides = torch.tensor([*query.stride()[:3], 0, 0, 0])
        nothing = (None, None, None)
        self._call("attend", query, key, value, None, out, sums, *nothing, strides, texts, heads, time, size)
        return out.transpose(1, 2), sums

    def attend_gradient(
        self, gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, sums: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients of `attend`'s query, key and value; gradient: that of its result `out`."""
        query, key, value = _alike(query, key, value)
        texts, heads, time, size = query.shape
        (gradient,) = _alike(gradient)
        rows = out.transpose(1, 2)
        require("out", rows, (_HALF,), (texts, time, heads, size))
        require("sums", sums, (_FLOAT,), (texts, heads, time))
        if gradient.shape != query.shape:
            raise ValueError(f"gradient is {_described(gradient)}, expected the shape {tuple(query.shape)}")
        strides = torch.tensor([*query.stride()[:3], *gradient.stride()[:3]])
        grads = [torch.empty_like(rows) for _ in range(3)]
        self._call("attend", query, key, value, gradient, rows, sums, *grads, strides, texts, heads, time, size)
        first, second, third = (grad.transpose(1, 2) for grad in grads)
        return first, second, third

    def loss_gradient_(self, logits: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        """Replace (rows, vocabulary) logits by the gradient of the weighted loss; return the loss, a scalar.

        Raise IndexError, before anything is written, if a target is not a column.
        """
        rows, columns = _require_rows("logits", logits, _EITHER)
        require("targets", targets, (torch.int64,), (rows,))
        require("weights", weights, (_FLOAT,), (rows,))
        losses = torch.empty(rows)
        stride = logits.stride(0)
        self._call("loss", logits, targets, weights, losses, rows, columns, stride, logits.dtype == _HALF)
        return losses.sum()

    def log_sums(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return log Σ e^logit and the largest logit of each row of (rows, columns) float32."""
        rows, columns = _require_rows("logits", logits, (_FLOAT,))
        sums, largest = torch.empty(rows), torch.empty(rows)
        self._call("log_sums", logits, sums, largest, rows, columns, logits.stride(0))
        return sums, largest

    def sum_of_squares(self, x: Tensor) -> Tensor:
        """Return Σ x², float64."""
        require("x", x, _EITHER)
        squares = torch.empty(-(-x.numel() // _ELEMENTS), dtype=torch.float64)
        self._call("squares", x, squares, x.numel(), x.dtype == _HALF)
        return squares.sum()

    def adam_(
        self, weight: Tensor, gradient: Tensor, moments: tuple[Tensor, Tensor], copy: Tensor | None, step: AdamStep
    ) -> None:
        """Update a float32 weight and its moments in place, and its bfloat16 copy where there is one."""
        shape = tuple(weight.shape)
        for name, tensor in (("weight", weight), ("first moment", moments[0]), ("second moment", moments[1])):
            require(name, tensor, (_FLOAT,), shape)
        require("gradient", gradient, _EITHER, shape)
        if copy is not None:
            require("copy", copy, (_HALF,), shape)
        numbers = (step.scale, step.keep, *step.betas, step.rate, step.correction, step.epsilon)
        self._call("adam", weight, gradient, *moments, copy, weight.numel(), gradient.dtype == _HALF, *numbers)

    def _call(self, name: str, *arguments: Tensor | float | None) -> None:
        """Pass tensors as their addresses, and torch's number of threads after the rest."""
        addresses = [a.data_ptr() if isinstance(a, Tensor) else a for a in arguments]
        code = getattr(self.library, f"headwater_{name}")(*addresses, torch.get_num_threads())
        if code < 0:
            check(code)


@cache
def kernels(variant: str | None = None) -> Kernels | None:
    """Return the kernels of `variant`, by default the best for this processor; None if none were compiled.

    HEADWATER_CPU names another default. Raises UsageError for a variant that this processor cannot run.
    """
    name = chosen(variant)
    library = extension(name) if name else None
    return Kernels(library, name) if library is not None and name is not None else None


def _described(tensor: Tensor) -> str:
    return f"{tensor.dtype} of shape {tuple(tensor.shape)} on {tensor.device}"


def require(
    name: str, tensor: Tensor, dtypes: tuple[torch.dtype, ...], shape: tuple[int, ...] | None = None
) -> None:
    """Raise ValueError unless the tensor is contiguous, on the CPU, and of a dtype and shape that C expects."""
    right = tensor.dtype in dtypes and tensor.device.type == "cpu" and tensor.is_contiguous()
    if not right or (shape is not None and tuple(tensor.shape) != shape):
        wanted = " or ".join(str(dtype) for dtype in dtypes) + (f" of shape {shape}" if shape is not None else "")
        raise ValueError(f"{name} is {_described(tensor)}, expected contiguous {wanted} on the CPU")


def _require_rows(name: str, x: Tensor, dtypes: tuple[torch.dtype, ...]) -> tuple[int, int]:
    """Return the rows and columns of a matrix whose rows may be further apart than they are long."""
    if x.dim() != 2 or x.dtype not in dtypes or x.device.type != "cpu":
        wanted = " or ".join(str(dtype) for dtype in dtypes)
        raise ValueError(f"{name} is {_described(x)}, expected (rows, columns) {wanted} on the CPU")
    rows, columns = x.shape
    if columns < 1 or x.stride(1) != 1 or (rows > 1 and x.stride(0) < columns):
        raise ValueError(f"{name} has strides {x.stride()}, expected rows one after the other")
    return rows, columns


def _rows_of(x: Tensor) -> tuple[int, int]:
    """Return the rows and the width of (…, width) float32."""
    require("x", x, (_FLOAT,))
    if x.dim() < 1 or x.shape[-1] < 1:
        raise ValueError(f"x is {_described(x)}, expected rows of at least one element")
    return x.numel() // x.shape[-1], x.shape[-1]


def _alike(*inputs: Tensor) -> tuple[Tensor, ...]:
    """Return attention's inputs, copied if their strides differ or their last dimension has gaps."""
    first = inputs[0]
    for x in inputs:
        if x.dim() != 4 or x.dtype != _HALF or x.device.type != "cpu" or x.shape != first.shape or not x.numel():
            raise ValueError(
                f"attention of {_described(x)}, expected (text, head, time, dimension) bfloat16 on the CPU"
            )
        if x.shape[-1] % 32:
            raise ValueError(f"attention of heads of {x.shape[-1]} dimensions, expected a multiple of 32")
    even = all(x.stride() == first.stride() and x.stride(3) == 1 for x in inputs)
    return inputs if even else tuple(x.contiguous() for x in inputs)


def _causal(name: str, scores: Tensor) -> tuple[int, int]:
    """Return the queries and the keys of (…, queries, keys)."""
    require(name, scores, _EITHER)
    if scores.dim() < 2 or not 1 <= scores.shape[-2] <= scores.shape[-1]:
        raise ValueError(f"{name} is {_described(scores)}, expected (…, queries, keys) with 1 ≤ queries ≤ keys")
    return scores.shape[-2], scores.shape[-1]
