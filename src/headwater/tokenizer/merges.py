"""Learn merges from counted words: the byte-pair algorithm of Sennrich et al. 2016, as both papers use it.

Decided here: the most frequent pair is merged; of equally frequent ones the pair with the lowest ids, left
one first, as `tokenizers` has it. Where two ways lead to the same spelling they share its token.
`native/merges.c` does the same faster; `reference` shows it plainly. Counting words is left to `counting`.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from headwater.storage.progress import SILENT, Progress
from headwater.tokenizer import compiled

_STEP = 256


@dataclass(frozen=True, slots=True)
class WordCounts:
    """Distinct words as alphabet ids: `symbols[borders[i]:borders[i + 1]]` occurs `counts[i]` times."""

    symbols: npt.NDArray[np.int32]
    borders: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]

    @classmethod
    def of(cls, words: Iterable[tuple[list[int], int]]) -> WordCounts:
        """From (ids, count) of each distinct word."""
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
    """Merges in order of rank, (merges, 3): ids of left, right and merged; as many as there are.

    New tokens are numbered from `alphabet_size`. Progress advances by the number of new tokens.
    `words.symbols` is overwritten, as a copy of it would be a good part of all memory.
    """
    # There are no more: each merge shortens a word. What is asked for decides the memory taken.
    new_tokens = min(new_tokens, len(words.symbols))
    if compiled.load() is None:
        return _learn_in_python(words, alphabet_size, new_tokens, progress)
    learner = compiled.CompiledLearner(words.symbols, words.borders, words.counts, alphabet_size, new_tokens)
    merges: list[npt.NDArray[np.int32]] = []
    known = 0
    while True:
        made = learner.run(_STEP)
        merges.append(made)
        if len(made) < _STEP:
            return np.concatenate(merges)
        known = max(known, int(made[:, 2].max()) + 1 - alphabet_size)
        progress.advance(known)


def _learn_in_python(
    words: WordCounts, alphabet_size: int, new_tokens: int, progress: Progress
) -> npt.NDArray[np.int32]:
    """The same without the compiled library: only words that hold the merged pair are looked at."""
    spellings: list[tuple[int, ...]] = [(index,) for index in range(alphabet_size)]
    known: dict[tuple[int, ...], int] = {}
    borders, symbols = words.borders.tolist(), words.symbols.tolist()
    current = [symbols[start:end] for start, end in pairwise(borders)]
    counts = words.counts.tolist()
    pair_counts: dict[tuple[int, int], int] = defaultdict(int)
    places: dict[tuple[int, int], set[int]] = defaultdict(set)
    for number, word in enumerate(current):
        for pair in pairwise(word):
            pair_counts[pair] += counts[number]
            places[pair].add(number)
    heap = [(-count, pair) for pair, count in pair_counts.items()]
    heapq.heapify(heap)
    merges: list[tuple[int, int, int]] = []
    while heap and len(known) < new_tokens:
        negative, pair = heapq.heappop(heap)
        count = pair_counts[pair]
        if count <= 0:
            continue
        if count != -negative:
            heapq.heappush(heap, (-count, pair))
            continue
        left, right = pair
        spelling = spellings[left] + spellings[right]
        merged = known.get(spelling)
        if merged is None:
            merged = known[spelling] = len(spellings)
            spellings.append(spelling)
        merges.append((left, right, merged))
        grown: set[tuple[int, int]] = set()
        for number in places.pop(pair):
            word, weight = current[number], counts[number]
            for old in pairwise(word):
                pair_counts[old] -= weight
            word = current[number] = _replace_pair(word, left, right, merged)
            for new in pairwise(word):
                pair_counts[new] += weight
                places[new].add(number)
                if merged in new:
                    grown.add(new)
        pair_counts[pair] = 0
        for new in grown:
            heapq.heappush(heap, (-pair_counts[new], new))
        if len(merges) % _STEP == 0:
            progress.advance(len(known))
    return np.array(merges, np.int32).reshape(-1, 3)


def _replace_pair(word: list[int], left: int, right: int, merged: int) -> list[int]:
    """The word with each (left, right) replaced by `merged`, from the left."""
    replaced: list[int] = []
    place = 0
    while place < len(word):
        if word[place] == left and place + 1 < len(word) and word[place + 1] == right:
            replaced.append(merged)
            place += 2
        else:
            replaced.append(word[place])
            place += 1
    return replaced
