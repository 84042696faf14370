"""Weights in the layout of `transformer.c`: panels of 64 outputs, the inputs of each one after the other."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from headwater.inference import kernels
from headwater.inference.rounding import to_int8

PANEL = 64  # outputs that a thread computes together; dimensions of a head; inputs that share a scale
# Inputs that stand together for each dtype of the weights.
_TOGETHER = {torch.float32: 1, torch.bfloat16: 2, torch.uint8: 4}


def panels(weight: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
    """(out, in) as (panels, in / together, 64, together), a view; and for uint8 one scale an output.

    The last panel is padded with zeros. uint8 is int8 plus 128.
    """
    scale = None
    if dtype == torch.uint8:
        values, scales = to_int8(weight.float())
        weight, scale = (values.to(torch.int16) + 128).to(torch.uint8), padded(scales[:, 0])
    weight = padded(weight.to(dtype))
    outputs, inputs = weight.shape
    together = _TOGETHER[dtype]
    view = weight.view(outputs // PANEL, PANEL, inputs // together, together)
    return view.permute(0, 2, 1, 3), scale


def padded(values: Tensor) -> Tensor:
    """Zeros behind the last row, up to whole panels."""
    missing = -len(values) % PANEL
    return torch.cat([values, values.new_zeros(missing, *values.shape[1:])]) if missing else values


def product(library: ctypes.CDLL, matrix: kernels.Matrix, kind: int, x: Tensor) -> Tensor:
    """y = x Wᵀ + b: (rows, in) float32 -> (rows, padded out) float32. kind: 0 fp32, 1 bf16, 2 int8."""
    rows, inputs = x.shape
    x = x.contiguous()
    values = torch.empty(rows, inputs, dtype=(torch.float32, torch.bfloat16, torch.int8)[kind])
    scales = torch.empty(rows, inputs // PANEL)
    offsets = torch.empty(rows, inputs // PANEL, dtype=torch.int32)
    y = torch.empty(rows, matrix.outputs)
    library.headwater_product(
        ctypes.byref(matrix),
        kind,
        x.data_ptr(),
        rows,
        values.data_ptr(),
        scales.data_ptr(),
        offsets.data_ptr(),
        y.data_ptr(),
        torch.get_num_threads(),
    )
    return y


class PanelInt8:
    """Weights of one byte with a scale an output; inputs rounded to a byte with a scale for every 64 of a row.

    A row's result is the same, bit for bit, whatever the other rows.
    """

    def __init__(self, library: ctypes.CDLL, weight: Tensor, bias: Tensor | None) -> None:
        self._library, self._outputs = library, weight.shape[0]
        view, scale = panels(weight, torch.uint8)
        # A little more than the weights, as the kernels ask for what lies ahead.
        self._weight = torch.empty(view.numel() + 4096, dtype=torch.uint8)
        aligned = -self._weight.data_ptr() % 64
        self._weight[aligned : aligned + view.numel()].view(view.shape).copy_(view)
        self._scale = scale
        self._bias = None if bias is None else padded(bias.float())
        self._matrix = kernels.Matrix(
            weight=self._weight.data_ptr() + aligned,
            bias=None if self._bias is None else self._bias.data_ptr(),
            scale=None if scale is None else scale.data_ptr(),
            inputs=weight.shape[1],
            outputs=view.shape[0] * PANEL,
        )

    def __call__(self, x: Tensor) -> Tensor:
        """(rows, in) -> (rows, out) float32."""
        return product(self._library, self._matrix, 2, x.float())[:, : self._outputs]
