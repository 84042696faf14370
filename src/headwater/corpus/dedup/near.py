"""Near duplicates: documents whose sets of word 5-grams have a Jaccard similarity of SIMILARITY or more.

A document is removed if it is similar to an earlier document that is kept; similarity is not taken transitively.
MinHash with banding (Broder 1997; Leskovec, Rajaraman and Ullman, "Mining of Massive Datasets", section 3.4)
proposes pairs, which are then compared by the 5-grams themselves. So banding can have a high recall, and no
document is removed by chance. GPT-2 (section 2.1) mentions de-duplication without a method.
`overlap` defines what a word is.

| key | default | source |
|---|---|---|
| WORDS | 5 | FineWeb (Penedo et al. 2024, section 3.4): word 5-grams |
| BANDS x ROWS | 16 x 7 | FineWeb's 112 hashes; 14 x 8 there finds 92 % of pairs at 0.8, 16 x 7 finds 98 % |
| SIMILARITY | 0.8 | ours |

Each document has one row of BANDS 64-bit keys on disk. Keys are compared by ranges (`keys.rows_in`), so that
memory hardly depends on the number of documents; a duplicate takes about 120 bytes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array, csgraph

from headwater.corpus.dedup.keys import Numbers, first_rows, key_ranges, rows_in, scramble
from headwater.corpus.dedup.overlap import Hashes as Keys
from headwater.corpus.dedup.overlap import WordHashes, split_words

WORDS = 5
BANDS, ROWS = 16, 7
KEY_ROW = np.dtype(("<u8", BANDS))
SIMILARITY = 0.8
_SEED = 2019
_CHUNK = 2048  # 5-grams hashed at a time, so that the matrix of hashes fits into cache
_COMPARED = 100  # kept documents of one cluster with which a further one is compared
_POWERS = np.array([pow(0x9E3779B97F4A7C15, k, 1 << 64) for k in range(WORDS)], dtype=np.uint64)


class MinHash:
    """Computes the band keys of texts; caches the hashes of words, so use one object for many texts."""

    def __init__(self) -> None:
        generator = np.random.default_rng(_SEED)
        count = BANDS * ROWS
        # Multiply-add-shift (Dietzfelbinger et al. 1997): the upper half of a*x + b with a odd.
        self._factors = generator.integers(0, 2**63, (count, 1), dtype=np.uint64) * np.uint64(2) + np.uint64(1)
        self._offsets = generator.integers(0, 2**63, (count, 1), dtype=np.uint64)
        self._mixers = generator.integers(0, 2**63, (1, ROWS), dtype=np.uint64) * np.uint64(2) + np.uint64(1)
        self._hashes = WordHashes()

    def keys(self, text: str) -> Keys:
        """Return the band keys, (BANDS,); all 0 for a text without words, which has no duplicates."""
        shingles = self.shingles(text)
        if not len(shingles):
            return np.zeros(BANDS, np.uint64)
        lowest = np.full(BANDS * ROWS, np.iinfo(np.uint64).max, np.uint64)
        for start in range(0, len(shingles), _CHUNK):
            hashes = shingles[start : start + _CHUNK] * self._factors + self._offsets
            np.minimum(lowest, hashes.min(axis=1), out=lowest)
        rows = (lowest >> np.uint64(32)).reshape(BANDS, ROWS)
        keys: Keys = scramble((rows * self._mixers).sum(axis=1, dtype=np.uint64))
        keys[keys == 0] = 1
        return keys

    def shingles(self, text: str) -> Keys:
        """Return the sorted hashes of the distinct word 5-grams; one hash of fewer than five words."""
        words = np.array([self._hashes[word] for word in split_words(text)], dtype=np.uint64)
        if len(words) < WORDS:
            return scramble((words * _POWERS[: len(words)]).sum(keepdims=True)) if len(words) else words
        count = len(words) - WORDS + 1
        grams = np.zeros(count, np.uint64)
        for offset in range(WORDS):
            grams += words[offset : offset + count] * _POWERS[offset]
        return np.unique(scramble(grams))


def pairs_in(
    signatures: Sequence[Path],
    starts: Sequence[int],
    low: int,
    high: int,
    gone: npt.NDArray[np.bool_] | None = None,
) -> Keys:
    """Return the pairs of documents that share a key from `low` to `high` in a band, sorted, each once.

    A pair is one number with the smaller document in its upper half. `signatures` are files with a KEY_ROW a
    document; documents are numbered through all of them, from `starts` on. Skip documents that are `gone`,
    (documents,) bool. Each document of a group with one key is paired with the first and with the previous one.
    """
    bands = [(band,) for band in range(BANDS)]
    runs = [np.empty(0, np.uint64)]
    for values, numbers in rows_in(signatures, starts, KEY_ROW, bands, low, high):
        keys = values[:, 0]
        kept = keys != 0  # of a text without words
        if gone is not None:
            kept &= ~gone[numbers]
        runs.append(_pairs_of_equal_keys(keys[kept], numbers[kept]))
    return np.unique(np.concatenate(runs))


def split_pairs(pairs: Keys) -> tuple[Keys, Keys]:
    """Return the smaller and the larger documents of pairs."""
    return pairs >> np.uint64(32), pairs & np.uint64(0xFFFFFFFF)


def compare(pairs: Keys, wanted: Keys, sets: ShingleFiles, similarity: float) -> npt.NDArray[np.bool_]:
    """Return which pairs are similar. `sets` has the shingles of the documents `wanted`, which are ascending."""
    firsts, seconds = (np.searchsorted(wanted, ends).tolist() for ends in split_pairs(pairs))
    found = (jaccard(sets[a], sets[b]) >= similarity for a, b in zip(firsts, seconds, strict=True))
    return np.fromiter(found, bool, len(pairs))


def choose_removed(
    pairs: Keys, wanted: Keys, sets: ShingleFiles, similarity: float
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the documents to remove, ascending, and for each the earlier, similar one that is kept.

    `pairs` are similar ones; others as in `compare`.
    """
    firsts, seconds = (np.searchsorted(wanted, ends).astype(np.uint32) for ends in split_pairs(pairs))
    graph = coo_array((np.ones(len(pairs), np.int8), (firsts, seconds)), shape=(len(wanted), len(wanted)))
    roots = csgraph.connected_components(graph, directed=False)[1] if len(pairs) else np.empty(0, np.int64)
    del firsts, seconds, graph
    removed, originals = array("q"), array("q")
    for group in _groups(roots):
        if len(group) == 2:  # a pair, compared before
            removed.append(int(wanted[group[1]]))
            originals.append(int(wanted[group[0]]))
            continue
        kept: list[int] = []
        for member in group:
            original = next((s for s in kept[:_COMPARED] if jaccard(sets[s], sets[member]) >= similarity), None)
            if original is None:
                kept.append(member)
            else:
                removed.append(int(wanted[member]))
                originals.append(int(wanted[original]))
    order = np.argsort(removed)
    return np.array(removed, np.int64)[order], np.array(originals, np.int64)[order]


