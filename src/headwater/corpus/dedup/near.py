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

Per document one row of BANDS keys of 64 bits is kept on disk. Keys are compared band by band in partitions
(`arrays.ranges`), so that memory hardly depends on the number of documents; a duplicate takes some 120 bytes.
"""

from __future__ import annotations

import hashlib
import re
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from headwater.storage.arrays import ArrayFile, in_range, ranges, row_counts

Keys = npt.NDArray[np.uint64]

WORDS = 5
BANDS, ROWS = 16, 7
SIMILARITY = 0.8
_SEED = 2019
_CHUNK = 2048  # 5-grams hashed at a time: the matrix of hashes stays in cache
_COMPARED = 100  # documents that stay, of one cluster, with which a further one is compared
_CACHE_WORDS = 1_000_000
_OPEN_FILES = 128  # of shingles, one of which each task leaves; a usual limit is 1,024
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
) -> Iterator[npt.NDArray[np.uint32]]:
    """Pairs that share a band key, (pairs, 2) arrays of document numbers, the smaller first, band by band.

    `signatures` are .npy files of (documents, bands) keys; documents are numbered through all of them in order.
    Documents that are `gone` already, (documents,) bool, take no part. Of a group with one key each document is
    paired with the first and with the one before it.
    """
    lengths = row_counts(list(signatures))
    if not sum(lengths):
        return
    starts = np.cumsum([0, *lengths]).tolist()
    bands = np.load(signatures[0], mmap_mode="r", allow_pickle=False).shape[1]
    for band in range(bands):
        for low, high in ranges(sum(lengths)):
            chosen = [
                in_range(path, band, start, max(low, 1), high)
                for path, start in zip(signatures, starts[:-1], strict=True)
            ]
            keys = np.concatenate([keys for keys, _ in chosen])
            numbers = np.concatenate([numbers for _, numbers in chosen])
            del chosen
            if gone is not None:
                there = ~gone[numbers]
                keys, numbers = keys[there], numbers[there]
            pairs = _pairs_of_equal_keys(keys, numbers)
            if len(pairs):
                yield pairs


def find_duplicates(
    signatures: Sequence[Path],
    shingles: Callable[[npt.NDArray[np.int64]], ShingleFiles],
    similarity: float = SIMILARITY,
    gone: npt.NDArray[np.bool_] | None = None,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The documents that go, ascending, and for each the earlier one that stays and is like it.

    `shingles` gives those of the documents asked for, whose numbers ascend. Documents that are `gone` already,
    (documents,) bool, take no part.
    """
    # A pair as one number, the smaller document above: half the memory of two, and one sort finds repetitions.
    found = np.empty(0, np.uint64)
    for pairs in candidate_pairs(signatures, gone):
        coded = pairs[:, 0].astype(np.uint64) << np.uint64(32) | pairs[:, 1].astype(np.uint64)
        found = np.union1d(found, coded)
    none = np.empty(0, np.int64)
    if not len(found):
        return none, none
    wanted = np.union1d(found >> np.uint64(32), found & np.uint64(0xFFFFFFFF))
    sets = shingles(wanted.astype(np.int64))
    similar = np.zeros(len(found), bool)
    firsts = np.searchsorted(wanted, found >> np.uint64(32)).astype(np.uint32)
    seconds = np.searchsorted(wanted, found & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    del found
    for pair in range(len(similar)):
        similar[pair] = jaccard(sets[int(firsts[pair])], sets[int(seconds[pair])]) >= similarity
    roots = clusters(len(wanted), firsts[similar], seconds[similar])
    del firsts, seconds, similar
    goes, likes = array("q"), array("q")
    for group in _groups(roots):
        if len(group) == 2:  # a pair, compared above
            goes.append(int(wanted[group[1]]))
            likes.append(int(wanted[group[0]]))
            continue
        stays: list[int] = []
        for place in group:
            like = next((s for s in stays[:_COMPARED] if jaccard(sets[s], sets[place]) >= similarity), None)
            if like is None:
                stays.append(place)
            else:
                goes.append(int(wanted[place]))
                likes.append(int(wanted[like]))
    sets.remove()
    if not goes:
        return none, none
    order = np.argsort(np.frombuffer(goes, np.int64))
    return np.frombuffer(goes, np.int64)[order], np.frombuffer(likes, np.int64)[order]


def jaccard(one: Keys, other: Keys) -> float:
    """The share of distinct elements that two sorted arrays without repetitions have in common."""
    both = np.concatenate((one, other))
    both.sort()
    common = int(np.count_nonzero(both[1:] == both[:-1]))
    union = len(one) + len(other) - common
    return common / union if union else 0.0


def clusters(count: int, firsts: npt.NDArray[Any], seconds: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """For each of `count` documents the smallest that it is connected to by pairs, itself where by none."""
    parent = array("q", range(count))

    def root(number: int) -> int:
        while (above := parent[number]) != number:
            parent[number] = parent[above]
            number = above
        return number

    for first, second in zip(firsts, seconds, strict=True):
        a, b = sorted((root(first), root(second)))
        parent[b] = a
    for number in range(count):
        parent[number] = root(number)
    return np.frombuffer(parent, np.int64) if count else np.empty(0, np.int64)


def _groups(roots: npt.NDArray[np.int64]) -> Iterator[list[int]]:
    """The documents with one root, ascending, where they are more than one."""
    order = np.argsort(roots, kind="stable").astype(np.uint32)
    begins = np.flatnonzero(np.concatenate([[True], roots[order[1:]] != roots[order[:-1]], [True]]))
    for place in np.flatnonzero(np.diff(begins) > 1):
        yield order[begins[place] : begins[place + 1]].tolist()


def write_shingles(texts: Iterable[str], path: Path) -> None:
    """The shingles of each text in turn in a file, and where each ends in another beside it."""
    maker = MinHash()
    end = 0
    with path.open("wb") as handle, ArrayFile(_ends_of(path), 1, "<i8") as ends:
        for text in texts:
            shingles = maker.shingles(text)
            handle.write(shingles.tobytes())
            end += len(shingles)
            ends.append(end.to_bytes(8, "little"))


class ShingleFiles:
    """What `write_shingles` wrote into files that follow one another, by the place of a text among all."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._open: OrderedDict[int, IO[bytes]] = OrderedDict()
        ends = [np.load(_ends_of(path), allow_pickle=False)[:, 0] for path in paths]
        self._starts = np.cumsum([0, *map(len, ends)]).tolist()
        self._ends = [np.concatenate([[0], own]) for own in ends]

    def __getitem__(self, place: int) -> Keys:
        file = bisect_right(self._starts, place) - 1
        row = place - self._starts[file]
        begin, end = self._ends[file][row : row + 2].tolist()
        handle = self._opened(file)
        handle.seek(begin * 8)
        return np.frombuffer(handle.read((end - begin) * 8), np.uint64)

    def _opened(self, file: int) -> IO[bytes]:
        """One of the files; those used last stay open, for a process may not have thousands."""
        handle = self._open.pop(file, None) or self._paths[file].open("rb")
        self._open[file] = handle
        if len(self._open) > _OPEN_FILES:
            self._open.popitem(last=False)[1].close()
        return handle

    def remove(self) -> None:
        """Remove the files."""
        while self._open:
            self._open.popitem()[1].close()
        for path in self._paths:
            path.unlink()
            _ends_of(path).unlink()


def _ends_of(path: Path) -> Path:
    return path.with_suffix(".ends.npy")


def _pairs_of_equal_keys(keys: Keys, numbers: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    order = np.argsort(keys, kind="stable")  # numbers ascend within a key
    keys, numbers = keys[order], numbers[order]
    same = np.flatnonzero(keys[1:] == keys[:-1]) + 1
    if not len(same):
        return np.empty((0, 2), np.uint32)
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
