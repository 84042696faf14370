"""Lock a folder that grows, such as a run or a fetch, for one process."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headwater.errors import FolderError
from headwater.storage.files import final_path, storage_errors

_NAME = ".lock"
_OWNER_BYTES = 32  # always written whole, so that the file is never truncated


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Lock `folder` for this process. The operating system releases the lock when the process ends.

    Raises FolderError if a running process holds the lock, or if the lock is a link: a folder from elsewhere may
    name any file so. Does nothing on a file system without locks.
    """
    with storage_errors(folder / _NAME):
        descriptor = _open(folder / _NAME)
    try:
        if not _acquire(descriptor):
            owner = os.pread(descriptor, _OWNER_BYTES, 0) if hasattr(os, "pread") else b""
            raise FolderError(
                f"{final_path(folder)} is in use by a running process ({owner.decode().strip() or 'unknown'})",
                repair="Wait for it, stop it, or choose another --out",
            )
        with suppress(OSError):  # on a full disk the lock works without its owner's name
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.write(descriptor, f"process {os.getpid()}".ljust(_OWNER_BYTES).encode())
        yield
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    """Open or create a lock file without following a link; raise FolderError for anything else."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
    except OSError as error:
        if error.errno not in {errno.ELOOP, errno.EMLINK}:
            raise
        descriptor = -1
    status = os.fstat(descriptor) if descriptor >= 0 else None
    if status is None or path.is_symlink() or not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        if status is not None:
            os.close(descriptor)
        raise FolderError(f"{path} is not a lock but a link", repair="Remove it if the folder is yours")
    return descriptor


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
