"""The files of a tokens folder, read a range at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from headwater.display import counted
from headwater.errors import DataError, FolderError

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
