"""The engine's arithmetic for the LSTM: a state instead of keys and values.

Token after token, each on its own, so that what a slot computes depends on its own tokens alone, to the last bit.
The state behind every position is kept: a position can then be taken over by another request, as with a cache.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from headwater.inference.runner import Block, Step
from headwater.model.cache import RecurrentState
from headwater.model.lstm import LSTM


class RecurrentRunner:
    """The Runner of an LSTM, on the device and in the precision that it has."""

    lone_block, shared_block = 64, 8
    exact = True
    name = "torch"

    def __init__(self, model: LSTM, slots: int) -> None:
        self.model, self.slots = model, slots
        self.context, self.vocabulary = model.config.context, model.config.vocabulary
        recurrence = model.recurrence
        # The hidden and the cell state before each position and behind the last.
        shape = (slots, self.context + 1, 2, recurrence.num_layers, 1, recurrence.hidden_size)
        self.states = model.projection.weight.new_zeros(shape, requires_grad=False)

    @torch.inference_mode()
    def step(self, steps: Sequence[Step], block: Block | None) -> Tensor:
        """See Runner."""
        if block is not None:
            for position, token in enumerate(block.ids, block.start):
                self._read(block.slot, position, token)
        rows = [self.model.logits(self._read(*step)) for step in steps]  # each (1, vocabulary)
        return torch.cat(rows) if rows else torch.empty(0, self.vocabulary)

    def _read(self, slot: int, position: int, token: int) -> Tensor:
        """Move a slot's state over one token; returns what the head reads, (1, width)."""
        hidden, cell = self.states[slot, position]
        cache = RecurrentState()
        cache.store((hidden, cell), position)
        ids = torch.tensor([[token]], device=self.states.device)
        read = self.model.hidden(ids, cache=cache)[0]
        assert cache.state is not None
        self.states[slot, position + 1] = torch.stack(cache.state)
        return read

    def copy(self, source: int, target: int, length: int) -> None:
        """See Runner."""
        self.states[target, : length + 1] = self.states[source, : length + 1]
