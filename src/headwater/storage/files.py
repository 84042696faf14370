"""Read and write files so that a crash, a full disk or a bad byte never damages existing data.

Every write goes to a temporary name in the same folder, is flushed to the disk and renamed. The temporary name has
this machine's identity and a random token, and its writer locks it: no other process writes or removes it, not
even one with the same process id in another container. Failures of the operating system become StorageError, bad
content becomes DataError.
"""

from __future__ import annotations

import csv
import errno
import functools
import glob
import hashlib
import json
import os
import platform
import re
import secrets
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from headwater.errors import DataError, FolderError, StorageError
from headwater.storage.decoding import decode_text, without_surrogates

if sys.platform != "win32":
    import fcntl

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_RUST_OS_ERROR = re.compile(r"\(os error (\d+)\)|\bOs \{ code: (\d+)")
# The names of `new_part`, and of the folder with the parts of a corpus.
_TEMPORARY = re.compile(r"\.(.+)\.(?:[0-9a-f]{8}-[0-9a-f]{8}\.part|[0-9a-f]{12}\.parts)")


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn errors of the operating system while writing `path` into StorageError.

    Libraries written in Rust (safetensors, tokenizers) raise errors of their own that contain the number.
    """
    try:
        yield
    except OSError as error:
        raise storage_error(path, error) from error
    except Exception as error:
        number = _RUST_OS_ERROR.search(str(error))
        if number is None:
            raise
        code = int(number[1] or number[2])
        raise storage_error(path, OSError(code, os.strerror(code))) from error


def final_path(path: Path) -> Path:
    """Return the user's output folder for a path inside its temporary folder; return other paths unchanged."""
    for folder in (*reversed(path.parents), path):
        if temporary := _TEMPORARY.fullmatch(folder.name):
            return folder.with_name(temporary[1])
    return path


def storage_error(path: Path, error: OSError) -> StorageError:
    """Return the StorageError that explains an OSError at `path`."""
    path = final_path(path)
    # numpy's error for a short write has no number.
    if error.errno in _FULL or (
        error.errno is None and re.fullmatch(r"\d+ requested and \d+ written", str(error))
    ):
        return StorageError(
            f"no space is left to write {path}",
            repair="Free some space, or choose another --out, and run the same command again: "
            "what is complete is kept",
        )
    return StorageError(
        f"{path} cannot be written: {error.strerror or error}", repair="Choose another output path"
    )


@contextmanager
def new_parents(path: Path) -> Iterator[None]:
    """If the block fails, remove the empty folders above `path` that were not there before."""
    missing = [folder for folder in path.parents if not folder.exists()]
    try:
        yield
    except BaseException:
        for folder in missing:
            with suppress(OSError):
                folder.rmdir()
        raise


@contextmanager
def atomic_write(path: Path) -> Iterator[IO[bytes]]:
    """Open a binary file that appears at `path`, complete and flushed, if the block ends without an exception.

    A symbolic link is kept, and the file that it links to is replaced. Raises StorageError for a device or a pipe.
    """
    with storage_errors(path):
        target = replaceable(path)
        with new_part(target) as part:
            with part.open("wb") as handle:
                yield handle
                handle.flush()
                os.fsync(handle.fileno())
            part.replace(target)
            flush_folder(target.parent)


def replaceable(path: Path) -> Path:
    """Return the file that a rename to `path` may replace: `path`, with a symbolic link resolved.

    Raises StorageError for a device or a pipe, such as /dev/stdout.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise StorageError(
            f"{path} is a device or a pipe", expected="a file to write", repair="Choose another output path"
        )
    return Path(os.path.realpath(path)) if path.is_symlink() else path


@contextmanager
def new_part(path: Path, *, folder: bool = False) -> Iterator[Path]:
    """Yield a new empty file or folder next to `path` for the caller to fill and rename; remove it otherwise.

    First remove what killed writers of `path` left. If the file system has locks, lock the part until the block
    ends.
    """
    if not path.name:  # such as the working directory
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    remove_abandoned(path)
    while True:
        part = path.with_name(f".{path.name}.{_host()}-{secrets.token_hex(4)}.part")
        try:
            part.mkdir() if folder else part.touch(exist_ok=False)
            lock = _lock(part)
        except (FileExistsError, FileNotFoundError, BlockingIOError) as error:
            if not path.parent.is_dir():
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)) from error
            continue  # the name was taken, or another process removed the part before it was locked
        break
    try:
        yield part
    finally:
        _remove(part)
        if lock is not None:
            os.close(lock)


def parts_of(path: Path, machine: str = "*") -> Iterator[Path]:
    """Yield the parts of `path` that processes of this or any machine write, or left when they were killed."""
    return path.parent.glob(f".{glob.escape(path.name)}.{machine}-{'[0-9a-f]' * 8}.part")


def remove_abandoned(path: Path) -> None:
    """Remove the parts of `path` that killed processes of this machine left; keep those that are locked."""
    for part in parts_of(path, _host()):
        with suppress(BlockingIOError, FileNotFoundError):
            lock = _lock(part)
            if lock is None:
                continue  # its writer may be alive
            try:
                _remove(part)
            finally:
                os.close(lock)


def _lock(part: Path) -> int | None:
    """Lock a part and return the locked descriptor; None if the file system has no locks.

    Raises BlockingIOError when another writer holds it, FileNotFoundError if it was removed.
    """
    if sys.platform == "win32":
        return None  # an open file cannot be renamed on Windows
    descriptor = os.open(part, os.O_RDONLY if part.is_dir() else os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(descriptor), part.stat()):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    except (BlockingIOError, FileNotFoundError):
        os.close(descriptor)
        raise
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _remove(part: Path) -> None:
    if part.is_dir():
        shutil.rmtree(part, ignore_errors=True)
    else:
        part.unlink(missing_ok=True)


@functools.cache
def _host() -> str:
    """Return eight hexadecimal digits that identify this machine, which removes only its own parts."""
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


def read_text(path: Path) -> str:
    """Read UTF-8 text, dropping a byte-order mark.

    Raises DataError when the file is missing, a folder, binary or in another encoding, with the place.
    """
    return decode_text(read_bytes(path), path)


def read_bytes(path: Path) -> bytes:
    """Read a file whole; raises DataError when it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise file_error(path, error) from None


