"""Keys of documents on disk, and exact duplicates: of documents with equal texts, the first is kept.

GPT-2 (section 2.1) mentions de-duplication without a method. Copies that differ in case, line breaks or
punctuation are near duplicates (`near`).

Each task writes the keys of its documents to files, a row after the other. They are compared a column at a time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

FINGERPRINT_ROW = np.dtype((">u8", 2))  # 16 bytes of SHA-256: P(a collision of 1e9 documents) < 1e-20


def text_fingerprint(text: str) -> bytes:
    """Return the FINGERPRINT_ROW of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[: FINGERPRINT_ROW.itemsize]


def read_column(files: Sequence[Path], row: np.dtype[Any], column: int) -> npt.NDArray[np.uint64]:
    """Return a column of the rows of all files, (rows,)."""
    rows = (np.memmap(path, row, "r") for path in files if path.stat().st_size)
    return np.concatenate([np.empty(0, np.uint64), *(array[:, column].astype(np.uint64) for array in rows)])


def first_rows(files: Sequence[Path], row: np.dtype[Any]) -> npt.NDArray[np.int64]:
    """Return the number of the first row of each file, counted through all files, and the number of all rows."""
    return np.cumsum([0, *(path.stat().st_size // row.itemsize for path in files)], dtype=np.int64)


def exact_copies(fingerprints: Sequence[Path]) -> npt.NDArray[np.bool_]:
    """Return which documents equal an earlier one, (documents,)."""
    high, low = (read_column(fingerprints, FINGERPRINT_ROW, column) for column in (0, 1))
    order = np.lexsort((low, high))  # stable: the first of equals comes first
    same = (high[order[1:]] == high[order[:-1]]) & (low[order[1:]] == low[order[:-1]])
    copies = np.zeros(len(high), bool)
    copies[order[1:][same]] = True
    return copies


def scramble(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Mix the bits of 64-bit values (finaliser of SplitMix64, Steele et al. 2014)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
