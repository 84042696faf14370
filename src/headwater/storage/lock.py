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
    soft = SoftFileLock(folder / ".lock.claim", timeout=0)
    lock: BaseFileLock
    with storage_errors(folder / ".lock"):
        for lock in (FileLock(folder / ".lock", timeout=0), soft):
            try:
                lock.acquire()
                break
            except Timeout:
                unless = ". The file system has no locks: if that process has ended, remove " + soft.lock_file
                raise FolderError(
                    f"{final_path(folder)} is in use by a running process",
                    repair=f"Wait for it, stop it, or choose another --out{unless if lock is soft else ''}",
                ) from None
            except OSError:  # the file system has no locks, or the folder cannot be written
                if lock is soft:
                    raise
    try:
        yield
    finally:
        lock.release()
