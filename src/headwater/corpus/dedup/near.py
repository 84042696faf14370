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

Each document has one row of BANDS 64-bit keys on disk, of which one band at a time is in memory.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array, csgraph

from headwater.corpus.dedup.keys import read_column, scramble
from headwater.corpus.dedup.overlap import Hashes as Keys
from headwater.corpus.dedup.overlap import WordHashes, split_words
from headwater.errors import ResourceError
from headwater.storage import save_array

WORDS = 5
BANDS, ROWS = 16, 7
KEY_ROW = np.dtype(("<u8", BANDS))
SIMILARITY = 0.8
MOST_DOCUMENTS = 1 << 32
_SHINGLES, _LENGTHS = "shingles.bin", "lengths.npy"
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


def candidate_pairs(signatures: Sequence[Path], gone: npt.NDArray[np.bool_]) -> Keys:
    """Return the pairs of documents that share a key in a band, sorted, each once.

    A pair is one number with the smaller document in its upper half. `signatures` are files with a KEY_ROW a
    document; documents are numbered through all of them. Skip documents that are `gone`, (documents,). Each
    document of a group with one key is paired with the first and with the previous one. Raises ResourceError for
    more documents than half a number can count.
    """
    if len(gone) > MOST_DOCUMENTS:
        raise ResourceError(
            f"near duplicates are searched among {len(gone):,} documents",
            expected=f"at most {MOST_DOCUMENTS:,}, since they are numbered in 32 bits",
            repair="Build several corpora of fewer documents",
        )
    pairs = np.empty(0, np.uint64)
    for band in range(BANDS):
        keys = read_column(signatures, KEY_ROW, band)
        numbers = np.flatnonzero((keys != 0) & ~gone).astype(np.uint32)  # 0: of a text without words
        pairs = np.union1d(pairs, _pairs_of_equal_keys(keys[numbers], numbers))
    return pairs


def split_pairs(pairs: Keys) -> tuple[Keys, Keys]:
    """Return the smaller and the larger documents of pairs."""
    return pairs >> np.uint64(32), pairs & np.uint64(0xFFFFFFFF)


def choose_removed(
    pairs: Keys, wanted: Keys, sets: ShingleFiles, similarity: float
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the documents to remove, ascending, and for each the earlier, similar one that is kept.

    `wanted`: the documents of `pairs`, ascending. `sets`: their shingles.
    """
    firsts, seconds = (np.searchsorted(wanted, ends).astype(np.uint32) for ends in split_pairs(pairs))
    comparisons = (jaccard(sets[a], sets[b]) >= similarity for a, b in zip(firsts, seconds, strict=True))
    similar = np.fromiter(comparisons, bool, len(pairs))
    edges = (firsts[similar], seconds[similar])
    graph = coo_array((np.ones(len(edges[0]), np.int8), edges), shape=(len(wanted), len(wanted)))
    roots = csgraph.connected_components(graph, directed=False)[1] if len(edges[0]) else np.empty(0, np.int64)
    del firsts, seconds, edges, graph
    removed, originals = array("q"), array("q")
    for group in _groups(roots):
        if len(group) == 2:  # a pair, compared before
            removed.append(int(wanted[group[1]]))
            originals.append(int(wanted[group[0]]))
            continue
        remaining: list[int] = []
        for member in group:
            shingles = sets[member]
            original = next((s for s in remaining[:_COMPARED] if jaccard(sets[s], shingles) >= similarity), None)
            if original is None:
                remaining.append(member)
            else:
                removed.append(int(wanted[member]))
                originals.append(int(wanted[original]))
    order = np.argsort(removed)
    return np.array(removed, np.int64)[order], np.array(originals, np.int64)[order]


def jaccard(first: Keys, second: Keys) -> float:
    """Return the Jaccard similarity of two sorted arrays without repetitions."""
    both = np.concatenate((first, second))
    both.sort()
    common = int(np.count_nonzero(both[1:] == both[:-1]))
    union = len(first) + len(second) - common
    return common / union if union else 0.0


def _groups(roots: npt.NDArray[np.int64]) -> Iterator[list[int]]:
    """Yield the documents of each root in ascending order, if they are more than one."""
    order = np.argsort(roots, kind="stable").astype(np.uint32)
    begins = np.flatnonzero(np.concatenate([[True], roots[order[1:]] != roots[order[:-1]], [True]]))
    for run in np.flatnonzero(np.diff(begins) > 1):
        yield order[begins[run] : begins[run + 1]].tolist()


def write_shingles(texts: Iterable[str], folder: Path) -> None:
    """Write the shingles of each text and their number to two files of a folder."""
    maker, lengths = MinHash(), array("I")
    with (folder / _SHINGLES).open("wb") as handle:
        for text in texts:
            shingles = maker.shingles(text)
            handle.write(shingles.tobytes())
            lengths.append(len(shingles))
    save_array(folder / _LENGTHS, np.array(lengths, np.uint32))


class ShingleFiles:
    """The shingles that `write_shingles` wrote to several folders, by the number of a text among all."""

    def __init__(self, folders: Sequence[Path]) -> None:
        lengths = [np.load(folder / _LENGTHS) for folder in folders]
        self._files = [folder / _SHINGLES for folder in folders]
        self._file = np.repeat(np.arange(len(folders), dtype=np.uint32), [*map(len, lengths)])
        self._length = np.concatenate(lengths)
        self._offset = np.concatenate([np.cumsum(part, dtype=np.int64) - part for part in lengths])

    def __getitem__(self, index: int) -> Keys:
        # Opened each time: there is a file for each task, and processes are usually limited to 1,024 open files.
        file, offset = self._files[self._file[index]], 8 * int(self._offset[index])
        return np.fromfile(file, np.uint64, int(self._length[index]), offset=offset)


def _pairs_of_equal_keys(keys: Keys, numbers: npt.NDArray[np.uint32]) -> Keys:
    order = np.argsort(keys, kind="stable")  # numbers ascend within a key
    keys, numbers = keys[order], numbers[order]
    same = np.flatnonzero(keys[1:] == keys[:-1]) + 1
    begins = np.diff(same, prepend=-1) > 1  # a group's second document: between groups is the first of the next
    first = (same[begins] - 1)[np.cumsum(begins) - 1]
    earlier = np.concatenate([numbers[same - 1], numbers[first]]).astype(np.uint64)
    return earlier << np.uint64(32) | np.tile(numbers[same], 2)
