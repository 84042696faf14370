"""The masked objective's data: which positions of a window a model must predict, and what it reads there.

BERT (Devlin et al. 2019, section 3.1 and appendix A.1): 15 % of the positions are chosen; 80 % of these are read
as `[MASK]`, 10 % as a random token, 10 % unchanged. The choice is a function of (seed, update, row), so it does
not depend on the number of ranks or the micro-batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from headwater.model.loss import IGNORE
from headwater.pretrain.tokens.sampler import Sampler, TokenBatch, TokenStream

CHOSEN = 0.15  # of the positions
READ_AS_MASK, READ_AS_RANDOM = 0.8, 0.1  # of the chosen ones
RANDOM_NEXT = 0.5  # of the pairs
_HELD_OUT = 2**63 - 1  # instead of an update: held-out windows are always masked the same way


@dataclass(frozen=True, slots=True)
class Masking:
    """Settings of masking: the id of `[MASK]`, the number of ids to draw random tokens from, and the seed."""

    mask: int
    vocabulary: int
    seed: int

    def window(
        self, ids: np.ndarray, candidates: np.ndarray, update: int, row: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return what the model reads, and its targets, IGNORE at other positions: each (context,) int64.

        ids: (context,) int64; candidates: (context,) bool, the positions that may be chosen.
        """
        generator = np.random.default_rng([self.seed, update, row])
        places = np.flatnonzero(candidates)
        count = min(len(places), max(1, round(CHOSEN * len(places))))
        chosen = generator.permutation(places)[:count]
        draw = generator.random(count)
        random = generator.integers(0, self.vocabulary, count)
        read, targets = ids.copy(), np.full_like(ids, IGNORE)
        targets[chosen] = ids[chosen]
        read[chosen] = np.where(
            draw < READ_AS_MASK,
            self.mask,
            np.where(draw < READ_AS_MASK + READ_AS_RANDOM, random, ids[chosen]),
        )
        return read, targets


@dataclass(frozen=True, slots=True)
class MaskedStream:
    """A `TokenStream` with masked windows, always masked the same way: for the held-out loss."""

    stream: TokenStream
    masking: Masking

    @property
    def windows(self) -> int:
        """The number of windows."""
        return self.stream.windows

    def batch(self, indices: np.ndarray, update: int = _HELD_OUT) -> tuple[Tensor, Tensor]:
        """Return ids and targets, each (len(indices), context) int64; row i is masked as row i of `update`."""
        rows = []
        for row, index in enumerate(indices):
            ids, following = self.stream.window(int(index))
            # A shard's last window overlaps the previous one; its first positions were candidates there.
            key = int(index) if update == _HELD_OUT else row
            rows.append(self.masking.window(ids, following != IGNORE, update, key))
        reads, targets = (torch.from_numpy(np.stack(part)) for part in zip(*rows, strict=True))
        return reads, targets


@dataclass(frozen=True, slots=True)
class Pairing:
    """Pairs of texts for next-sentence prediction (BERT, section 3.1, task 2).

    A window becomes [CLS] A [SEP] B [SEP] of the same length. In half of the cases B follows A in the window, else
    it is that part of another window. start, separator, last: the ids of the three tokens.
    """

    start: int
    separator: int
    last: int

    def pair(
        self, stream: TokenStream, index: int, generator: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
        """Return (ids, candidates for masking, segments), each (context,), and whether B comes from elsewhere."""
        ids, following = stream.window(index)
        new = following != IGNORE
        first, both = (len(ids) - 3) // 2, len(ids) - 3
        other = (index + 1 + int(generator.integers(0, max(1, stream.windows - 1)))) % stream.windows
        is_random = bool(generator.random() < RANDOM_NEXT) and other != index
        second = stream.window(other)[0][first:both] if is_random else ids[first:both]
        new_second = np.ones(both - first, dtype=bool) if is_random else new[first:both]
        read = np.concatenate([[self.start], ids[:first], [self.separator], second, [self.last]])
        candidates = np.concatenate([[False], new[:first], [False], new_second, [False]])
        return read, candidates, (np.arange(len(ids)) > first + 1).astype(np.int64), is_random


@dataclass(frozen=True, slots=True)
class MaskedSampler:
    """A `Sampler`'s windows, masked, and divided among ranks and micro-batches in the same way.

    pairing: makes each window a pair of texts; None leaves windows unchanged.
    """

    sampler: Sampler
    masking: Masking
    pairing: Pairing | None = None

    def tokens(self, step: int) -> int:
        """Return how many tokens update `step` reads, over all ranks."""
        return self.sampler.tokens(step)

    def micro_batches(self, step: int) -> list[TokenBatch]:
        """Return this rank's part of update `step`, divided into micro-batches."""
        sampler = self.sampler
        windows = sampler.windows_of(step)
        pairs: list[Tensor] = []
        if self.pairing is None:
            ids, targets = MaskedStream(sampler.stream, self.masking).batch(windows, step)
        else:
            ids, targets, *pairs = self._pairs(self.pairing, windows, step)
        weights = (targets != IGNORE).float() / int((targets != IGNORE).sum())
        mine = slice(sampler.rank, None, sampler.ranks)
        parts = (t[mine].split(sampler.micro_batch) for t in (ids, targets, weights, *pairs))
        return [TokenBatch(*part) for part in zip(*parts, strict=True)]

    def _pairs(self, pairing: Pairing, windows: np.ndarray, step: int) -> list[Tensor]:
        """Return ids, targets, segments, each (rows, context), and labels and weights of the pairs, (rows,)."""
        rows = []
        for row, index in enumerate(windows):
            generator = np.random.default_rng([self.masking.seed, step, row, 1])  # not the masking's random stream
            read, candidates, segments, is_random = pairing.pair(self.sampler.stream, int(index), generator)
            ids, targets = self.masking.window(read, candidates, step, row)
            rows.append((ids, targets, segments, np.int64(is_random)))
        columns = [torch.from_numpy(np.stack(column)) for column in zip(*rows, strict=True)]
        return [*columns, torch.full((len(rows),), 1 / len(rows))]