def file_error(path: Path, error: OSError) -> DataError:
    """Return the DataError that says why the file at `path` cannot be read."""
    if isinstance(error, FileNotFoundError):
        return DataError(f"{path} does not exist", repair="Check the path")
    if isinstance(error, IsADirectoryError):
        return DataError(f"{path} is a folder", expected="a file")
    repair = "Check its permissions" if isinstance(error, PermissionError) else ""
    return DataError(f"{path} cannot be read: {error.strerror or error}", repair=repair)


def read_json(path: Path) -> Any:
    """Read a JSON file; raises FolderError when it was cut short or altered."""
    try:
        return parse_json(read_text(path))
    except json.JSONDecodeError as error:
        raise FolderError(
            f"{path} is damaged: {error.msg} in line {error.lineno}",
            repair="Make the folder again with the command that wrote it",
        ) from None


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object; return an empty one if the file does not exist. Raises DataError for other JSON."""
    content = read_json(path) if path.is_file() else {}
    if not isinstance(content, dict):
        raise DataError(f"{path} is a JSON {type(content).__name__}", expected="an object")
    return content


def write_sealed(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object with a checksum of its own."""
    write_json(path, {**content, "checksum": json_hash(content)})


def read_sealed(path: Path) -> dict[str, Any]:
    """Read what `write_sealed` wrote; raises FolderError when it was cut short or altered."""
    content = read_json(path)
    checksum = content.pop("checksum", None) if isinstance(content, dict) else None
    if checksum is None or checksum != json_hash(content):
        raise FolderError(f"{path} was cut short or altered", repair="Remove its folder and run the command again")
    return dict(content)


def json_hash(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a JSON object, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


# How JSON escapes a surrogate. Decoded text has no other ones; `json.loads` accepts them in bytes.
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_SURROGATE_BYTES = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]")
# What parsing raises on malformed data.
MALFORMED = (
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    SyntaxError,
    RecursionError,
    MemoryError,
    csv.Error,
)


def parse_json(text: str | bytes) -> Any:
    """Call `json.loads`; raise JSONDecodeError for everything that it rejects.

    Lone surrogates, which JSON can escape, become U+FFFD: neither UTF-8 nor Parquet can store them.
    """
    try:
        value = json.loads(text)
        found = _SURROGATE.search(text) if isinstance(text, str) else _SURROGATE_BYTES.search(text)
        return _without_surrogates(value) if found else value
    except json.JSONDecodeError:
        raise
    except RecursionError:
        raise json.JSONDecodeError("it is nested too deep", "", 0) from None
    except ValueError as error:  # bytes that are not text, a number of thousands of digits
        raise json.JSONDecodeError(str(error).partition(";")[0], "", 0) from None


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return without_surrogates(value)
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    return value


def intact_json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a JSON Lines file; skip lines that were cut short or altered."""
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        with suppress(json.JSONDecodeError):
            value = parse_json(line)
            if isinstance(value, dict):
                yield value


def sha256_of(path: Path) -> str:
    """Return the hexadecimal SHA-256 of a file; raises DataError when it cannot be read."""
    try:
        with path.open("rb") as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest()
    except OSError as error:
        raise file_error(path, error) from None


def flush_files(folder: Path) -> None:
    """Make every file below `folder`, and its name, survive a power cut."""
    for path, _, names in os.walk(folder):
        for name in names:
            flush_file(Path(path, name))
        flush_folder(Path(path))


def flush_file(path: Path) -> None:
    """Make the content of a file survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_folder(path: Path) -> None:
    """Make renames inside `path` survive a power cut, if the platform can."""
    if os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:  # some network file systems cannot
            raise storage_error(path, error) from error
    finally:
        os.close(descriptor)
