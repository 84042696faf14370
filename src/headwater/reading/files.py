"""Read bytes, text and JSON whole. Each failure is an error that names the file."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from headwater.errors import DataError, FolderError, StorageError, UsageError
from headwater.reading.encoding import decode_text

_Name = TypeVar("_Name", bound=str | Path)
_HOME = re.compile(r"((?:[\w.-]+=)?)(?=~(?:[/\\]|$))")


class FileLimits:
    """What a file may ask of memory: far above any real file, far below what a small bomb asks for.

    A file above one is refused in one line that names the limit.
    """

    JSON_BYTES = 1 << 27
    """Bytes of a JSON file of a model or another folder, which is read whole."""
    CONTAINERS = 1 << 22
    """Lists and objects of one JSON value: two bytes of text take up to 200 of memory."""
    FIELD_CHARACTERS = 1 << 24
    """Characters of a CSV field: longer than any novel. An unclosed quote makes one field of all that follows."""
    LINE_BYTES = 1 << 26
    """Bytes of a line of a dump; a longer one loses its end."""
    WORKBOOK_ROWS = 1 << 20
    """Rows of a sheet, as in Excel."""
    UNPACKED_CHARACTERS = 1 << 26
    """Characters of one text, line or JSON value of a compressed file, or UNPACKED_RATIO for each packed byte."""
    UNPACKED_RATIO = 100
    """Text packs to about a tenth of its size; a megabyte of a compression bomb unpacks to a gigabyte."""

    # Of Parquet and Arrow files. Each may be ARROW_RATIO for each packed byte instead.
    ARROW_RATIO = 256
    BATCH_BYTES = 1 << 26
    """Bytes of a batch, which decides how many rows it has."""
    COLUMN_BYTES = 1 << 30
    """Bytes of one column in one row group."""
    REPEATED_BYTES = 1 << 24
    """Bytes of a value that repeats, if the column may come to more than TABLE_BYTES."""
    TABLE_BYTES = 1 << 30
    """Bytes of all values."""


def read_text(path: Path) -> str:
    """Read UTF-8 text, dropping a byte-order mark.

    Raises DataError when the file is missing, a folder, binary or in another encoding, with the place.
    """
    return decode_text(read_bytes(path), path)


def read_bytes(path: Path) -> bytes:
    """Read a file whole; raises DataError when it cannot be read."""
    try:
        return b"".join(file_blocks(path, -1))
    except OSError as error:
        raise file_error(path, error) from None


def file_blocks(path: Path, block_bytes: int) -> Iterator[bytes]:
    """Yield the bytes of a file in blocks; raises StorageError if it became shorter since it was opened."""
    with path.open("rb") as handle:
        size = os.fstat(handle.fileno()).st_size  # 0 of a pipe
        total = 0
        while block := handle.read(block_bytes):
            total += len(block)
            yield block
        if total < size:
            raise StorageError(
                f"{path} was cut to {total:,} bytes while it was read",
                expected=f"{size:,}",
                repair="Run the same command again when the file is complete",
            )


# Errors of a disk or a network that may pass, so that a file must not be taken for damaged.
_PASSING = {errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENODEV}


def file_error(path: Path, error: OSError) -> DataError | StorageError:
    """Return the error that says why a file cannot be read: StorageError if a second try may succeed."""
    if error.errno in _PASSING:
        return StorageError(
            f"{path} cannot be read: {error.strerror or error}",
            repair="Check the disk, and run the same command again",
        )
    if isinstance(error, FileNotFoundError):
        return DataError(f"{path} does not exist", repair="Check the path")
    if isinstance(error, IsADirectoryError):
        return DataError(f"{path} is a folder", expected="a file")
    repair = "Check its permissions" if isinstance(error, PermissionError) else ""
    return DataError(f"{path} cannot be read: {error.strerror or error}", repair=repair)


def read_json(path: Path) -> Any:
    """Read a JSON file; raises FolderError when it was cut short or altered, DataError if it is too large."""
    try:
        if path.stat().st_size > FileLimits.JSON_BYTES:
            raise DataError(f"{path} is a JSON value of more than {FileLimits.JSON_BYTES >> 20} MiB")
    except OSError as error:
        raise file_error(path, error) from None
    try:
        return parse_json(read_bytes(path))
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


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")  # also as JSON escapes it


def parse_json(text: str | bytes) -> Any:
    """Call `json.loads`; raise JSONDecodeError for everything that it rejects, and for too many lists and objects.

    Lone surrogates, which JSON can escape, become U+FFFD: neither UTF-8 nor Parquet can store them.
    """
    try:
        if isinstance(text, bytes):
            text = text.decode(json.detect_encoding(text), "surrogatepass")
        if len(text) > FileLimits.CONTAINERS and text.count("[") + text.count("{") > FileLimits.CONTAINERS:
            raise json.JSONDecodeError(f"it has more than {FileLimits.CONTAINERS:,} lists and objects", "", 0)
        value = json.loads(text)
        return _without_surrogates(value) if _SURROGATE.search(text) else value
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
    """Yield the objects of a JSON Lines file, if it exists; skip lines that were cut short or altered."""
    if not path.exists():
        return
    with path.open(encoding="utf-8", errors="replace", newline="\n") as handle:
        for line in handle:
            with suppress(json.JSONDecodeError):
                value = parse_json(line)
                if isinstance(value, dict):
                    yield value


def sha256_of(path: Path) -> str:
    """Return the hexadecimal SHA-256 of a file; raises DataError if it cannot be read."""
    try:
        with path.open("rb") as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest()
    except OSError as error:
        raise file_error(path, error) from None


def expand_home(name: _Name) -> _Name:
    """Return a path or name whose leading `~`, or the one after `NAME=`, is the home folder, as in a shell."""
    match = _HOME.match(str(name))
    if match is None:
        return name
    try:
        expanded = match[1] + str(Path(str(name)[match.end(1) :]).expanduser())
    except RuntimeError:
        raise UsageError(
            f"{name}: this process has no home folder", repair="Set HOME, or write the whole path"
        ) from None
    return type(name)(expanded)


def check_name(path: Path) -> None:
    """Raise FolderError for a name that JSON, Parquet and libraries in Rust cannot store or open."""
    try:
        str(path.absolute()).encode()
    except UnicodeEncodeError:
        raise FolderError(f"the name of {str(path)!a} is not UTF-8", repair="Give it another name") from None


def without_surrogates(text: str) -> str:
    """Replace lone surrogates by U+FFFD, and join split pairs."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
