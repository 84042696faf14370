"""The one interface of inference: `Network`, a model's weights at one precision, ready to compute.

Scores, generation, `echo`, log-probabilities, embeddings, logits and inspection all ask a network, so they
have the same weights, the same precision and the same numbers. Two backends implement it: the native kernels
(`compiled`) and torch (`torch_network`; `recurrent` for the LSTM). `backends.open_network` chooses.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor

from headwater.errors import UsageError
from headwater.model.config import ModelConfig

if TYPE_CHECKING:
    from headwater.inference.packing import Pack
    from headwater.inference.torch_network import TorchNetwork

Precision = Literal["fp32", "bf16", "int8", "int4"]
# y = x Wᵀ + b: (rows, in) float32 -> (rows, out), in the dtype that the implementation gives.
Matrix = Callable[[Tensor], Tensor]


class DecodeRow(NamedTuple):
    """One row of a decoding step: the token at `position` of `slot`, whose earlier positions are filled."""

    slot: int
    position: int
    token: int


class PromptChunk(NamedTuple):
    """Tokens of a prompt, at positions `start` and on of `slot`."""

    slot: int
    start: int
    ids: list[int]


class Runner(Protocol):
    """Slots of keys and values, and the steps that fill them: what the engine needs."""

    slots: int
    context: int
    vocabulary: int  # of the model: columns of the logits
    name: str  # for the line that says what computes
    # The longest block, when nobody waits for a token and when somebody does.
    lone_block: int
    shared_block: int
    # Whether a position's keys and values are the same, to the last bit, however they were computed. If they are
    # not, blocks begin at multiples of `shared_block`, and only the keys and values of blocks are reused.
    exact: bool

    def step(self, steps: Sequence[DecodeRow], block: PromptChunk | None) -> Tensor:
        """Fill a block, then each step's position; return the logits behind the steps.

        (steps, vocabulary) float32, valid until the next call.
        """
        ...

    def copy(self, source: int, target: int, length: int) -> None:
        """Make the first `length` positions of slot `target` those of `source`."""
        ...


class Network(Protocol):
    """A model's weights at one precision. It reads them once: after a change of the model, open it again."""

    config: ModelConfig
    precision: Precision
    lock: threading.Lock  # held from a call of `hidden` until its result is read

    def hidden(self, pack: Pack, kept: npt.NDArray[np.int64]) -> Tensor:
        """Return the last hidden states of the rows `kept`, (kept, width) float32, valid until the next call."""
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the logits of hidden states: (rows, width) float32 -> (rows, vocabulary) float32."""
        ...

    def runner(self, slots: int) -> Runner:
        """Return a new Runner of `slots` slots over these weights."""
        ...

    def layered(self) -> TorchNetwork:
        """Return the same weights as a forward pass layer by layer, for inspection.

        Raises UsageError for a model without layers of attention.
        """
        ...


def require_ids(ids: Sequence[int], vocabulary: int, param: str | None = None) -> None:
    """Raise UsageError for the first id that is not a row of the model; `param` names the option it is from."""
    for position, token in enumerate(ids):
        if not 0 <= token < vocabulary:
            raise UsageError(
                f"token id {token} at position {position} is out of range",
                expected=f"0 to {vocabulary - 1}",
                param=param,
            )
