"""Keys of documents on disk, and exact duplicates: of documents with equal normalised texts, the first is kept.

Normalised: Unicode NFC, case folded, white space as single spaces and stripped, so that copies of a page which
differ in line breaks or capitals are equal. GPT-2 (section 2.1) mentions de-duplication without a method; this
part needs no threshold.

Each task writes the keys of its documents to `.npy` files. Those of all tasks are read by ranges of the key space,
for exact and for near duplicates: each range is a task, whose memory does not grow with the corpus.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headwater.errors import ResourceError

Numbers = npt.NDArray[np.uint32]

PARTITION_ROWS = 500_000
PARTITIONS = 64
MOST_ROWS = 1 << 32
_BLOCK_ROWS = 65_536
# All white space except single spaces; splitting into words would need ten times the text's memory.
_SPACES = re.compile(r"\s{2,}|[^\S ]")
FINGERPRINT_BYTES = 16  # of SHA-256: among 1e9 documents the probability of a collision is below 1e-20


def normalise(text: str) -> str:
    """Return the form of a text in which copies are equal."""
    return _SPACES.sub(" ", unicodedata.normalize("NFC", text).casefold()).strip()


def text_fingerprint(text: str) -> bytes:
    """Return FINGERPRINT_BYTES bytes that are equal for texts whose normalised forms are equal."""
    return hashlib.sha256(normalise(text).encode("utf-8", "surrogatepass")).digest()[:FINGERPRINT_BYTES]


def copies_in(fingerprints: Sequence[Path], starts: Sequence[int], low: int, high: int) -> Numbers:
    """Return the documents that equal an earlier one, of those with a fingerprint from `low` to `high`."""
    [(group, numbers)] = rows_in(fingerprints, starts, [(0, 1)], low, high)
    order = np.lexsort((group[:, 1], group[:, 0]))  # stable: the first of equals comes first
    same = (group[order[1:]] == group[order[:-1]]).all(axis=1)
    return numbers[order[1:][same]]


class ArrayFile:
    """A two-dimensional `.npy` file in column order that is written row by row.

    Use as a context manager: a block that ends without an exception writes the file or raises OSError.
    """

    def __init__(self, path: Path, columns: int, dtype: str) -> None:
        self._path, self._columns, self._dtype = path, columns, np.dtype(dtype)
        self._rows = path.with_suffix(".rows")
        self._handle = self._rows.open("wb")
        self.count = 0

    def append(self, row: bytes) -> None:
        """Add the bytes of one row."""
        self._handle.write(row)
        self.count += 1

    def __enter__(self) -> ArrayFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, *unused: object) -> None:
        if kind is None:
            self._handle.close()
            self._save()
            return
        with suppress(OSError):  # an exception is being raised already
            self._handle.close()

    def _save(self) -> None:
        shape = (self.count, self._columns)
        with self._path.open("wb") as handle:
            described = {"descr": self._dtype.str, "fortran_order": True, "shape": shape}
            np.lib.format.write_array_header_1_0(handle, described)
            for column in range(self._columns):
                with self._rows.open("rb") as rows:
                    while block := rows.read(_BLOCK_ROWS * self._columns * self._dtype.itemsize):
                        values = np.frombuffer(block, self._dtype).reshape(-1, self._columns)[:, column]
                        handle.write(values.tobytes())
        self._rows.unlink()


def key_ranges(rows: int) -> list[tuple[int, int]]:
    """Return ranges (lowest, highest) of the 64-bit keys of so many rows, each with about PARTITION_ROWS of them.

    There are at most PARTITIONS, because each costs one more pass over the files. Raises ResourceError for more
    rows than can be numbered.
    """
    if rows > MOST_ROWS:
        raise ResourceError(
            f"duplicates are searched among {rows:,} documents",
            expected=f"at most {MOST_ROWS:,}, since they are numbered in 32 bits",
            repair="Build several corpora of fewer documents",
        )
    count = min(PARTITIONS, -(-rows // PARTITION_ROWS)) or 1
    bounds = [2**64 * number // count for number in range(count + 1)]
    return [(low, high - 1) for low, high in pairwise(bounds)]


def rows_in(
    paths: Sequence[Path], starts: Sequence[int], groups: Sequence[Sequence[int]], low: int, high: int
) -> list[tuple[npt.NDArray[np.uint64], Numbers]]:
    """Return, for each group of columns, the rows of all files whose key is from `low` to `high`.

    The first column of a group has the keys. Its rows are the values of its columns, (rows, columns), and their
    numbers, (rows,), counted through all files: `starts` has the number of each file's first row.
    """
    values: list[list[npt.NDArray[np.uint64]]] = [[] for _ in groups]
    numbers: list[list[Numbers]] = [[] for _ in groups]
    for path, start in zip(paths, starts, strict=False):
        # Opened for each range: the blocks of a mapped file count as memory until it is closed.
        rows = np.load(path, mmap_mode="r", allow_pickle=False)
        for group, columns in enumerate(groups):
            keys = rows[:, columns[0]]
            chosen = np.flatnonzero((keys >= np.uint64(low)) & (keys <= np.uint64(high)))
            chosen_values = np.stack([rows[:, column][chosen] for column in columns], axis=1)
            values[group].append(chosen_values.astype(np.uint64))
            numbers[group].append((chosen + start).astype(np.uint32))
    return [(np.concatenate(v), np.concatenate(n)) for v, n in zip(values, numbers, strict=True)]


def first_rows(paths: Sequence[Path]) -> list[int]:
    """Return the number of the first row of each file, counted through all files, and the number of all rows."""
    counts = (len(np.load(path, mmap_mode="r", allow_pickle=False)) for path in paths)
    return np.cumsum([0, *counts], dtype=np.int64).tolist()


def scramble(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Mix the bits of 64-bit values (finaliser of SplitMix64, Steele et al. 2014)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
