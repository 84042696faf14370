"""Batches of encoded examples: similar lengths together, right padding, weights that sum to 1 over an update.

Causal attention does not see later positions, so padding on the right needs no attention mask; full attention gets
one (`heads`). Padding has no loss. Lengths are sorted within windows of a few updates: little padding, a random
order. The weights are those of GPT-1's code: a mean over examples for L2; for L1 a mean over the tokens of a
sequence, then over all sequences, each candidate one of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headwater.device import to_device
from headwater.finetuning.model.inputs import Encoded
from headwater.model import IGNORE

# An update's examples are drawn from a window of this many updates, sorted by length within it.
WINDOW_UPDATES = 16
# Tokens of a micro-batch: on a CPU more cost memory and are hardly faster, on a GPU they are.
CPU_TOKENS, DEVICE_TOKENS = 1_280, 16_384
# For inference: the most tokens of a batch, padding included. A batch with enough tokens for efficient matmuls
# takes no sequence that is shorter than this share of its longest.
_MOST_TOKENS, _ENOUGH_TOKENS, _SHORTEST = 4_096, 256, 0.85


@dataclass(frozen=True)
class Batch:
    """One micro-batch.

    ids: (sequences, time) int64, padded on the right with 0; extract: (sequences,) int64, where the extract
    token is; owner: (sequences,) int64, the example that a sequence belongs to; slot: (sequences,) int64, which of
    its example's sequences it is; examples: their number; targets: (examples, outputs) float32, the label's
    probability of each output; weights: (examples,) float32; next_ids: (sequences, time) int64, the next token at
    each position, IGNORE if there is none; token_weights: (sequences, time) float32.
    """

    ids: Tensor
    extract: Tensor
    owner: Tensor
    slot: Tensor
    examples: int
    targets: Tensor
    weights: Tensor
    next_ids: Tensor
    token_weights: Tensor

    def to(self, device: torch.device) -> Batch:
        """Return the batch on a device."""
        moved: dict[str, Any] = {k: to_device(v, device) for k, v in vars(self).items() if isinstance(v, Tensor)}
        return replace(self, **moved)


def collate(
    encoded: Encoded,
    chosen: Sequence[int] | npt.NDArray[np.int64],
    targets: npt.NDArray[np.float32],
    *,
    update_examples: int,
    update_sequences: int,
    weights: npt.NDArray[np.float32] | None = None,
) -> Batch:
    """Return the batch of the examples `chosen`, part of an update of `update_examples` and `update_sequences`.

    targets: (all examples, outputs) probabilities. weights: (all examples,), by default 1 each.
    """
    chosen = np.asarray(chosen, dtype=np.int64)
    counts = encoded.first[chosen + 1] - encoded.first[chosen]
    owner = np.repeat(np.arange(len(chosen)), counts)
    slot = np.concatenate([np.arange(count) for count in counts])
    sequences = encoded.first[chosen][owner] + slot
    lengths = encoded.lengths[sequences]
    time = int(lengths.max())
    real = np.arange(time) < lengths[:, None]  # (sequences, time)
    indices = encoded.starts[sequences][:, None] + np.arange(time)
    indices = np.minimum(indices, len(encoded.ids) - 1)
    ids = np.where(real, encoded.ids[indices], 0).astype(np.int64)
    of_each = np.ones(len(encoded), np.float32) if weights is None else weights
    next_ids = np.full_like(ids, IGNORE)
    next_ids[:, :-1] = np.where(real[:, 1:], ids[:, 1:], IGNORE)
    token_weights = np.where(next_ids != IGNORE, 1 / (update_sequences * np.maximum(lengths - 1, 1))[:, None], 0.0)
    return Batch(
        ids=torch.from_numpy(ids),
        extract=torch.from_numpy(lengths - 1),
        owner=torch.from_numpy(owner),
        slot=torch.from_numpy(slot),
        examples=len(chosen),
        targets=torch.from_numpy(targets[chosen]),
        weights=torch.from_numpy(of_each[chosen] / np.float32(update_examples)),
        next_ids=torch.from_numpy(next_ids),
        token_weights=torch.from_numpy(token_weights.astype(np.float32)),
    )


class ExampleSampler:
    """The examples of every update: a function of (seed, step) alone; each example is in one update of an epoch.

    targets: (all examples, outputs) probabilities. weights: (all examples,) of each in L2. An update is divided
    evenly into micro-batches of at most `micro_batch` sequences and about `most_tokens` tokens; an example is
    never divided. One update of an epoch, at any place in it, may be smaller.
    """

    def __init__(
        self,
        encoded: Encoded,
        targets: npt.NDArray[np.float32],
        *,
        batch_size: int,
        seed: int,
        micro_batch: int | None = None,
        most_tokens: int = 1 << 30,
        weights: npt.NDArray[np.float32] | None = None,
    ) -> None:
        self.encoded, self.targets, self.weights = encoded, targets, weights
        self.micro_batch, self.most_tokens = micro_batch, most_tokens
        self.updates_an_epoch = math.ceil(len(encoded) / batch_size)
        self._counts, self._longest = np.diff(encoded.first), encoded.longest
        # Two epochs are cached, because the next update is read ahead.
        self._epoch = lru_cache(maxsize=2)(partial(_epoch, self._longest, batch_size, seed))

    def examples(self, step: int) -> npt.NDArray[np.int64]:
        """Return the indices of the examples of update `step` (from 0)."""
        epoch, number = divmod(step, self.updates_an_epoch)
        return self._epoch(epoch)[number]

    def tokens(self, step: int) -> int:
        """Return the tokens of update `step`, without padding."""
        encoded, chosen = self.encoded, self.examples(step)
        return int((encoded.starts[encoded.first[chosen + 1]] - encoded.starts[encoded.first[chosen]]).sum())

    def micro_batches(self, step: int) -> list[Batch]:
        """Return update `step`, divided into micro-batches."""
        chosen = self.examples(step)
        sequences = int(self._counts[chosen].sum())
        parts = math.ceil(sequences * int(self._longest[chosen].max()) / self.most_tokens)
        share = math.ceil(sequences / parts)
        limit = share if self.micro_batch is None else min(share, self.micro_batch)
        whole: dict[str, Any] = {
            "update_examples": len(chosen),
            "update_sequences": sequences,
            "weights": self.weights,
        }
        return [collate(self.encoded, part, self.targets, **whole) for part in _cut(self._counts, chosen, limit)]


def inference_batches(
    encoded: Encoded, targets: npt.NDArray[np.float32]
) -> Iterator[tuple[npt.NDArray[np.int64], Batch]]:
    """Yield (indices of examples, batch) over all examples, longest first; weights as of a single update."""
    whole: dict[str, Any] = {"update_examples": len(encoded), "update_sequences": len(encoded.lengths)}
    order = np.argsort(-encoded.longest, kind="stable")
    longest, counts = encoded.longest[order], np.diff(encoded.first)[order]
    start = 0
    while start < len(order):
        end, sequences = start + 1, int(counts[start])
        while end < len(order) and (sequences + counts[end]) * longest[start] <= _MOST_TOKENS:
            if sequences * longest[start] >= _ENOUGH_TOKENS and longest[end] < _SHORTEST * longest[start]:
                break
            sequences += int(counts[end])
            end += 1
        yield order[start:end], collate(encoded, order[start:end], targets, **whole)
        start = end


def _epoch(longest: npt.NDArray[np.int64], batch_size: int, seed: int, epoch: int) -> list[npt.NDArray[np.int64]]:
    """Return the examples of each update: shuffled, sorted within windows, then the updates shuffled."""
    random = np.random.default_rng([seed, epoch])
    order = random.permutation(len(longest))
    chosen = []
    for start in range(0, len(order), WINDOW_UPDATES * batch_size):
        window = order[start : start + WINDOW_UPDATES * batch_size]
        window = window[np.argsort(longest[window], kind="stable")]
        chosen += [window[i : i + batch_size] for i in range(0, len(window), batch_size)]
    return [chosen[i] for i in random.permutation(len(chosen))]


def _cut(
    counts: npt.NDArray[np.int64], chosen: npt.NDArray[np.int64], most: int
) -> Iterator[npt.NDArray[np.int64]]:
    """Yield an update's examples in parts of at most `most` sequences, or of one example."""
    part: list[int] = []
    size = 0
    for example in chosen:
        if part and size + counts[example] > most:
            yield np.array(part, dtype=np.int64)
            part, size = [], 0
        part.append(int(example))
        size += int(counts[example])
    yield np.array(part, dtype=np.int64)
