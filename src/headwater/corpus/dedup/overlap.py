"""Overlap of test texts with a training text: the share of their 8-grams in it (GPT-2, section 4, table 6).

Words are runs of letters and digits in lower case and in Unicode's composed form; n-grams do not cross documents.
In scripts without spaces (Chinese, Japanese, Thai, Lao, Khmer, Burmese) every character is a word.

The paper keeps the training text's 8-grams in a Bloom filter, which has false positives. Here `GramIndex` keeps
those of the test texts, and the training text streams past them once: memory grows with the tests.

The paper reports "the percentage of 8-grams from that dataset that are also found in the training set". Here every
occurrence of an 8-gram in the test text counts.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwater.corpus.folder import Tally, read_documents
from headwater.corpus.sources.text import read_text_file
from headwater.errors import DataError, UsageError
from headwater.reading import compose, cut_text
from headwater.storage import SILENT, Progress

Hashes = NDArray[np.uint64]

WORDS = 8
_TOGETHER = 1 << 17  # words hashed at a time
_PIECE = 1 << 20  # characters of a document split into words at a time; a piece ends with white space
_SPACE = re.compile(r"\s")
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)

_ASCII_WORDS = bytes(ord(chr(code).lower()) if code < 128 and chr(code).isalnum() else 32 for code in range(256))
_SPACELESS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
# A faster pattern, for lines without a special character: those of _SPACELESS, marks, and others near them.
_PLAIN_WORD = re.compile(r"[^\W_]+")
_SPECIAL = re.compile("[\u0300-\u036f\u0483-\u1fff\u20d0-\u20ff\u2c00-\uabff\ud7b0-\U0010ffff]")


@lru_cache(maxsize=1)
def _word_pattern() -> re.Pattern[str]:
    """Return the pattern of a word: letters, digits and their marks, such as Hindi vowels, or one character."""
    spaceless = rf"{_SPACELESS}\U00020000-\U0003ffff"
    letters = rf"[^\W_{spaceless}]+"
    candidates = map(chr, (*range(0x300, 0x1F000), *range(0xE0100, 0xE01F0)))
    all_marks = (character for character in candidates if unicodedata.category(character).startswith("M"))
    marks = "".join(mark for mark in all_marks if not re.match(f"[{spaceless}]", mark))
    return re.compile(rf"[{spaceless}]|{letters}(?:[{marks}]+(?:{letters})?)*")


class WordHashes(dict[Any, int]):
    """Cache of the 64-bit hashes of words, which are bytes or text."""

    limit = 1 << 18

    def __missing__(self, word: Any) -> int:
        data = word if isinstance(word, bytes) else word.encode("utf-8", "surrogatepass")
        value = int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")
        if len(self) >= self.limit:
            self.clear()  # bounds memory; frequent words return soon
        self[word] = value
        return value


class Grams:
    """Computes the hashes of the n-grams of documents."""

    def __init__(self, words: int = WORDS) -> None:
        if words < 1:
            raise UsageError(f"n-grams of {words} words", expected="at least 1")
        self.words = words
        self._hashes = WordHashes()

    def of(self, text: str) -> Hashes:
        """Return the n-grams of one document in order: (words − n + 1,) uint64, empty if it has fewer words."""
        return np.concatenate([np.empty(0, np.uint64), *(hashes for _, hashes in self.of_many([text]))])

    def of_many(self, texts: Iterable[str]) -> Iterator[tuple[int, Hashes]]:
        """Yield (number of the document, n-grams); a long document comes in several parts."""
        parts: list[tuple[int, list[Any]]] = []
        held = 0
        for number, text in enumerate(texts):
            before: list[Any] = []
            for piece in cut_text(text, _PIECE, _SPACE):
                words = before + split_words(piece)
                parts.append((number, words))
                held += len(words)
                before = words[max(0, len(words) - self.words + 1) :]
                if held >= _TOGETHER:
                    yield from self._hashed(parts, held)
                    parts, held = [], 0
        yield from self._hashed(parts, held)

    def _hashed(self, parts: Sequence[tuple[int, list[Any]]], count: int) -> Iterator[tuple[int, Hashes]]:
        words = chain.from_iterable(listed for _, listed in parts)
        values = np.fromiter(map(self._hashes.__getitem__, words), dtype=np.uint64, count=count)
        grams = np.zeros(max(0, count - self.words + 1), dtype=np.uint64)
        for offset in range(self.words):
            grams *= _MULTIPLIER
            grams += values[offset : offset + len(grams)]
        # The low bits of the sums depend only on the low bits of the words: mix.
        grams ^= grams >> np.uint64(29)
        grams *= np.uint64(0xBF58476D1CE4E5B9)
        grams ^= grams >> np.uint64(32)
        start = 0
        for number, listed in parts:
            yield number, grams[start : max(start, start + len(listed) - self.words + 1)]
            start += len(listed)


def split_words(text: str) -> list[Any]:
    """Return lower-cased words of letters and digits: bytes for ASCII words, which is faster, else text."""
    if text.isascii():
        return text.encode().translate(_ASCII_WORDS).split()
    words: list[Any] = []
    for line in text.split("\n"):
        if line.isascii():
            words += line.encode().translate(_ASCII_WORDS).split()
        else:
            line = compose(line).lower()
            matched = (_word_pattern() if _SPECIAL.search(line) else _PLAIN_WORD).findall(line)
            words += [word.encode() if word.isascii() else word for word in matched]
    return words


class GramIndex:
    """The distinct n-grams of texts; tells which n-grams of other texts are among them.

    Exact, unless two n-grams have the same 64-bit hash. A table of the first bits of the hashes rejects nearly all
    others with one memory access each. It takes up to 32 bytes per n-gram, the hashes 8.
    """

    def __init__(self, hashes: Iterable[Hashes]) -> None:
        self.hashes = np.unique(np.concatenate([np.empty(0, np.uint64), *hashes]))
        bits = min(32, max(1, len(self.hashes)).bit_length() + 4)
        self._shift = np.uint64(64 - bits)
        self._possible = np.zeros(1 << bits, np.bool_)
        self._possible[self.hashes >> self._shift] = True

    @property
    def memory(self) -> int:
        """Size in bytes."""
        return self.hashes.nbytes + self._possible.nbytes

    def places(self, hashes: Hashes) -> NDArray[np.int64]:
        """Return the positions in the index of those n-grams that it has, in order, with repetitions."""
        candidates = hashes[self._possible[hashes >> self._shift]]
        places = np.minimum(np.searchsorted(self.hashes, candidates), max(0, len(self.hashes) - 1))
        return places[self.hashes[places] == candidates] if len(candidates) else places


class TrainingGrams:
    """The n-grams that test texts have in common with a training text; `count` is the number of its n-grams."""

    def __init__(self, train: Iterable[str], tests: Iterable[str], words: int = WORDS) -> None:
        """Both are texts of documents, read once; those of the tests are read first."""
        self.grams = Grams(words)
        self.index = GramIndex(hashes for _, hashes in self.grams.of_many(tests))
        self._shared = np.zeros(len(self.index.hashes), np.bool_)
        self.count = 0
        for _, hashes in self.grams.of_many(train):
            self._shared[self.index.places(hashes)] = True
            self.count += len(hashes)

    def shares(self, texts: Iterable[str]) -> list[tuple[int, int]]:
        """Return for each test text the number of its n-grams in the training text, and of all its n-grams."""
        shares: list[tuple[int, int]] = []
        for number, hashes in self.grams.of_many(texts):
            while len(shares) <= number:
                shares.append((0, 0))
            shared, count = shares[number]
            places = self.index.places(hashes)
            shares[number] = (shared + int(np.count_nonzero(self._shared[places])), count + len(hashes))
        return shares

    def percent(self, texts: Iterable[str]) -> tuple[float, int]:
        """Return the percentage of the n-grams of test texts that are in the training text, and their number."""
        return _percent(self.shares(texts))


def measure_overlap(
    train: Path,
    tests: Sequence[Path],
    own: Sequence[Path] = (),
    *,
    words: int = WORDS,
    progress: Progress = SILENT,
) -> dict[str, Any]:
    """Compute GPT-2's table 6: the overlap of `tests` with `train` and with their own training parts.

    Returns the number of training n-grams, the index's memory in bytes, and rows {name, documents, grams, train,
    own}: percentages of a test's n-grams that are in the training corpus and in the set's own training part (None
    without one). Raises UsageError if `own` is given for only some tests, DataError for a text without n-grams.
    """
    if own and len(own) != len(tests):
        raise UsageError(
            f"{len(own)} own training parts for {len(tests)} test texts", expected="one each, in the same order"
        )
    progress.start("overlap", len(tests) + 1, "texts")
    indexed = (texts_of(test, Tally()) for test in tests)  # what it leaves out is counted when it is measured
    training, left_out = training_grams(train, chain.from_iterable(indexed), words, progress), Tally()
    progress.advance(1)
    rows = []
    for number, test in enumerate(tests):
        shares = training.shares(texts_of(test, left_out))
        percent, grams = _percent(shares)
        if not grams:
            raise _too_short(test, words, "a text to compare")
        rows.append({"name": test.name, "documents": len(shares), "grams": grams, "train": percent, "own": None})
        if own:
            its = training_grams(own[number], texts_of(test, Tally()), words, progress)
            rows[-1]["own"] = its.percent(texts_of(test, Tally()))[0]
        progress.advance(number + 2)
    _note(left_out, progress)
    progress.finish(f"{training.count:,} training n-grams")
    return {
        "words": words,
        "train": str(train),
        "train_grams": training.count,
        "index_bytes": training.index.memory,
        "rows": rows,
    }


def training_grams(
    train: Path, tests: Iterable[str], words: int = WORDS, progress: Progress = SILENT
) -> TrainingGrams:
    """Return what test texts share with a corpus folder or a file; raise DataError if that has no n-gram.

    A broken row of a file is left out and noted.
    """
    left_out = Tally()
    training = TrainingGrams(texts_of(train, left_out), tests, words)
    _note(left_out, progress)
    if not training.count:
        raise _too_short(train, words, "a text to compare with")
    return training


def _percent(shares: Sequence[tuple[int, int]]) -> tuple[float, int]:
    total = sum(count for _, count in shares)
    return 100 * sum(shared for shared, _ in shares) / max(1, total), total


def _too_short(path: Path, words: int, expected: str) -> DataError:
    return DataError(f"{path} has fewer than {words} words in every document", expected=expected)


def _note(left_out: Tally, progress: Progress) -> None:
    for kind, entry in left_out.items():
        progress.note(f"left out: {kind}: {entry['count']:,} (first: {entry['examples'][0]})")


def texts_of(path: Path, left_out: Tally | None = None) -> Iterator[str]:
    """Stream the texts of a corpus folder, of a file of text, or of a table's column `text`.

    left_out: counts the broken rows; without it the first one raises DataError.
    """
    if path.is_dir():
        return (document.text for document in read_documents(path))
    return (document.text for document in read_text_file(path, path.name, left_out=left_out))
