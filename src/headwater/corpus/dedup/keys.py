"""Keys of documents on disk, and exact duplicates: of documents with equal normalised texts, the first is kept.

Normalised: Unicode NFC, case folded, white space as single spaces and stripped, so that copies of a page which
differ in line breaks or capitals are equal. GPT-2 (section 2.1) mentions de-duplication without a method; this
part needs no threshold.

Each task writes the keys of its documents to `.npy` files. `partitions` reads those of all tasks by ranges of the
key space, for exact and for near duplicates, so that memory does not grow with the corpus.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headwater.errors import ResourceError

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


def find_copies(fingerprints: Sequence[Path]) -> npt.NDArray[np.bool_]:
    """Return which documents equal an earlier one: (documents,) bool, numbered through all files."""
    copies = np.zeros(sum(row_counts(fingerprints)), bool)
    for group, numbers in partitions(fingerprints, 0, 1):
        order = np.lexsort((group[:, 1], group[:, 0]))  # stable: the first of equals comes first
        same = (group[order[1:]] == group[order[:-1]]).all(axis=1)
        copies[numbers[order[1:][same]]] = True
    return copies


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


def partitions(
    paths: Sequence[Path], *columns: int
) -> Iterator[tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint32]]]:
    """Split the rows of files by key: yield, for each range of the 64-bit key space, the rows with a key in it.

    The first of `columns` has the keys. A partition is the values of `columns`, (rows, columns), and the numbers
    of the rows, (rows,), counted through all files. It has about PARTITION_ROWS rows if the keys are uniform.
    There are at most PARTITIONS, because each costs one more pass over the files.
    """
    starts = np.cumsum([0, *row_counts(paths)], dtype=np.int64).tolist()
    if starts[-1] > MOST_ROWS:
        raise ResourceError(
            f"duplicates are searched among {starts[-1]:,} documents",
            expected=f"at most {MOST_ROWS:,}, since they are numbered in 32 bits",
            repair="Build several corpora of fewer documents",
        )
    count = min(PARTITIONS, -(-starts[-1] // PARTITION_ROWS)) or 1
    for low, high in pairwise(2**64 * number // count for number in range(count + 1)):
        yield _partition(paths, starts, columns, low, high - 1)


def _partition(
    paths: Sequence[Path], starts: Sequence[int], columns: Sequence[int], least: int, most: int
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint32]]:
    values, numbers = [], []
    for path, start in zip(paths, starts[:-1], strict=True):
        # Opened for each partition: the pages of a mapped file count as memory until it is closed.
        rows = np.load(path, mmap_mode="r", allow_pickle=False)
        keys = rows[:, columns[0]]
        chosen = np.flatnonzero((keys >= np.uint64(least)) & (keys <= np.uint64(most)))
        values.append(np.stack([rows[:, column][chosen] for column in columns], axis=1).astype(np.uint64))
        numbers.append((chosen + start).astype(np.uint32))
    return np.concatenate(values), np.concatenate(numbers)


def row_counts(paths: Sequence[Path]) -> list[int]:
    """Return the number of rows of each file."""
    return [len(np.load(path, mmap_mode="r", allow_pickle=False)) for path in paths]


def scramble(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Mix the bits of 64-bit values (finaliser of SplitMix64, Steele et al. 2014)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
