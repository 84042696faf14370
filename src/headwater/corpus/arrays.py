"""Write and read `.npy` files, also larger than memory; a full disk raises an error."""

from __future__ import annotations

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

    The first of `columns` has the keys. Each part is the values of `columns`, (rows, columns), and the numbers of
    the rows, (rows,), counted through all files. It has about PARTITION_ROWS rows if the keys are uniform. At
    most PARTITIONS parts are made, because each costs one more pass over the files.
    """
    starts = np.cumsum([0, *row_counts(paths)], dtype=np.int64).tolist()
    if starts[-1] > MOST_ROWS:
        raise ResourceError(
            f"duplicates are searched among {starts[-1]:,} documents",
            expected=f"at most {MOST_ROWS:,}, since they are numbered in 32 bits",
            repair="Build several corpora of fewer documents",
        )
    count = min(PARTITIONS, -(-starts[-1] // PARTITION_ROWS)) or 1
    for low, high in pairwise(2**64 * part // count for part in range(count + 1)):
        yield _part(paths, starts, columns, low, high - 1)


def _part(
    paths: Sequence[Path], starts: Sequence[int], columns: Sequence[int], least: int, most: int
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint32]]:
    values, numbers = [], []
    for path, start in zip(paths, starts[:-1], strict=True):
        # Opened for each part: the pages of a mapped file count as memory until it is closed.
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
