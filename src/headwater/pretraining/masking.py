"""The masked objective's data: which positions of a window a model must predict, and what it reads there.

BERT (Devlin et al. 2019, section 3.1 and appendix A.1): 15 % of the positions are chosen; 80 % of these are read
as `[MASK]`, 10 % as a random token, 10 % unchanged. The choice is a function of (seed, update, row), so it does
not depend on the number of ranks or the micro-batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headwater.model import IGNORE

CHOSEN = 0.15  # the share of the positions that a masked model predicts
READ_AS_MASK, READ_AS_RANDOM = 0.8, 0.1  # shares of the chosen positions
HELD_OUT = 2**63 - 1  # instead of an update: held-out windows are always masked the same way


@dataclass(frozen=True, slots=True)
class Masking:
    """Settings of masking: the id of `[MASK]`, the number of ids to draw random tokens from, and the seed."""

    mask: int
    vocabulary: int
    seed: int

    def count(self, candidates: int) -> int:
        """Return how many of so many candidates are chosen."""
        return min(candidates, max(1, round(CHOSEN * candidates)))

    def window(
        self, ids: np.ndarray, candidates: np.ndarray, update: int, row: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return what the model reads, and its targets, IGNORE at other positions: each (context,) int64.

        ids: (context,) int64; candidates: (context,) bool, the positions that may be chosen.
        """
        generator = np.random.default_rng([self.seed, update, row])
        positions = np.flatnonzero(candidates)
        count = self.count(len(positions))
        chosen = generator.permutation(positions)[:count]
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
