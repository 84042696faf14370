"""Near duplicates: documents whose sets of word 5-grams overlap by SIMILARITY or more (Jaccard).

A document goes when an earlier document that stays is like it; so nothing goes by way of a third that is like
both. MinHash with banding (Broder 1997; Leskovec, Rajaraman and Ullman, "Mining of Massive Datasets", section 3.4)
proposes pairs; what it proposes is then decided on the 5-grams themselves, so that banding may be generous and
nothing goes by chance. GPT-2 (section 2.1) speaks of de-duplication without saying how.

| key | default | source |
|---|---|---|
| WORDS | 5 | FineWeb (Penedo et al. 2024, section 3.4): word 5-grams |
| BANDS x ROWS | 16 x 7 | FineWeb's 112 hashes; 14 x 8 there finds 92 % of pairs at 0.8, 16 x 7 finds 98 % |
| SIMILARITY | 0.8 | ours |

Per document one row of BANDS keys of 64 bits is kept on disk. Keys are compared band by band in partitions of
PARTITION_KEYS, so that memory depends on that figure and on the number of duplicates alone.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

Keys = npt.NDArray[np.uint64]

WORDS = 5
BANDS, ROWS = 16, 7
SIMILARITY = 0.8
PARTITION_KEYS = 4_000_000
_SEED = 2019
_CHUNK = 2048  # 5-grams hashed at a time: the matrix of hashes stays in cache
_COMPARED = 100  # documents that stay, of one cluster, with which a further one is compared
_CACHE_WORDS = 1_000_000
# Letters and digits in runs; scripts that set no spaces give their characters one by one.
_WORD = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]|[^\W_]+")
_POWERS = np.array([pow(0x9E3779B97F4A7C15, k, 1 << 64) for k in range(WORDS)], dtype=np.uint64)


class MinHash:
    """The band keys of texts; one object is used for many, for its memory of words."""

    def __init__(self, bands: int = BANDS, rows: int = ROWS) -> None:
        self.bands, self.rows = bands, rows
        generator = np.random.default_rng(_SEED)
        count = bands * rows
        # Multiply-add-shift (Dietzfelbinger et al. 1997): the upper half of a*x + b with a odd.
        self._factors = generator.integers(0, 2**63, (count, 1), dtype=np.uint64) * np.uint64(2) + np.uint64(1)
        self._offsets = generator.integers(0, 2**63, (count, 1), dtype=np.uint64)
        self._mixers = generator.integers(0, 2**63, (1, rows), dtype=np.uint64) * np.uint64(2) + np.uint64(1)
        self._words: dict[str, int] = {}

    def keys(self, text: str) -> Keys:
        """Band keys, (bands,); all 0 for a text without words, which is like no other."""
        shingles = self.shingles(text)
        if not len(shingles):
            return np.zeros(self.bands, np.uint64)
        lowest = np.full(self.bands * self.rows, np.iinfo(np.uint64).max, np.uint64)
        for start in range(0, len(shingles), _CHUNK):
            hashes = shingles[start : start + _CHUNK] * self._factors + self._offsets
            np.minimum(lowest, hashes.min(axis=1), out=lowest)
        rows = (lowest >> np.uint64(32)).reshape(self.bands, self.rows)
        keys: Keys = _scramble((rows * self._mixers).sum(axis=1, dtype=np.uint64))
        keys[keys == 0] = 1
        return keys

    def shingles(self, text: str) -> Keys:
        """Hashes of the distinct word 5-grams, sorted; of the words together where there are fewer than five."""
        known = self._words
        hashes = []
        for word in _WORD.findall(text.lower()):
            value = known.get(word)
            if value is None:
                if len(known) >= _CACHE_WORDS:
                    known.clear()
                value = known[word] = _word_hash(word)
            hashes.append(value)
        words = np.array(hashes, dtype=np.uint64)
        if len(words) < WORDS:
            return (
                np.unique(_scramble((words * _POWERS[: len(words)]).sum(keepdims=True))) if len(words) else words
            )
        count = len(words) - WORDS + 1
        grams = np.zeros(count, np.uint64)
        for place in range(WORDS):
            grams += words[place : place + count] * _POWERS[place]
        return np.unique(_scramble(grams))


def candidate_pairs(
    signatures: Sequence[Path], gone: npt.NDArray[np.bool_] | None = None
) -> Iterator[npt.NDArray[np.int64]]:
    """Pairs that share a band key, (pairs, 2) arrays of document numbers, the smaller first, band by band.

    `signatures` are .npy files of (documents, bands) keys; documents are numbered through all of them in order.
    Documents that are `gone` already, (documents,) bool, take no part. Of a group with one key each document is
    paired with the first and with the one before it.
    """
    lengths = [len(np.load(path, mmap_mode="r", allow_pickle=False)) for path in signatures]
    total = sum(lengths)
    if not total:
        return
    starts = np.cumsum([0, *lengths]).tolist()
    partitions = -(-total // PARTITION_KEYS)
    edges = [int(2**64 * part / partitions) for part in range(partitions + 1)]
    bands = np.load(signatures[0], mmap_mode="r", allow_pickle=False).shape[1]
    for band in range(bands):
        for low, high in pairwise(edges):
            chosen = [
                _in_range(path, band, start, low, high)
                for path, start in zip(signatures, starts[:-1], strict=True)
            ]
            keys = np.concatenate([keys for keys, _ in chosen])
            numbers = np.concatenate([numbers for _, numbers in chosen])
            if gone is not None:
                keys, numbers = keys[~gone[numbers]], numbers[~gone[numbers]]
            pairs = _pairs_of_equal_keys(keys, numbers)
            if len(pairs):
                yield pairs


def find_duplicates(
    signatures: Sequence[Path],
    read_texts: Callable[[Sequence[int]], Iterable[tuple[int, str]]],
    scratch: Path,
    similarity: float = SIMILARITY,
    gone: npt.NDArray[np.bool_] | None = None,
) -> dict[int, int]:
    """Number of each document that goes -> number of the earlier one that stays and is like it.

    `read_texts` gives (number, text) of the documents asked for, in ascending order; `scratch` is a file to use;
    documents that are `gone` already, (documents,) bool, take no part.
    """
    # A pair as one number, the smaller document above: half the memory of two, and one sort finds repetitions.
    found = np.empty(0, np.uint64)
    for pairs in candidate_pairs(signatures, gone):
        coded = pairs[:, 0].astype(np.uint64) << np.uint64(32) | pairs[:, 1].astype(np.uint64)
        found = np.union1d(found, coded)
    if not len(found):
        return {}
    firsts, seconds = found >> np.uint64(32), found & np.uint64(0xFFFFFFFF)
    wanted = np.union1d(firsts, seconds)
    sets = _ShingleFile(scratch, len(wanted))
    maker = MinHash()
    for _, text in read_texts(wanted.tolist()):
        sets.append(maker.shingles(text))
    sets.finish()
    similar = (
        (a, b)
        for a, b in zip(np.searchsorted(wanted, firsts), np.searchsorted(wanted, seconds), strict=True)
        if jaccard(sets[a], sets[b]) >= similarity
    )
    groups: dict[int, list[int]] = {}
    for place, first in clusters((int(a), int(b)) for a, b in similar).items():
        groups.setdefault(first, [first]).append(place)
    duplicates: dict[int, int] = {}
    for group in groups.values():
        stays: list[int] = []
        for place in group:
            like = next((s for s in stays[:_COMPARED] if jaccard(sets[s], sets[place]) >= similarity), None)
            if like is None:
                stays.append(place)
            else:
                duplicates[int(wanted[place])] = int(wanted[like])
    sets.remove()
    return duplicates


def jaccard(one: Keys, other: Keys) -> float:
    """The share of distinct elements that two sorted arrays without repetitions have in common."""
    common = len(np.intersect1d(one, other, assume_unique=True))
    union = len(one) + len(other) - common
    return common / union if union else 0.0


def clusters(pairs: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Each document that is connected to a smaller one -> the smallest it is connected to."""
    parent: dict[int, int] = {}

    def root(number: int) -> int:
        while (above := parent.get(number, number)) != number:
            parent[number] = parent.get(above, above)
            number = above
        return number

    for first, second in pairs:
        a, b = sorted((root(first), root(second)))
        parent[b] = a
    return {number: root(number) for number in sorted(parent) if root(number) != number}


