"""Numbers to bytes: the one rounding that all int8 weights and inputs share."""

from __future__ import annotations

import torch
from torch import Tensor


def to_int8(x: Tensor) -> tuple[Tensor, Tensor]:
    """(rows, columns) float32 -> whole numbers of −127 … 127 and their scales, (rows, 1): x ≈ scale · numbers."""
    scale = x.abs().amax(dim=1, keepdim=True).clamp_(min=1e-12) / 127
    return (x / scale).round_().to(torch.int8), scale
