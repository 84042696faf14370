"""One living process in a folder that grows: a run, a fetch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headwater.errors import FolderError
from headwater.storage import storage_errors


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Hold `folder` for this process; the operating system lets go when the process ends, however it ends.

    Raises FolderError when a living process holds it.
    """
    path = folder / ".lock"
    with storage_errors(path):
        handle = path.open("a+")
    with handle:
        if not _acquire(handle.fileno()):
            handle.seek(0)
            raise FolderError(
                f"{folder} is in use by a living process ({handle.read().strip() or 'unknown'})",
                repair="Wait for it, stop it, or choose another --out",
            )
        handle.truncate(0)
        handle.write(f"process {os.getpid()}")
        handle.flush()
        yield


def _acquire(descriptor: int) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined, unused-ignore]
        except OSError:
            return False
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
