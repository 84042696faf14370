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
RANDOM_NEXT = 0.5  # the share of the pairs whose second text is from elsewhere
ADDED = 3  # tokens of a pair that are not text: [CLS] and two [SEP]
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
class Pairing:
    """Pairs of texts for next-sentence prediction (BERT, section 3.1, task 2).

    A window becomes [CLS] A [SEP] B [SEP], which is ADDED tokens longer. In half of the cases B follows A in the
    window, else it is that part of another window. start, separator, last: the ids of the three tokens.
    """

    start: int
    separator: int
    last: int

    def second(self, stream: TokenStream, index: int, generator: np.random.Generator) -> int:
        """Return the window that B is taken from: `index` itself, or another one."""
        other = (index + 1 + int(generator.integers(0, max(1, stream.windows - 1)))) % stream.windows
        return other if generator.random() < RANDOM_NEXT else index

    def candidates(self, stream: TokenStream, index: int, second: int) -> np.ndarray:
        """Return which positions of the pair may be masked, (context + ADDED,) bool."""
        new, first = stream.has_target(index), stream.context // 2
        of_second = new[first:] if second == index else np.ones(stream.context - first, dtype=bool)
        return np.concatenate([[False], new[:first], [False], of_second, [False]])

    def pair(self, stream: TokenStream, index: int, second: int) -> tuple[np.ndarray, np.ndarray]:
        """Return ids and segments, each (context + ADDED,)."""
        ids = stream.window(index)[0]
        first = stream.context // 2
        of_second = (ids if second == index else stream.window(second)[0])[first:]
        read = np.concatenate([[self.start], ids[:first], [self.separator], of_second, [self.last]])
        return read, (np.arange(len(read)) > first + 1).astype(np.int64)


@dataclass(frozen=True, slots=True)
class MaskedSampler:
    """A `Sampler`'s windows, masked, and divided among ranks and micro-batches in the same way.

    pairing: makes each window a pair of texts, which is ADDED tokens longer; None leaves windows unchanged.
    """

    sampler: Sampler
    masking: Masking
    pairing: Pairing | None = None

    def tokens(self, step: int) -> int:
        """Return how many tokens update `step` reads, over all ranks."""
        return self.sampler.tokens(step) + (0 if self.pairing is None else self.sampler.batch_size * ADDED)

    def micro_batches(self, step: int) -> list[TokenBatch]:
        """Return this rank's part of update `step`, divided into micro-batches; only its windows are read."""
        sampler, stream, masking = self.sampler, self.sampler.stream, self.masking
        windows = sampler.windows_of(step).tolist()
        seconds = [self._second(step, row, index) for row, index in enumerate(windows)]
        candidates = [self._candidates(*places) for places in zip(windows, seconds, strict=True)]
        rows = []
        mine, own = sampler.rows_of(len(windows))
        for row in mine:
            index, second = windows[row], seconds[row]
            added: list[np.ndarray] = []
            if self.pairing is None:
                read = stream.window(index)[0]
            else:
                read, segments = self.pairing.pair(stream, index, second)
                added = [segments, np.asarray(second != index, dtype=np.int64)]
            rows.append((*masking.window(read, candidates[row], step, row), *added))
        ids, targets, *others = (torch.from_numpy(np.stack(column)) for column in zip(*rows, strict=True))
        weights = (targets != IGNORE).float() / sum(map(masking.count, candidates))
        weights[own:] = 0.0
        if others:
            others.append((torch.arange(len(rows)) < own).float() / len(windows))
        parts = (tensor.split(sampler.micro_batch) for tensor in (ids, targets, weights, *others))
        return [TokenBatch(*part) for part in zip(*parts, strict=True)]

    def _second(self, step: int, row: int, index: int) -> int:
        """Return the window that a pair's second text is taken from; without pairs the window itself."""
        if self.pairing is None:
            return index
        generator = np.random.default_rng([self.masking.seed, step, row, 1])  # not the masking's random stream
        return self.pairing.second(self.sampler.stream, index, generator)

    def _candidates(self, index: int, second: int) -> np.ndarray:
        """Return which positions of a row may be masked, bool."""
        if self.pairing is None:
            return self.sampler.stream.has_target(index)
        return self.pairing.candidates(self.sampler.stream, index, second)
