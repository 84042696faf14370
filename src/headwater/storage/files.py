"""Write files so that a crash or a full disk never damages existing data.

Every write goes to a temporary name in the same folder, is flushed to the disk and renamed. The temporary name has
this machine's identity and a random token, and its writer locks it: no other process writes or removes it, not
even one with the same process id in another container. Failures of the operating system become StorageError.
"""

from __future__ import annotations

import errno
import functools
import glob
import hashlib
import json
import os
import platform
import re
import secrets
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from headwater.errors import FolderError, StorageError

if TYPE_CHECKING:
    import numpy.typing as npt

if sys.platform != "win32":
    import fcntl

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# What databases ignore when a folder cannot be flushed: some network file systems have no such thing.
_NO_FOLDER_FLUSH = {errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES, errno.EISDIR}
_RUST_OS_ERROR = re.compile(r"\(os error (\d+)\)|\bOs \{ code: (\d+)")
# The names of `new_temporary`, and of the folder with the task outputs of a corpus.
_TEMPORARY = re.compile(r"\.(.+)\.(?:[0-9a-f]{8}-[0-9a-f]{8}\.part|[0-9a-f]{12}\.parts)")


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn errors of the operating system while writing `path` into StorageError.

    Libraries written in Rust (safetensors, tokenizers) raise errors of their own that contain the number.
    """
    try:
        yield
    except Exception as error:
        if not isinstance(error, OSError):
            number = _RUST_OS_ERROR.search(str(error))
            if number is None:
                raise
            code = int(number[1] or number[2])
            error = OSError(code, os.strerror(code))
        out = final_path(path)
        if error.errno in _FULL:
            raise StorageError(
                f"no space is left to write {out}",
                repair="Free some space, or choose another --out, and run the same command again: "
                "what is complete is kept",
            ) from error
        raise StorageError(
            f"{out} cannot be written: {error.strerror or error}", repair="Choose another output path"
        ) from error


def final_path(path: Path) -> Path:
    """Return the user's output folder for a path inside its temporary folder; return other paths unchanged."""
    for folder in (*reversed(path.parents), path):
        if temporary := _TEMPORARY.fullmatch(folder.name):
            return folder.with_name(temporary[1])
    return path


@contextmanager
def atomic_write(path: Path) -> Iterator[IO[bytes]]:
    """Open a binary file that appears at `path`, complete and flushed, if the block ends without an exception.

    A symbolic link is kept, and the file that it links to is replaced.
    """
    with atomic_path(path) as made, made.open("wb") as handle:
        yield handle


def require_absent(path: Path) -> None:
    """Raise FolderError if a file that a command will write exists."""
    if os.path.lexists(path):
        raise FolderError(
            f"{path} exists", repair=f"Choose another --out, or remove it first: rm {shlex.quote(str(path))}"
        )


@contextmanager
def atomic_path(path: Path, *, folder: bool = False) -> Iterator[Path]:
    """Yield where to write a file or folder; it is flushed and renamed to `path` if the block raises no exception.

    For writers that need a path, as those of libraries. `folder` is a new folder, a file does not exist yet.
    Raises StorageError for a device or a pipe, such as /dev/stdout.
    """
    with storage_errors(path):
        if path.exists() and not path.is_file() and not path.is_dir():
            raise StorageError(
                f"{path} is a device or a pipe", expected="a file to write", repair="Choose another output path"
            )
        target = Path(os.path.realpath(path)) if path.is_symlink() else path
        with new_temporary(target) as temporary:
            made = temporary if folder else temporary / target.name  # a library may replace the file it writes
            yield made
            use_mode(made, temporary)
            flush(made)
            made.replace(target)
        flush(target.parent, deep=False)


def use_mode(path: Path, folder: Path) -> None:
    """Let the users who can read `folder` read the file, or each file below the folder, `path`.

    Some libraries create files that only their owner can read, whatever the umask is.
    """
    mode = folder.stat().st_mode & 0o666
    for file in (path, *path.rglob("*")) if path.is_dir() else (path,):
        if file.is_file() and not file.is_symlink() and file.stat().st_mode & 0o666 != mode:
            file.chmod(mode)


