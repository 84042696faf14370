"""Learn merges from counted words: the byte-pair algorithm of Sennrich et al. 2016, which both papers use.

The most frequent pair is merged; of equally frequent ones the pair with the lowest ids, left one first. Two pairs
with the same spelling share one token. `native/merges.c` implements this; without it, the `tokenizers` library,
which is slower. `reference` is the readable twin. `counting` counts the words.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise, repeat

import numpy as np
import numpy.typing as npt

from headwater.storage import SILENT, Progress
from headwater.tokenizer import compiled

_STEP = 256
_FIRST_LETTER = 0x10000  # in place of alphabet id 0; code points from here on have no gap


@dataclass(frozen=True, slots=True)
class WordCounts:
    """Distinct words as alphabet ids: `symbols[borders[i]:borders[i + 1]]` occurs `counts[i]` times."""

    symbols: npt.NDArray[np.int32]
    borders: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]

    @classmethod
    def of(cls, words: Iterable[tuple[list[int], int]]) -> WordCounts:
        """Build from (ids, count) of each distinct word."""
        symbols: list[int] = []
        borders, counts = [0], []
        for ids, count in words:
            symbols += ids
            borders.append(len(symbols))
            counts.append(count)
        return cls(np.array(symbols, np.int32), np.array(borders, np.int64), np.array(counts, np.int64))

    def __len__(self) -> int:
        return len(self.counts)


def learn_merges(
    words: WordCounts, alphabet_size: int, new_tokens: int, progress: Progress = SILENT
) -> npt.NDArray[np.int32]:
    """Return merges in order of rank, (merges, 3): ids of left, right and merged.

    New tokens are numbered from `alphabet_size`; there may be fewer than `new_tokens`. Progress advances by the
    number of new tokens. `words.symbols` is overwritten, because a copy would take much of the memory.
    """
    # An upper bound, because each merge shortens a word; memory is allocated for it.
    new_tokens = min(new_tokens, len(words.symbols))
    if compiled.load() is None:
        return learn_with_library(words, alphabet_size, new_tokens, progress)
    merges: list[npt.NDArray[np.int32]] = []
    known = alphabet_size
    for made in compiled.learn(words.symbols, words.borders, words.counts, alphabet_size, new_tokens, _STEP):
        merges.append(made)
        known = int(made[:, 2].max(initial=known - 1)) + 1
        progress.advance(known - alphabet_size)
    return np.concatenate(merges)


def learn_with_library(
    words: WordCounts, alphabet_size: int, new_tokens: int, progress: Progress = SILENT
) -> npt.NDArray[np.int32]:
    """Return the same merges, learned by the `tokenizers` library."""
    from tokenizers import Tokenizer, models, trainers

    # One letter for each id, in the order of the ids: the library numbers its alphabet in this order.
    letters = [chr(_FIRST_LETTER + index) for index in range(alphabet_size)]
    symbols = words.symbols.tolist()

    def spelled() -> Iterator[str]:
        for (start, end), count in zip(pairwise(words.borders.tolist()), words.counts.tolist(), strict=True):
            yield from repeat("".join([letters[index] for index in symbols[start:end]]), count)

    tokenizer = Tokenizer(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=alphabet_size + new_tokens, initial_alphabet=letters, show_progress=False
    )
    tokenizer.train_from_iterator(spelled(), trainer)
    learned = json.loads(tokenizer.to_str())["model"]
    ids = learned["vocab"]
    progress.advance(len(ids) - alphabet_size)
    merges = [(ids[left], ids[right], ids[left + right]) for left, right in learned["merges"]]
    return np.array(merges, np.int32).reshape(-1, 3)
