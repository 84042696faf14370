"""The interface of inference: `Network`, a model's weights at one precision.

Scoring, generation, `echo`, log-probabilities, embeddings, logits and inspection all use a network, so they have
the same weights, precision and numbers. Two backends implement it: the native kernels (`native_network`) and
torch (`torch_network`); another architecture may name its own. `backends.open_network` chooses one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor

from headwater.model import ModelConfig

if TYPE_CHECKING:
    from headwater.inference.shared_prefixes import Forest
    from headwater.inference.torch_network import TorchNetwork

Precision = Literal["fp32", "bf16", "int8"]
# y = x Wᵀ + b: (rows, in) float32 -> (rows, out), in the implementation's dtype.
Matrix = Callable[[Tensor], Tensor]


class DecodeRow(NamedTuple):
    """One row of a decoding step: a token at `position` of `slot`; all earlier positions are filled."""

    slot: int
    position: int
    token: int


class PromptChunk(NamedTuple):
    """Tokens of a prompt, at the positions of `slot` from `start` on."""

    slot: int
    start: int
    ids: list[int]


class Runner(Protocol):
    """Slots of keys and values and the steps that fill them, for the engine."""

    slots: int
    context: int
    vocabulary: int  # of the model: columns of the logits
    name: str  # of the backend, for the user
    # The longest block while no request decodes, and while some do.
    lone_block: int
    shared_block: int
    # Whether a position's keys and values are bit for bit the same however they were computed. If not, blocks
    # begin at multiples of `shared_block`, and only the keys and values of whole blocks are reused.
    exact: bool

    def step(self, steps: Sequence[DecodeRow], block: PromptChunk | None) -> Tensor:
        """Fill a block and each step's position; return the logits after each step.

        (steps, vocabulary) float32, valid until the next call.
        """
        ...

    def copy(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` positions of slot `source` to `target`."""
        ...


class Network(Protocol):
    """A model's weights at one precision, read once: open the model again after changing it."""

    config: ModelConfig
    precision: Precision
    lock: threading.Lock  # held from a call of `hidden` until its result is read

    def hidden(self, forest: Forest, wanted: npt.NDArray[np.int64]) -> Tensor:
        """Return the last hidden states of the rows `wanted`, (wanted, width) float32; valid until the next."""
        ...

    def logits(self, hidden: Tensor, out: Tensor | None = None) -> Tensor:
        """Return the logits of hidden states: (rows, width) float32 -> (rows, vocabulary) float32.

        They are written to `out`, contiguous, if it is given.
        """
        ...

    def empty_logits(self, texts: int, rows: int) -> Tensor:
        """Return uninitialised memory for logits: (texts, rows, vocabulary) float32 on the network's device."""
        ...

    def runner(self, slots: int) -> Runner:
        """Return a new Runner with `slots` slots for these weights."""
        ...

    def layered(self) -> TorchNetwork:
        """Return a layer-by-layer forward pass with the same weights, for inspection.

        Raises UsageError for a model without attention.
        """
        ...
