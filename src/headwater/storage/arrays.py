"""Write and read `.npy` files, also larger than memory; a full disk raises an error."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

PARTITION_ROWS = 500_000
PARTITIONS = 64
_BLOCK_ROWS = 65_536


def save_array(path: Path, array: npt.NDArray[Any]) -> None:
    """Write the same bytes as `numpy.save`; raise OSError if not all of them could be written.

    numpy does not check whether the C library flushed its last bytes: on a full disk it leaves a short file and
    raises nothing.
    """
    array = np.ascontiguousarray(array)
    with path.open("wb") as handle:
        np.lib.format.write_array_header_1_0(handle, np.lib.format.header_data_from_array_1_0(array))
        handle.write(array.tobytes())


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


def in_range(
    path: Path, column: int, start: int, low: int, high: int
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint32]]:
    """Return the values of a column of 64-bit numbers in [low, high), and their row numbers, counted from `start`.

    The file is opened for each call: the pages of a mapped file count as memory until it is closed.
    """
    values = np.load(path, mmap_mode="r", allow_pickle=False)[:, column]
    chosen = np.flatnonzero((values >= np.uint64(low)) & (values <= np.uint64(high - 1)))
    return values[chosen].astype(np.uint64), (chosen + start).astype(np.uint32)


def ranges(count: int) -> list[tuple[int, int]]:
    """Split the 64-bit key space into ranges that hold about PARTITION_ROWS of `count` uniform keys.

    There are at most PARTITIONS ranges, as each costs one more pass over the files.
    """
    partitions = min(PARTITIONS, -(-count // PARTITION_ROWS)) or 1
    edges = [2**64 * part // partitions for part in range(partitions + 1)]
    return list(pairwise(edges))


def row_counts(paths: list[Path]) -> list[int]:
    """Return the number of rows of each file."""
    return [len(np.load(path, mmap_mode="r", allow_pickle=False)) for path in paths]


def scramble(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Mix the bits of 64-bit values (finaliser of SplitMix64, Steele et al. 2014)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
