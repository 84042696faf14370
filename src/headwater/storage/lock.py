"""Lock a folder that grows, such as a run or a fetch, for one process."""

from __future__ import annotations

import errno
import os
import platform
import re
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from headwater.errors import FolderError
from headwater.storage.files import final_path, storage_errors

_NAME, _CLAIM = ".lock", ".lock.owner"
_OWNER_BYTES = 32  # always written whole, so that the file is never truncated
_CLAIM_BYTES = 1_000


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Lock `folder` for this process. The operating system releases the lock when the process ends.

    Raises FolderError if a running process holds the lock, or if the lock is a link: a folder from elsewhere may
    name any file so. On a file system without locks, a file that names its owner is created instead.
    """
    with storage_errors(folder / _NAME):
        descriptor = _open(folder / _NAME)
    with ExitStack() as held:
        held.callback(os.close, descriptor)
        acquired = _acquire(descriptor)
        if acquired is False:
            owner = os.pread(descriptor, _OWNER_BYTES, 0) if hasattr(os, "pread") else b""
            raise _in_use(folder, owner.decode().strip())
        if acquired is None:
            held.enter_context(_claim(folder))
        with suppress(OSError):  # on a full disk the lock works without its owner's name
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.write(descriptor, f"process {os.getpid()}".ljust(_OWNER_BYTES).encode())
        yield


def _in_use(folder: Path, owner: str, unless: str = "") -> FolderError:
    return FolderError(
        f"{final_path(folder)} is in use by a running process ({owner or 'unknown'})",
        repair=f"Wait for it, stop it, or choose another --out{unless}",
    )


@contextmanager
def _claim(folder: Path) -> Iterator[None]:
    """Own `folder` by a file that only one process can create; replace what an ended process of this machine left.

    Raises FolderError if another process owns it, or if that process may run on another machine.
    """
    path, mine = folder / _CLAIM, f"process {os.getpid()} on {_place()}, started {_start(os.getpid())}"
    with storage_errors(path):
        while True:
            try:
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
                break
            except FileExistsError:
                owner = _read(path)
            if owner is not None and not _has_ended(owner):
                unless = f". The file system has no locks: if that process has ended, remove {path}"
                raise _in_use(folder, owner.partition(",")[0], unless)
            # Two processes may find the same claim: rename, so that neither removes the other's new one.
            left = path.with_name(f"{_CLAIM}-{secrets.token_hex(4)}")
            with suppress(FileNotFoundError):
                path.rename(left)
                left.unlink() if _read(left) == owner else left.rename(path)
        try:
            os.write(descriptor, mine.encode())
        finally:
            os.close(descriptor)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _read(claim: Path) -> str | None:
    """Return the content of a claim, None if it was removed; a link is not followed."""
    try:
        descriptor = os.open(claim, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        return None
    try:
        return os.read(descriptor, _CLAIM_BYTES).decode(errors="replace")
    finally:
        os.close(descriptor)


def _has_ended(owner: str) -> bool:
    """Return whether the owner of a claim was a process of this machine that no longer runs."""
    parts = re.fullmatch(r"process (\d{1,9}) on (.*), started (\S*)", owner)
    if parts is None or parts[2] != _place():
        return False
    try:
        os.kill(int(parts[1]), 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # it runs, for another user
        return False
    return parts[3] != _start(int(parts[1]))  # else its number belongs to a later process


def _place() -> str:
    """Return the machine and, on Linux, the numbering of its processes: a container has one of its own."""
    try:
        return f"{platform.node()} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return platform.node()


def _start(process: int) -> str:
    """Return the boot and the time at which a process started, on Linux; "ended" if only its status is left."""
    try:
        state, *values = Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
    return "ended" if state in "ZX" else f"{boot}:{values[18]}"


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

    def _acquire(descriptor: int) -> bool | None:
        os.lseek(descriptor, _FAR, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _acquire(descriptor: int) -> bool | None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            return False
        except OSError:  # the file system has no locks
            return None
        return True
