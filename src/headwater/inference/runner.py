"""The arithmetic behind the engine: fill a slot's cache from a prompt, and one decoding step for many slots.

A slot is a row of the preallocated key/value cache. What a slot computes must not depend on its neighbours, to
the last bit, or a sampled text would. `compiled` has kernels of our own for that. In torch, three rules see to it:

* A prompt is processed in blocks of BLOCK positions that begin at multiples of BLOCK, the last one padded. A
  position thus always stands at the same row of matrix products of the same shape.
* A decoding step runs in groups of GROUP rows, used or not, so that its products have one shape as well. That a
  row's result does not depend on its place among the others is a property of the machine's kernels: it is
  measured when the runner is made, and where it does not hold rows are computed one by one.
* Attention runs over each slot's own keys.

The cost: a lone request pays for the unused rows (in a step bound by memory little), and half a block a prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from headwater.inference.matrices import Matrix
from headwater.inference.network import Network
from headwater.model.attention import attend

BLOCK = 64
GROUP = 8


class Step(NamedTuple):
    """One row of a decoding step: the token at `position` of `slot`, whose earlier positions are filled."""

    slot: int
    position: int
    token: int


class Block(NamedTuple):
    """Tokens of a prompt, at positions `start` and on of `slot`."""

    slot: int
    start: int
    ids: list[int]


class Runner(Protocol):
    """What the engine needs of an implementation."""

    slots: int
    context: int
    vocabulary: int
    name: str  # for the line that says what computes
    # The longest block, when nobody waits for a token and when somebody does.
    lone_block: int
    shared_block: int
    # Whether a position's keys and values are the same, to the last bit, however they were computed. Where they
    # are not, blocks begin at multiples of `shared_block`, and only what blocks filled is taken over.
    exact: bool

    def step(self, steps: Sequence[Step], block: Block | None) -> Tensor:
        """Fill a block, then each step's position; returns the logits behind the steps.

        (steps, rows of the output) float32, valid until the next call.
        """
        ...

    def copy(self, source: int, target: int, length: int) -> None:
        """Make the first `length` positions of slot `target` those of `source`."""
        ...


class TorchRunner:
    """The Runner in torch: any precision of `Network`, any device."""

    lone_block = shared_block = BLOCK
    exact = False

    def __init__(self, network: Network, slots: int) -> None:
        self.network, self.slots, self.context = network, slots, network.config.context
        config = network.config
        self.vocabulary = config.vocabulary
        # Whole blocks, so that the padding of the last one has its place.
        positions = -(-config.context // BLOCK) * BLOCK
        shape = (slots, config.heads, positions, config.width // config.heads)
        self.keys = [torch.zeros(shape, dtype=network.dtype, device=network.device) for _ in range(config.layers)]
        self.values = [torch.zeros_like(keys) for keys in self.keys]
        self.together = all(_rows_are_alike(matrix, width, network) for matrix, width in network.matrices())
        self.name = "torch"

    @torch.inference_mode()
    def step(self, steps: Sequence[Step], block: Block | None) -> Tensor:
        """See Runner."""
        if block is not None:
            self._fill(*block)
        rows = GROUP if self.together else 1
        parts = [self._decode(steps[i : i + rows], rows) for i in range(0, len(steps), rows)]
        return torch.cat(parts) if parts else torch.empty(0, self.vocabulary)

    def _fill(self, slot: int, start: int, ids: Sequence[int]) -> None:
        end = start + BLOCK
        device = self.network.device
        tokens = torch.zeros(BLOCK, dtype=torch.int64)
        tokens[: len(ids)] = torch.tensor(ids)
        positions = torch.arange(start, end, device=device).clamp_(max=self.context - 1)

        def attention(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            keys, values = self.keys[layer][slot : slot + 1, :, :end], self.values[layer][slot : slot + 1, :, :end]
            keys[0, :, start:] = key.transpose(0, 1)
            values[0, :, start:] = value.transpose(0, 1)
            return attend(query.transpose(0, 1)[None], keys, values)[0].transpose(0, 1)

        # Of the last block only keys and values are wanted.
        nothing = torch.empty(0, dtype=torch.int64, device=device)
        self.network.hidden(tokens.to(device), positions, attention, keep=nothing)

    def _decode(self, steps: Sequence[Step], rows: int) -> Tensor:
        device = self.network.device
        unused = [0] * (rows - len(steps))
        tokens = torch.tensor([step.token for step in steps] + unused, device=device)
        positions = torch.tensor([step.position for step in steps] + unused, device=device)

        def attention(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            attended = torch.zeros_like(query, memory_format=torch.contiguous_format)
            for row, step in enumerate(steps):
                end = step.position + 1
                keys, values = (
                    self.keys[layer][step.slot, None, :, :end],
                    self.values[layer][step.slot, None, :, :end],
                )
                keys[0, :, -1], values[0, :, -1] = key[row], value[row]
                out = functional.scaled_dot_product_attention(query[row][None, :, None], keys, values)
                attended[row] = out[0, :, 0]
            return attended

        hidden = self.network.hidden(tokens, positions, attention)
        return self.network.logits(hidden)[: len(steps)]

    def copy(self, source: int, target: int, length: int) -> None:
        """See Runner."""
        for cache in (*self.keys, *self.values):
            cache[target, :, :length] = cache[source, :, :length]


def _rows_are_alike(matrix: Matrix, width: int, network: Network) -> bool:
    """Whether a product's row is the same, bit for bit, at every place and beside any neighbours."""
    generator = torch.Generator().manual_seed(width)
    x = torch.randn(GROUP, width, generator=generator).to(network.device)
    expected = matrix(x)
    turned = (matrix(x.roll(shift, 0)).roll(-shift, 0) for shift in range(1, GROUP))
    return all(torch.equal(y, expected) for y in turned)
