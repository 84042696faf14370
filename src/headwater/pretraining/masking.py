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

from headwater.model import IGNORE
from headwater.pretraining.tokens.sampler import Sampler, TokenBatch, TokenStream

CHOSEN = 0.15  # the share of the positions that a masked model predicts
READ_AS_MASK, READ_AS_RANDOM = 0.8, 0.1  # shares of the chosen positions
_HELD_OUT = 2**63 - 1  # instead of an update: held-out windows are always masked the same way


@dataclass(frozen=True, slots=True)
class Masking:
    """Settings of masking: the id of `[MASK]`, the number of ids to draw random tokens from, and the seed."""

    mask: int
    vocabulary: int
    seed: int

    def count(self, candidates: np.ndarray) -> int:
        """Return how many of the candidates, (context,) bool, are chosen."""
        number = int(candidates.sum())
        return min(number, max(1, round(CHOSEN * number)))

    def window(
        self, ids: np.ndarray, candidates: np.ndarray, update: int, row: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return what the model reads, and its targets, IGNORE at other positions: each (context,) int64.

        ids: (context,) int64; candidates: (context,) bool, the positions that may be chosen.
        """
        generator = np.random.default_rng([self.seed, update, row])
        places, count = np.flatnonzero(candidates), self.count(candidates)
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

    def batch(self, indices: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return ids and targets, each (len(indices), context) int64."""
        rows = []
        for index in map(int, indices):
            ids, following = self.stream.window(index)
            # A shard's last window overlaps the previous one; its first positions were candidates there.
            rows.append(self.masking.window(ids, following != IGNORE, _HELD_OUT, index))
        reads, targets = (torch.from_numpy(np.stack(part)) for part in zip(*rows, strict=True))
        return reads, targets


@dataclass(frozen=True, slots=True)
class MaskedSampler:
    """A `Sampler`'s windows, masked, and divided among ranks and micro-batches in the same way."""

    sampler: Sampler
    masking: Masking

    def tokens(self, step: int) -> int:
        """Return how many tokens update `step` reads, over all ranks."""
        return self.sampler.tokens(step)

    def micro_batches(self, step: int) -> list[TokenBatch]:
        """Return this rank's part of update `step`, divided into micro-batches; only its windows are read."""
        sampler, stream, masking = self.sampler, self.sampler.stream, self.masking
        windows = sampler.windows_of(step).tolist()
        candidates = [stream.has_target(index) for index in windows]
        mine, own = sampler.rows_of(len(windows))
        rows = [masking.window(stream.window(windows[row])[0], candidates[row], step, row) for row in mine]
        ids, targets = (torch.from_numpy(np.stack(column)) for column in zip(*rows, strict=True))
        weights = (targets != IGNORE).float() / sum(map(masking.count, candidates))
        weights[own:] = 0.0
        parts = (tensor.split(sampler.micro_batch) for tensor in (ids, targets, weights))
        return [TokenBatch(*part) for part in zip(*parts, strict=True)]
