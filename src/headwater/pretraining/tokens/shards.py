"""Files of token ids, of which a bounded number is open, however many a corpus has."""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from pathlib import Path

import numpy as np

from headwater.display import counted
from headwater.errors import DataError, FolderError

MOST_OPEN = 64  # files; the usual limit of a process is 1,024
_RESUME = "Pack the corpus again; the same command then resumes from the last checkpoint"
_CHECKED_IDS = 1 << 24  # ids that `check_ids` reads at a time
_READ_ONLY = os.O_RDONLY | getattr(os, "O_BINARY", 0)


class OpenFiles:
    """Read ranges of files; the files that were read last stay open, at most `most` of them. Thread-safe."""

    def __init__(self, most: int = MOST_OPEN) -> None:
        self._most, self._lock = most, threading.Lock()
        self._open: OrderedDict[Path, int] = OrderedDict()
        weakref.finalize(self, _close_all, self._open)

    def read(self, path: Path, size: int, offset: int, identity: tuple[int, int]) -> bytes:
        """Return up to `size` bytes of a file, fewer at its end.

        identity: its device and inode. Raises FolderError if another file has its name now.
        """
        with self._lock:
            descriptor = self._open.pop(path, None)
            if descriptor is None:
                if len(self._open) >= self._most:
                    os.close(self._open.popitem(last=False)[1])
                descriptor = os.open(path, _READ_ONLY)
            self._open[path] = descriptor
            found = os.fstat(descriptor)
            if (found.st_dev, found.st_ino) != identity:
                raise FolderError(f"{path} was replaced while it was read", repair=_RESUME)
            os.lseek(descriptor, offset, os.SEEK_SET)
            return os.read(descriptor, size)


class Shard:
    """The ids of one file; `len` is their number.

    The file is read, not mapped: if it is cut short or its disk fails, a read raises an error, where access to a
    mapping would end the process (SIGBUS). A file that replaces it is not read.
    """

    def __init__(self, path: Path, files: OpenFiles) -> None:
        """Read the header; raises FolderError if the file is not one row of uint16 or uint32."""
        self._path, self._files = path, files
        try:
            with path.open("rb") as file:
                version = np.lib.format.read_magic(file)
                read_header = np.lib.format.read_array_header_1_0
                if version != (1, 0):
                    read_header = np.lib.format.read_array_header_2_0
                shape, _, self._dtype = read_header(file)
                self._start, found = file.tell(), os.fstat(file.fileno())
        except OSError as error:
            raise FolderError(f"{path} cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise FolderError(f"{path} is damaged: {error}", repair="Pack the corpus again") from None
        if len(shape) != 1 or self._dtype not in (np.uint16, np.uint32):
            raise FolderError(f"{path} has {self._dtype} {shape}", expected="one row of uint16 or uint32")
        self._length, self._identity = int(shape[0]), (found.st_dev, found.st_ino)
        missing = self._start + self._length * self._dtype.itemsize - found.st_size
        if missing > 0:
            raise FolderError(
                f"{path} is damaged: {counted(missing, 'byte')} are missing", repair="Pack the corpus again"
            )

    def __len__(self) -> int:
        return self._length

    def read(self, start: int, end: int) -> np.ndarray:
        """Return the ids in the half-open interval [start, end); raises FolderError if it cannot."""
        size = self._dtype.itemsize * (end - start)
        try:
            content = self._files.read(
                self._path, size, self._start + self._dtype.itemsize * start, self._identity
            )
        except OSError as error:
            raise FolderError(f"{self._path} cannot be read: {error.strerror}", repair=_RESUME) from None
        if len(content) < size:
            raise FolderError(f"{self._path} was cut short while it was read", repair=_RESUME)
        return np.frombuffer(content, self._dtype)


def check_ids(ids: np.ndarray, vocabulary: int, path: Path, first: int = 0) -> None:
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


def _close_all(files: OrderedDict[Path, int]) -> None:
    while files:
        os.close(files.popitem()[1])
