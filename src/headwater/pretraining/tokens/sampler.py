"""Which windows of the packed stream each update reads: a function of (seed, step) alone.

Every shard is divided into windows of `context` tokens and the token that follows; one epoch visits each window
once, in an order that a permutation keyed by (seed, epoch) computes, so that the time to start does not depend on
the number of tokens. A shard's last window overlaps the previous one, without a loss for the overlap: every token
is predicted exactly once per epoch.

Ranks and micro-batches divide the windows of an update; they do not change which windows these are. If the ranks
cannot share them equally, some read one more window, with weight 0: ranks that shard a model compute together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headwater.device import to_device
from headwater.errors import DataError
from headwater.model import IGNORE
from headwater.pretraining.masking import HELD_OUT, Masking
from headwater.pretraining.tokens.shards import Shard, check_ids
from headwater.storage import Manifest, open_folder

_ROUNDS = 6
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """The windows of one micro-batch. ids, targets: (sequences, context) int64; weights: so shaped, float32.

    Weights sum to 1 over all ranks and micro-batches of an update. chosen: (targets,) int64, the flat positions
    that have a target; None before the batch is on its device.
    """

    ids: Tensor
    targets: Tensor
    weights: Tensor
    chosen: Tensor | None = None

    def to(self, device: torch.device) -> TokenBatch:
        """Return the batch on a device."""
        if device.type == "cpu":
            return self
        tensors = (self.ids, self.targets, self.weights, self.target_positions())
        return TokenBatch(*(to_device(tensor, device) for tensor in tensors))

    def first(self, count: int) -> TokenBatch:
        """Return a batch of the first sequences."""
        return TokenBatch(self.ids[:count], self.targets[:count], self.weights[:count])

    def target_positions(self) -> Tensor:
        """Return `chosen`, computed on the CPU, because the host would have to wait for a device."""
        return (self.targets != IGNORE).flatten().nonzero().squeeze(1) if self.chosen is None else self.chosen


class TokenStream:
    """One part ("train" or "validation") of a tokens folder, divided into windows that are read when needed.

    Windows are checked as they are read: an id beyond the vocabulary raises DataError. manifest: that of the
    folder, if it was checked already. masking: what the masked objective hides; None hides nothing.
    """

    def __init__(
        self,
        folder: Path,
        part: str,
        context: int,
        manifest: Manifest | None = None,
        masking: Masking | None = None,
    ) -> None:
        self.masking = masking
        self.manifest = manifest or open_folder(folder, "tokens")
        self.folder, self.part, self.context = folder, part, context
        shards = map(Shard, shard_paths(folder, self.manifest, part))
        self.shards = [shard for shard in shards if len(shard) > context]
        self._vocabulary = int(self.manifest.config.get("vocabulary_size", 1 << 32))
        if not self.shards:
            raise too_short(folder, self.manifest, part, context)
        # Windows of each shard: the last one, full but overlapping, counts as one.
        self._ends = np.cumsum([-(-(len(shard) - 1) // context) for shard in self.shards])
        self.windows = int(self._ends[-1])

    def window(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Return ids and targets of one window, each (context,) int64; IGNORE in the overlap."""
        number, start, overlap = self._place(index)
        chunk = self.shards[number].read(start, start + self.context + 1)
        check_ids(chunk, self._vocabulary, self.shards[number].path, start)
        chunk = chunk.astype(np.int64)
        ids, targets = chunk[:-1], chunk[1:].copy()
        targets[:overlap] = IGNORE
        return ids, targets

    def targets_in(self, indices: np.ndarray) -> int:
        """Return how many targets these windows have, without reading them."""
        counts = (self.context - self._place(index)[2] for index in indices.tolist())
        return sum(counts if self.masking is None else map(self.masking.count, counts))

    def _place(self, index: int) -> tuple[int, int, int]:
        """Return a window's shard, its start there, and how many of its targets the previous window has too."""
        number = int(np.searchsorted(self._ends, index, side="right"))
        start = (index - int(self._ends[number - 1] if number else 0)) * self.context
        overlap = max(0, start + self.context + 1 - len(self.shards[number]))
        return number, start - overlap, overlap

    def batch(
        self, indices: np.ndarray, update: int = HELD_OUT, rows: Sequence[int] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return ids and targets, each (len(indices), context) int64.

        update, rows: an update, and the windows' rows in it, by which they are masked; held-out ones always in the
        same way.
        """
        pairs = [self.window(index) for index in indices.tolist()]
        if self.masking is not None:
            numbers = indices.tolist() if rows is None else rows
            pairs = [
                self.masking.window(ids, targets != IGNORE, update, row)
                for (ids, targets), row in zip(pairs, numbers, strict=True)
            ]
        ids = torch.from_numpy(np.stack([ids for ids, _ in pairs]))
        targets = torch.from_numpy(np.stack([targets for _, targets in pairs]))
        return ids, targets


def shard_paths(folder: Path, manifest: Manifest, part: str) -> list[Path]:
    """Return the paths of a part's shards in order: only those that the manifest names, which were checked."""
    return [folder / name for name in sorted(manifest.files) if name.startswith(f"{part}-")]


def too_short(folder: Path, manifest: Manifest, part: str, context: int) -> DataError:
    """Return the error for a part without a window of `context` tokens and the token that follows."""
    count = manifest.config["counts"][part]["tokens"]
    return DataError(
        f"the {part} part of {folder} has {count:,} tokens, less than one window",
        expected=f"more than the context of {context}",
        repair="Gather more text, or train with a smaller --set context",
    )


@dataclass(frozen=True, slots=True)
class Sampler:
    """The training windows of every update, divided among ranks and micro-batches."""

    stream: TokenStream
    batch_size: int  # windows per update, over all ranks
    micro_batch: int  # windows at a time on one rank
    seed: int
    rank: int = 0
    ranks: int = 1

    def windows_of(self, step: int) -> np.ndarray:
        """Return the windows of update `step` (from 0), of all ranks: (batch_size,) int64 indices."""
        numbers = np.arange(step * self.batch_size, (step + 1) * self.batch_size, dtype=np.int64)
        epochs, positions = np.divmod(numbers, self.stream.windows)
        indices = np.empty_like(numbers)
        for epoch in np.unique(epochs):
            chosen = epochs == epoch
            indices[chosen] = permute(positions[chosen], self.stream.windows, self.seed, int(epoch))
        return indices

    def tokens(self, step: int) -> int:
        """Return the tokens of update `step`, over all ranks."""
        return self.batch_size * self.stream.context

    def micro_batches(self, step: int) -> list[TokenBatch]:
        """Return this rank's part of update `step`, divided into micro-batches; only its windows are read."""
        windows = self.windows_of(step)
        own = list(range(self.rank, len(windows), self.ranks))
        rows = own + [0] * (-(-len(windows) // self.ranks) - len(own))  # the same number on each rank
        ids, targets = self.stream.batch(windows[rows], step, rows)
        weight = 1.0 / self.stream.targets_in(windows)
        weights = (targets != IGNORE).float() * weight
        weights[len(own) :] = 0.0
        parts = (t.split(self.micro_batch) for t in (ids, targets, weights))
        return [TokenBatch(*part) for part in zip(*parts, strict=True)]


def permute(positions: np.ndarray, size: int, seed: int, epoch: int) -> np.ndarray:
    """Evaluate a permutation of range(size), drawn from (seed, epoch), at `positions` (int64).

    A balanced Feistel network over the next even power of two, applied until the result is below `size` (Black and
    Rogaway 2002, "cycle walking"): O(1) memory, fewer than four applications a position on average.
    """
    half = max(1, (max(size - 1, 1).bit_length() + 1) // 2)
    mask = np.uint64((1 << half) - 1)
    keys = np.random.default_rng([seed, epoch]).integers(0, 2**63, _ROUNDS, dtype=np.uint64)
    values = positions.astype(np.uint64)
    outside = np.ones(len(values), dtype=bool)
    while outside.any():
        left, right = values[outside] >> np.uint64(half), values[outside] & mask
        for key in keys:
            left, right = right, left ^ (_mix((right + key) * _MULTIPLIER) & mask)
        values[outside] = (left << np.uint64(half)) | right
        outside &= values >= np.uint64(size)
    return values.astype(np.int64)


def _mix(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Mix the bits of 64-bit values (finaliser of SplitMix64, Steele et al. 2014)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
