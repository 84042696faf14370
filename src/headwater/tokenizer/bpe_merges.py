"""Learn merges from counted words: the byte-pair algorithm of Sennrich et al. 2016, which both papers use.

The most frequent pair is merged; of equally frequent ones the pair with the lowest ids, left one first. Two pairs
with the same spelling share one token. `native/bpe_words.c` counts the words of GPT-2's pre-split, and
`native/bpe_merges.c` learns. They are compiled when the package is installed with a C compiler, and are in the
wheels; without them the `tokenizers` library does the same about twenty times as slowly. `reference` is the
readable twin.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from headwater import native
from headwater.storage import SILENT, Progress

_STEP = 256
_FIRST_LETTER = 0x10000  # in place of alphabet id 0; code points from here on have no gap
_POINTER = ctypes.c_void_p
_LONG = ctypes.c_int64
_INT = ctypes.c_int32
_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "counter_new": (_POINTER, []),
    "counter_free": (None, [_POINTER]),
    "counter_add": (_LONG, [_POINTER, ctypes.c_char_p, _LONG, _POINTER, _LONG]),
    "counter_merge": (_LONG, [_POINTER, _POINTER]),
    "counter_words": (_LONG, [_POINTER]),
    "counter_bytes": (_LONG, [_POINTER]),
    "counter_export": (None, [_POINTER, _POINTER, _POINTER, _POINTER, _POINTER]),
    "learner_new": (_POINTER, [_POINTER, _POINTER, _POINTER, _LONG, _INT, _INT]),
    "learner_run": (_LONG, [_POINTER, _LONG, _POINTER]),
    "learner_free": (None, [_POINTER]),
}


@lru_cache(maxsize=1)
def load() -> Any:
    """Return the library, whose functions run without the interpreter's lock; None if it was not built."""
    library = native.extension("portable")
    if library is None:
        return None
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class CompiledCounter:
    """Counter of the pieces of GPT-2's pre-split in texts."""

    def __init__(self, categories: npt.NDArray[np.uint8]) -> None:
        self._library, self._categories = load(), categories
        self._handle = self._library.counter_new()
        if not self._handle:
            raise MemoryError

    def add(self, text: bytes) -> None:
        """Count the pieces of UTF-8 text."""
        categories = self._categories
        native.check(
            self._library.counter_add(self._handle, text, len(text), categories.ctypes.data, len(categories))
        )

    def merge(self, other: CompiledCounter) -> None:
        """Add the counts of `other`."""
        native.check(self._library.counter_merge(self._handle, other._handle))

    def export(
        self, ids: npt.NDArray[np.int32]
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the words as ids of their bytes in one array, the border of each, and the count of each."""
        words = self._library.counter_words(self._handle)
        symbols = np.empty(self._library.counter_bytes(self._handle), np.int32)
        borders, counts = np.empty(words + 1, np.int64), np.empty(words, np.int64)
        self._library.counter_export(
            self._handle, *(array.ctypes.data for array in (ids, symbols, borders, counts))
        )
        return symbols, borders, counts

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._library.counter_free(self._handle)


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
    library = load()
    if library is None:
        return learn_with_library(words, alphabet_size, new_tokens, progress)
    addresses = [array.ctypes.data for array in (words.symbols, words.borders, words.counts)]
    learner = library.learner_new(*addresses, len(words), alphabet_size, new_tokens)
    if not learner:
        raise MemoryError
    merges: list[npt.NDArray[np.int32]] = []
    made, known = _STEP, alphabet_size
    try:
        while made == _STEP:
            step = np.empty((_STEP, 3), np.int32)
            made = native.check(library.learner_run(learner, _STEP, step.ctypes.data))
            merges.append(step[:made])
            known = int(merges[-1][:, 2].max(initial=known - 1)) + 1
            progress.advance(known - alphabet_size)
    finally:
        library.learner_free(learner)
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
