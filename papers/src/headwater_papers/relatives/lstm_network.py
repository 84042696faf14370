"""The LSTM's backend of inference, in torch: a state takes the place of keys and values.

Each slot reads its tokens one by one and by itself, so that its results depend only on its own tokens, bit for
bit. The state after every position is kept, so another request can reuse a prefix, as with a cache of keys and
values.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator, Sequence
from typing import NoReturn

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headwater.errors import UsageError
from headwater.inference import FOREST_ROWS, DecodeRow, Forest, Precision, PromptChunk
from headwater_papers.relatives.lstm import LSTM


class RecurrentNetwork:
    """The `Network` of an LSTM, on the model's device, in fp32 or bf16."""

    def __init__(self, model: LSTM, precision: Precision) -> None:
        self.config, self.lock = model.config, threading.Lock()
        self.precision: Precision = precision
        own = copy.deepcopy(model)
        self.model = own.to(torch.float32 if precision == "fp32" else torch.bfloat16).eval().requires_grad_(False)
        self.device = own.tokens.weight.device

    @torch.inference_mode()
    def hidden(self, forest: Forest, wanted: npt.NDArray[np.int64]) -> Tensor:
        """See Network. The texts of the forest are padded on the right, which does not change their states."""
        states = torch.empty(len(forest.ids), self.config.width, device=self.device)
        ids = torch.tensor(forest.ids)
        for group in _by_length([len(path) for path in forest.paths]):
            paths = [torch.from_numpy(forest.paths[member]) for member in group]
            batch = torch.nn.utils.rnn.pad_sequence([ids[path] for path in paths], batch_first=True)
            for path, row in zip(paths, self.model.hidden(batch.to(self.device)), strict=True):
                states[path.to(self.device)] = row[: len(path)]
        return states[torch.from_numpy(wanted).to(self.device)]

    @torch.inference_mode()
    def logits(self, hidden: Tensor, out: Tensor | None = None) -> Tensor:
        """See Network."""
        logits = self.model.logits(hidden)
        return logits if out is None else out.copy_(logits)

    def empty_logits(self, texts: int, rows: int) -> Tensor:
        """See Network."""
        return torch.empty(texts, rows, self.config.vocabulary, device=self.device)

    def runner(self, slots: int) -> RecurrentRunner:
        """See Network."""
        return RecurrentRunner(self.model, slots)

    def layered(self) -> NoReturn:
        """Raise UsageError: an LSTM has no layers of attention."""
        raise UsageError("an LSTM has no attention to look into", expected="a Transformer")


class RecurrentRunner:
    """The Runner of an LSTM."""

    lone_block, shared_block = 64, 8
    exact = True
    name = "torch"

    def __init__(self, model: LSTM, slots: int) -> None:
        self.model, self.slots = model, slots
        self.context, self.vocabulary = model.config.context, model.config.vocabulary
        recurrence = model.recurrence
        # The hidden and the cell state before each position and after the last.
        shape = (slots, self.context + 1, 2, recurrence.num_layers, 1, recurrence.hidden_size)
        self.states = model.projection.weight.new_zeros(shape, requires_grad=False)

    @torch.inference_mode()
    def step(self, steps: Sequence[DecodeRow], block: PromptChunk | None) -> Tensor:
        """See Runner."""
        if block is not None:
            for position, token in enumerate(block.ids, block.start):
                self._read(block.slot, position, token)
        rows = [self.model.logits(self._read(*step)) for step in steps]  # each (1, vocabulary)
        return torch.cat(rows) if rows else torch.empty(0, self.vocabulary)

    def _read(self, slot: int, position: int, token: int) -> Tensor:
        """Advance a slot's state by one token. Returns the output's input, (1, width)."""
        state = list(self.states[slot, position])
        ids = torch.tensor([[token]], device=self.states.device)
        read = self.model.hidden(ids, state=state)[0]
        self.states[slot, position + 1] = torch.stack(state)
        return read

    def copy(self, source: int, target: int, length: int) -> None:
        """See Runner."""
        self.states[target, : length + 1] = self.states[source, : length + 1]


def _by_length(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield groups of texts of similar length, of at most about FOREST_ROWS rows with padding."""
    group: list[int] = []
    for member in sorted(range(len(lengths)), key=lengths.__getitem__):
        if group and (len(group) + 1) * lengths[member] > FOREST_ROWS:
            yield group
            group = []
        group.append(member)
    if group:
        yield group