class _ShingleFile:
    """Arrays one after the other in a file, read back by number."""

    def __init__(self, path: Path, count: int) -> None:
        self._path = path
        self._handle: IO[bytes] = path.open("wb")
        self._ends = np.zeros(count + 1, np.int64)
        self._count = 0

    def append(self, shingles: Keys) -> None:
        self._handle.write(shingles.tobytes())
        self._count += 1
        self._ends[self._count] = self._ends[self._count - 1] + len(shingles)

    def finish(self) -> None:
        self._handle.close()
        self._handle = self._path.open("rb")

    def remove(self) -> None:
        self._handle.close()
        self._path.unlink()

    def __getitem__(self, number: int) -> Keys:
        begin, end = self._ends[number], self._ends[number + 1]
        self._handle.seek(int(begin) * 8)
        return np.frombuffer(self._handle.read(int(end - begin) * 8), np.uint64)


def _in_range(path: Path, band: int, start: int, low: int, high: int) -> tuple[Keys, npt.NDArray[np.int64]]:
    # Opened anew each time: pages of a mapped file count as memory until it is closed.
    keys = np.array(np.load(path, mmap_mode="r", allow_pickle=False)[:, band])
    chosen = (keys >= np.uint64(max(low, 1))) & (keys <= np.uint64(high - 1))
    return keys[chosen], np.flatnonzero(chosen) + start


def _pairs_of_equal_keys(keys: Keys, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    order = np.argsort(keys, kind="stable")  # numbers ascend within a key
    keys, numbers = keys[order], numbers[order]
    same = np.flatnonzero(keys[1:] == keys[:-1]) + 1
    if not len(same):
        return np.empty((0, 2), np.int64)
    begins = np.concatenate([[True], keys[1:] != keys[:-1]])
    first = np.maximum.accumulate(np.where(begins, np.arange(len(keys)), 0))
    chain = np.stack([numbers[same - 1], numbers[same]], axis=1)
    star = np.stack([numbers[first[same]], numbers[same]], axis=1)
    return np.unique(np.concatenate([chain, star]), axis=0)


def _word_hash(word: str) -> int:
    digest = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def _scramble(values: Keys) -> Keys:
    """The finaliser of splitmix64 (Steele et al. 2014): every bit of a value reaches every bit of its hash."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
