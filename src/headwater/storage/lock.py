"""Lock a folder that grows, such as a run or a fetch, for one process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headwater.errors import FolderError
from headwater.storage.files import final_path, storage_errors


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Lock `folder` for this process. The operating system releases the lock when the process ends.

    Raises FolderError if a running process holds the lock. Does nothing on a file system without locks.
    """
    path = folder / ".lock"
    with storage_errors(path):
        handle = path.open("a+b", buffering=0)
    with handle:
        if not _acquire(handle.fileno()):
            handle.seek(0)
            raise FolderError(
                f"{final_path(folder)} is in use by a running process ({handle.read().decode() or 'unknown'})",
                repair="Wait for it, stop it, or choose another --out",
            )
        with suppress(OSError):  # on a full disk the lock works without its owner's name
            handle.truncate(0)
            handle.write(f"process {os.getpid()}".encode())
        yield


if sys.platform == "win32":
    import msvcrt

    # A locked byte cannot be read on Windows: lock one far after the text, so that others can read the owner.
    _FAR = 1 << 30

    def _acquire(descriptor: int) -> bool:
        os.lseek(descriptor, _FAR, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _acquire(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            return False
        except OSError:  # the file system has no locks
            return True
        return True
