"""The key/value cache: what attention has seen, so that a new token costs one position.

One preallocated pair of tensors a layer. All rows of the batch have the same length; an engine that serves
rows of unequal length keeps its own. An LSTM's is the state of its recurrence.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headwater.model.config import ModelConfig


class KeyValueCache:
    """Keys and values of every layer: (batch, head, capacity, head_dim), filled up to `length`."""

    def __init__(
        self,
        config: ModelConfig,
        batch: int,
        capacity: int | None = None,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self.capacity = capacity or config.context
        self.length = 0
        shape = (batch, config.heads, self.capacity, config.width // config.heads)
        self.keys = [torch.empty(shape, dtype=dtype, device=device) for _ in range(config.layers)]
        self.values = [torch.empty(shape, dtype=dtype, device=device) for _ in range(config.layers)]

    def extend(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Store one layer's new positions, (batch, head, time, head_dim); returns all keys and values."""
        end = self.length + key.shape[-2]
        self.keys[layer][:, :, self.length : end] = key
        self.values[layer][:, :, self.length : end] = value
        return self.keys[layer][:, :, :end], self.values[layer][:, :, :end]

    def advance(self, time: int) -> None:
        """Count `time` positions as seen, once every layer has stored them."""
        self.length += time


class RecurrentState:
    """An LSTM's hidden and cell state, each (layers, batch, units), after `length` positions."""

    def __init__(self) -> None:
        self.length = 0
        self.state: tuple[Tensor, Tensor] | None = None

    def store(self, state: tuple[Tensor, Tensor], time: int) -> None:
        """The state `time` positions later."""
        self.state = state
        self.length += time
