"""Keys of documents on disk, and exact duplicates: of documents with equal texts, the first is kept.

GPT-2 (section 2.1) mentions de-duplication without a method. Copies that differ in case, line breaks or
punctuation are near duplicates (`near`).

Each task writes the keys of its documents to files, a row after the other. Those of all tasks are read by ranges
of the key space, for exact and for near duplicates: each range is a task, whose memory does not grow with the
corpus.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headwater.errors import ResourceError

Numbers = npt.NDArray[np.uint32]

PARTITION_ROWS = 500_000
PARTITIONS = 64
MOST_ROWS = 1 << 32
_BLOCK_ROWS = 16_384  # read at a time
FINGERPRINT_ROW = np.dtype((">u8", 2))  # 16 bytes of SHA-256: P(a collision of 1e9 documents) < 1e-20


def text_fingerprint(text: str) -> bytes:
    """Return the FINGERPRINT_ROW of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[: FINGERPRINT_ROW.itemsize]


def copies_in(fingerprints: Sequence[Path], starts: Sequence[int], low: int, high: int) -> Numbers:
    """Return the documents that equal an earlier one, of those with a fingerprint from `low` to `high`."""
    [(group, numbers)] = rows_in(fingerprints, starts, FINGERPRINT_ROW, [(0, 1)], low, high)
    order = np.lexsort((group[:, 1], group[:, 0]))  # stable: the first of equals comes first
    same = (group[order[1:]] == group[order[:-1]]).all(axis=1)
    return numbers[order[1:][same]]


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
    paths: Sequence[Path],
    starts: Sequence[int],
    row: np.dtype[Any],
    groups: Sequence[Sequence[int]],
    low: int,
    high: int,
) -> list[tuple[npt.NDArray[np.uint64], Numbers]]:
    """Return, for each group of columns, the rows of all files whose key is from `low` to `high`.

    The files have one `row` after the other. The first column of a group has the keys. Its rows are the values of
    its columns, (rows, columns), and their numbers, (rows,), counted through all files: `starts` has the number of
    each file's first row.
    """
    values = [[np.empty((0, len(columns)), np.uint64)] for columns in groups]
    numbers: list[list[Numbers]] = [[np.empty(0, np.uint32)] for _ in groups]
    for path, first in zip(paths, starts, strict=False):
        with path.open("rb") as handle:
            while len(block := np.fromfile(handle, row, _BLOCK_ROWS)):
                by_column = np.ascontiguousarray(block.T, np.uint64)
                for group, columns in enumerate(groups):
                    keys = by_column[columns[0]]
                    chosen = np.flatnonzero((keys >= np.uint64(low)) & (keys <= np.uint64(high)))
                    values[group].append(by_column[list(columns)][:, chosen].T)
                    numbers[group].append((chosen + first).astype(np.uint32))
                first += len(block)
    return [(np.concatenate(v), np.concatenate(n)) for v, n in zip(values, numbers, strict=True)]


def first_rows(paths: Sequence[Path], row: np.dtype[Any]) -> list[int]:
    """Return the number of the first row of each file, counted through all files, and the number of all rows."""
    counts = (path.stat().st_size // row.itemsize for path in paths)
    return np.cumsum([0, *counts], dtype=np.int64).tolist()


def scramble(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Mix the bits of 64-bit values (finaliser of SplitMix64, Steele et al. 2014)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
