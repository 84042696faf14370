"""Lock a folder that grows, so that one process at a time writes it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import BaseFileLock, FileLock, SoftFileLock, Timeout

from headwater.errors import FolderError
from headwater.storage.files import final_path, storage_errors


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Lock `folder` for this process. The operating system releases the lock when the process ends.

    Raises FolderError if a running process holds the lock. On a file system without locks, the existence of a file
    is the lock.
    """
    lock: BaseFileLock = FileLock(folder / ".lock", timeout=0)
    unless = ""
    with storage_errors(folder / ".lock"):
        try:
            acquired = _acquire(lock)
        except OSError:  # the file system has no locks, or the folder cannot be written
            lock = SoftFileLock(folder / ".lock.claim", timeout=0)
            acquired = _acquire(lock)
            unless = f". The file system has no locks: if that process has ended, remove {lock.lock_file}"
    if not acquired:
        raise FolderError(
            f"{final_path(folder)} is in use by a running process",
            repair=f"Wait for it, stop it, or choose another --out{unless}",
        )
    try:
        yield
    finally:
        lock.release()


def _acquire(lock: BaseFileLock) -> bool:
    """Return whether the lock was free, and now is this process's."""
    try:
        lock.acquire()
    except Timeout:
        return False
    return True
