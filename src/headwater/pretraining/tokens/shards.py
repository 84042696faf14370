"""The shards of a tokens folder: written in order (`ShardWriter`), read a range at a time (`Shard`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headwater.display import counted
from headwater.errors import DataError, FolderError
from headwater.storage import save_array

# The tokens of a shard that is full.
SHARD_TOKENS = 100_000_000
# A shorter last shard is appended to the previous one: no training window is longer.
LAST_SHARD_TOKENS = 65_536

_RESUME = "Pack the corpus again; the same command then resumes from the last checkpoint"
_CHECKED_IDS = 1 << 24  # ids that `check_ids` reads at a time


class Shard:
    """The ids of one file; `len` is their number.

    The file is opened for each range and read, not mapped: any number of shards needs one open file, and if a file
    is cut short or its disk fails, a read raises an error, where access to a mapping would end the process
    (SIGBUS). A file that replaces it is not read.
    """

    def __init__(self, path: Path) -> None:
        """Read the header.

        Raises FolderError if the file is not one row of uint16 or uint32.
        """
        self.path = path
        try:
            ids = np.load(path, mmap_mode="r")  # compares the header with the size of the file
            self._inode = path.stat().st_ino
        except OSError as error:
            raise FolderError(f"{path} cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise FolderError(f"{path} is damaged: {error}", repair="Pack the corpus again") from None
        if ids.ndim != 1 or ids.dtype not in (np.uint16, np.uint32):
            raise FolderError(f"{path} has {ids.dtype} {ids.shape}", expected="one row of uint16 or uint32")
        self._dtype, self._start, self._length = ids.dtype, ids.offset, len(ids)

    def __len__(self) -> int:
        return self._length

    def read(self, start: int, end: int) -> np.ndarray:
        """Return the ids in the half-open interval [start, end); raises FolderError if it cannot."""
        try:
            with self.path.open("rb", buffering=0) as file:
                is_replaced = self.path.stat().st_ino != self._inode
                file.seek(self._start + self._dtype.itemsize * start)
                content = file.read(self._dtype.itemsize * (end - start)) or b""
        except OSError as error:
            raise FolderError(f"{self.path} cannot be read: {error.strerror}", repair=_RESUME) from None
        if is_replaced:
            raise FolderError(f"{self.path} was replaced while it was read", repair=_RESUME)
        missing = self._dtype.itemsize * (end - start) - len(content)
        if missing:
            raise FolderError(f"{self.path} was cut short: {counted(missing, 'byte')} are missing", repair=_RESUME)
        return np.frombuffer(content, self._dtype)


class ShardWriter:
    """Writes a part of `tokens` ids as shards: `PART-00000.npy`, one row of ids, and `documents-PART-00000.npy`.

    The latter has the starts of the documents in the shard, int64; a document that continues in the next shard has
    no entry there. A shard has SHARD_TOKENS ids, the last one all that remain; a part without tokens has one empty
    shard.
    """

    def __init__(self, folder: Path, part: str, tokens: int, dtype: type[np.uint16] | type[np.uint32]) -> None:
        self._folder, self._part, self._dtype = folder, part, np.dtype(dtype)
        full = max(0, (tokens - LAST_SHARD_TOKENS) // SHARD_TOKENS)
        self._ends = [SHARD_TOKENS * (index + 1) for index in range(full)] + [tokens]
        self._written = 0
        self._open(0)

    def add(self, ids: npt.NDArray[Any], starts: npt.NDArray[np.int64]) -> None:
        """Append ids, (n,), and the starts of the documents in them."""
        starts = starts + self._written
        while True:
            end, is_last = self._ends[self._index], self._index + 1 == len(self._ends)
            inside, count = starts < end, end - self._written
            self._file.write(np.ascontiguousarray(ids[:count], dtype=self._dtype).data)
            self._written += len(ids[:count])
            self._starts.append(starts[inside | is_last] - self._begin)
            if self._written < end or is_last:
                return
            ids, starts = ids[count:], starts[~inside]
            self.close()
            self._open(self._index + 1)

    def close(self) -> None:
        """Finish the last shard."""
        self._file.close()
        save_array(self._folder / f"documents-{self._part}-{self._index:05d}.npy", np.concatenate(self._starts))

    def _open(self, index: int) -> None:
        self._index, self._begin, self._starts = index, self._written, [np.empty(0, np.int64)]
        self._file = (self._folder / f"{self._part}-{index:05d}.npy").open("wb")
        length, descr = self._ends[index] - self._begin, np.lib.format.dtype_to_descr(self._dtype)
        header: dict[str, Any] = {"descr": descr, "fortran_order": False, "shape": (length,)}
        np.lib.format.write_array_header_1_0(self._file, header)


def check_ids(ids: np.ndarray, vocabulary: int, path: Path | str, first: int = 0) -> None:
    """Raise DataError naming file, position and id of the first id that is not below `vocabulary`.

    ids: (tokens,) unsigned integers, of `path`; first: the position of the first one. Ids are not read if their
    type cannot represent a larger id.
    """
    if np.iinfo(ids.dtype).max < vocabulary:
        return
    for start in range(0, len(ids), _CHECKED_IDS):
        block = ids[start : start + _CHECKED_IDS]
        if int(block.max()) >= vocabulary:
            offset = int(np.argmax(block >= vocabulary))
            raise DataError(
                f"{path} has id {int(block[offset]):,} at position {first + start + offset:,}",
                expected=f"ids below its vocabulary size, {vocabulary:,}",
                repair="Pack the corpus again, or give the tokenizer that made these ids",
            )