def near_duplicates(
    read: Callable[[], Iterable[str]], folder: Path, similarity: float = SIMILARITY
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the near duplicates among texts, ascending, and for each the earlier text that it nearly equals.

    `read` returns all texts; it is called twice. `folder` is for files that may be larger than memory.
    """
    maker, keys = MinHash(), folder / "keys"
    with keys.open("wb") as handle:
        for text in read():
            handle.write(maker.keys(text).tobytes())
    starts = first_rows([keys], KEY_ROW)
    pairs = merge(pairs_in([keys], starts, low, high) for low, high in key_ranges(starts[-1]))
    wanted = np.union1d(*split_pairs(pairs))
    numbers = set(wanted.tolist())
    write_shingles((text for number, text in enumerate(read()) if number in numbers), folder / "shingles.bin")
    sets = ShingleFiles([folder / "shingles.bin"], [0, len(wanted)])
    return choose_removed(pairs[compare(pairs, wanted, sets, similarity)], wanted, sets, similarity)


def jaccard(one: Keys, other: Keys) -> float:
    """Return the Jaccard similarity of two sorted arrays without repetitions."""
    both = np.concatenate((one, other))
    both.sort()
    common = int(np.count_nonzero(both[1:] == both[:-1]))
    union = len(one) + len(other) - common
    return common / union if union else 0.0


def merge(arrays: Iterable[Keys]) -> Keys:
    """Return the distinct numbers of sorted arrays, sorted; each is merged a logarithmic number of times."""
    runs: list[Keys] = []  # each at least twice as long as the next
    for run in arrays:
        while runs and len(runs[-1]) < 2 * len(run):
            run = np.union1d(runs.pop(), run)
        runs.append(run)
    merged = np.empty(0, np.uint64)
    while runs:
        merged = np.union1d(runs.pop(), merged)
    return merged


def _groups(roots: npt.NDArray[np.int64]) -> Iterator[list[int]]:
    """Yield the documents of each root in ascending order, if they are more than one."""
    order = np.argsort(roots, kind="stable").astype(np.uint32)
    begins = np.flatnonzero(np.concatenate([[True], roots[order[1:]] != roots[order[:-1]], [True]]))
    for run in np.flatnonzero(np.diff(begins) > 1):
        yield order[begins[run] : begins[run + 1]].tolist()


def write_shingles(texts: Iterable[str], path: Path) -> None:
    """Write the shingles of each text to `path`, and the end of each to a second file."""
    maker = MinHash()
    end = 0
    with path.open("wb") as handle, _ends_of(path).open("wb") as ends:
        for text in texts:
            shingles = maker.shingles(text)
            handle.write(shingles.tobytes())
            end += len(shingles)
            ends.write(end.to_bytes(8, "little"))


class ShingleFiles:
    """The shingles that `write_shingles` wrote to several files, by the number of a text among all.

    `starts` has the number of the first text of each file, then that of all texts.
    """

    def __init__(self, paths: Sequence[Path], starts: Sequence[int]) -> None:
        self._paths, self._starts = paths, starts
        self._ends: dict[int, npt.NDArray[np.int64]] = {}  # by file, of those that were read

    def __getitem__(self, index: int) -> Keys:
        file = bisect_right(self._starts, index) - 1
        row = index - self._starts[file]
        if file not in self._ends:
            self._ends[file] = np.concatenate([[0], np.fromfile(_ends_of(self._paths[file]), "<i8")])
        begin, end = self._ends[file][row : row + 2].tolist()
        # Opened each time: there is a file for each task, and processes are usually limited to 1,024 open files.
        return np.fromfile(self._paths[file], np.uint64, end - begin, offset=8 * begin)


def _ends_of(path: Path) -> Path:
    return path.with_suffix(".ends")


def _pairs_of_equal_keys(keys: Keys, numbers: Numbers) -> Keys:
    order = np.argsort(keys, kind="stable")  # numbers ascend within a key
    keys, numbers = keys[order], numbers[order]
    same = np.flatnonzero(keys[1:] == keys[:-1]) + 1
    if not len(same):
        return np.empty(0, np.uint64)
    begins = np.concatenate([[True], keys[1:] != keys[:-1]])
    first = np.maximum.accumulate(np.where(begins, np.arange(len(keys)), 0))
    earlier = np.concatenate([numbers[same - 1], numbers[first[same]]]).astype(np.uint64)
    return earlier << np.uint64(32) | np.tile(numbers[same], 2)