@contextmanager
def new_temporary(path: Path) -> Iterator[Path]:
    """Yield a new empty folder next to `path` for the caller to fill and rename; remove it otherwise.

    First remove what killed writers of `path` left. If the file system has locks, lock the temporary until the
    block ends.
    """
    if not path.name:  # such as the working directory
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    remove_abandoned(path)
    while True:
        temporary = path.with_name(f".{path.name}.{_host()}-{secrets.token_hex(4)}.part")
        try:
            temporary.mkdir()
        except FileExistsError:
            continue
        with suppress(FileNotFoundError, BlockingIOError):  # another process took it for an abandoned one
            lock = _lock(temporary)
            break
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def temporaries_of(path: Path, machine: str = "*") -> Iterator[Path]:
    """Yield the temporaries of `path` that processes of this or any machine write, or left when killed."""
    return path.parent.glob(f".{glob.escape(path.name)}.{machine}-{'[0-9a-f]' * 8}.part")


def remove_abandoned(path: Path) -> None:
    """Remove the temporaries of `path` that killed processes of this machine left; keep those that are locked."""
    for temporary in temporaries_of(path, _host()):
        with suppress(BlockingIOError, FileNotFoundError):
            lock = _lock(temporary)
            if lock is None:
                continue  # its writer may be alive
            try:
                shutil.rmtree(temporary, ignore_errors=True)
            finally:
                os.close(lock)


def _lock(temporary: Path) -> int | None:
    """Lock a temporary and return the locked descriptor; None if the file system has no locks.

    Raises BlockingIOError when another writer holds it, FileNotFoundError if it was removed.
    """
    if sys.platform == "win32":
        return None  # an open file cannot be renamed on Windows
    descriptor = os.open(temporary, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(descriptor), temporary.stat()):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    except (BlockingIOError, FileNotFoundError):
        os.close(descriptor)
        raise
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


@functools.cache
def _host() -> str:
    """Return eight hexadecimal digits that identify this machine, which removes only its own temporaries."""
    try:
        machine = Path("/etc/machine-id").read_text(encoding="ascii")
    except (OSError, ValueError):
        machine = ""
    return hashlib.sha256(f"{platform.node()}\n{machine}".encode()).hexdigest()[:8]


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text atomically, with the same bytes on every platform."""
    with atomic_write(path) as handle:
        handle.write(text.encode("utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Write indented JSON atomically."""
    with atomic_write(path) as handle:
        handle.write(to_json(value, indent=2))


def write_json_lines(path: Path, rows: Iterable[Any]) -> None:
    """Write one JSON object a line, atomically."""
    with atomic_write(path) as handle:
        for row in rows:
            handle.write(to_json(row))


def to_json(value: Any, *, indent: int | None = None, default: Callable[[Any], Any] | None = None) -> bytes:
    """Return JSON in UTF-8 with a line end; lone surrogates, which UTF-8 cannot encode, become JSON's escapes."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=default)
    return f"{text}\n".encode(errors="backslashreplace")


def save_array(path: Path, array: npt.NDArray[Any]) -> None:
    """Write an array, in C order, as `numpy.save` does; raise OSError if not all bytes could be written.

    numpy does not check whether the C library flushed its last bytes: on a full disk it leaves a short file and
    raises nothing.
    """
    import numpy as np

    array = np.asarray(array, order="C")
    with path.open("wb") as handle:
        np.lib.format.write_array_header_1_0(handle, np.lib.format.header_data_from_array_1_0(array))
        handle.write(array.tobytes())


def flush(path: Path, *, deep: bool = True) -> None:
    """Make a file, or a folder with everything below it, survive a power cut; `deep` False: only its names.

    Does nothing for the names of a folder on a platform or file system that cannot flush them, as databases do.
    """
    is_folder = path.is_dir()
    if is_folder and deep:
        for inner in path.iterdir():
            if not inner.is_symlink():
                flush(inner)
    if is_folder and os.name != "posix":
        return
    try:
        descriptor = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if not is_folder or error.errno not in _NO_FOLDER_FLUSH:
            raise


def require_renames(path: Path) -> None:
    """Raise StorageError if folders cannot be renamed where `path` is or will be, as a stage does at its end."""
    parent = next(folder for folder in path.absolute().parents if folder.is_dir())
    with storage_errors(path), new_temporary(parent / (path.name or "out")) as work:
        before = work / "before"
        before.mkdir()
        (before / "file").write_bytes(b"x")
        flush(before)
        try:
            before.rename(work / "after")
        except OSError as error:
            raise StorageError(
                f"folders cannot be renamed in {parent}: {error.strerror}",
                expected="a file system that can rename a folder",
                repair="Choose another --out",
            ) from error
