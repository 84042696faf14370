"""Activations of an MLP by our names: GPT's and BERT's GELU, and all others of transformers without parameters."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu-tanh": partial(functional.gelu, approximate="tanh"),  # GPT-1, GPT-2
    "gelu": functional.gelu,  # BERT
    "gelu-10": lambda x: functional.gelu(x).clamp(-10, 10),
    "quick-gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "laplace": lambda x: 0.5 * (1.0 + torch.erf((x - 0.707107) / (0.282095 * math.sqrt(2.0)))),
    "leaky-relu": functional.leaky_relu,
    "hardswish": functional.hardswish,
    "linear": lambda x: x,
    "mish": functional.mish,
    "relu": functional.relu,
    "relu2": lambda x: functional.relu(x).square(),
    "relu6": functional.relu6,
    "sigmoid": torch.sigmoid,
    "silu": functional.silu,
    "sqrtsoftplus": lambda x: functional.softplus(x).sqrt(),
    "tanh": torch.tanh,
}
