"""Files of token ids on a disk or at a URL, of which a bounded number is open, or a bounded part kept here."""

from __future__ import annotations

import hashlib
import io
import os
import threading
import time
import weakref
import zlib
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import numpy as np

from headwater.display import counted
from headwater.errors import DataError, FolderError, StorageError
from headwater.reading import is_remote, open_store
from headwater.storage import (
    Manifest,
    atomic_path,
    cache_folder,
    list_source,
    open_folder,
    read_manifest,
    storage_errors,
)

T = TypeVar("T")
MOST_OPEN = 64  # files; the usual limit of a process is 1,024
BLOCK_BYTES = 1 << 20  # of a request to a store
FOLDER_BLOCKS = 256  # in one folder: to write a file costs time by the number of the others
CACHED_BYTES = 64 << 30  # of blocks of all tokens folders on this machine
ATTEMPTS, WAIT_SECONDS = 4, 2.0  # at a store that fails; the wait doubles
ORIGIN = "origin.url"  # in the folder here of tokens at a URL
_RESUME = "Pack the corpus again; the same command then resumes from the last checkpoint"
_HEADER_BYTES = 4096  # at most
_CHECKSUM_BYTES = 4  # CRC-32, after a block
_CHECKED_IDS = 1 << 24  # ids that `check_ids` reads at a time
_READ_ONLY = os.O_RDONLY | getattr(os, "O_BINARY", 0)


class OpenFiles:
    """Read ranges of a folder's files; those that were read last stay open, at most MOST_OPEN. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._lock = folder, threading.Lock()
        self._open: OrderedDict[str, int] = OrderedDict()
        self._identities: dict[str, tuple[int, int]] = {}  # device and inode of each file
        weakref.finalize(self, _close_all, self._open)

    def path(self, name: str) -> str:
        """Return the path of a file, for messages."""
        return str(self._folder / name)

    def size(self, name: str) -> int:
        """Return the bytes of a file."""
        return (self._folder / name).stat().st_size

    def read(self, name: str, size: int, offset: int) -> bytes:
        """Return up to `size` bytes of a file, fewer at its end.

        Raises FolderError if another file has its name since it was first read.
        """
        with self._lock:
            descriptor = self._open.pop(name, None)
            if descriptor is None:
                if len(self._open) >= MOST_OPEN:
                    os.close(self._open.popitem(last=False)[1])
                descriptor = os.open(self._folder / name, _READ_ONLY)
            self._open[name] = descriptor
            found = os.fstat(descriptor)
            identity = found.st_dev, found.st_ino
            if self._identities.setdefault(name, identity) != identity:
                raise FolderError(f"{self.path(name)} was replaced while it was read", repair=_RESUME)
            os.lseek(descriptor, offset, os.SEEK_SET)
            return os.read(descriptor, size)


class StoredFiles:
    """Read ranges of the files of a tokens folder at a URL, in blocks that are kept on this machine. Thread-safe.

    The blocks of all such folders have at most CACHED_BYTES: those that were read longest ago are removed. The
    checksum of a block is verified when this process first reads it.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        """folder: what `local_tokens` returned."""
        self._folder, self._files = folder, manifest.files
        self._written = CACHED_BYTES  # by this process since it removed old blocks: the first block removes some
        self._checked: set[Path] = set()
        self._url = (folder / ORIGIN).read_text(encoding="utf-8")

    def path(self, name: str) -> str:
        """Return the URL of a file, for messages."""
        return f"{self._url}/{name}"

    def size(self, name: str) -> int:
        """Return the bytes of a file."""
        return self._files[name].bytes

    def read(self, name: str, size: int, offset: int) -> bytes:
        """Return up to `size` bytes of a file, fewer at its end; raises StorageError if the store fails."""
        end = min(offset + size, self.size(name))
        blocks = range(offset // BLOCK_BYTES, -(-end // BLOCK_BYTES))
        return b"".join(self._read_block(name, number, offset, end) for number in blocks)

    def _read_block(self, name: str, number: int, start: int, end: int) -> bytes:
        """Return the bytes of [start, end) in a file that are in one of its blocks."""
        path = self._folder / name / str(number // FOLDER_BLOCKS) / str(number)
        first = number * BLOCK_BYTES
        size = min(BLOCK_BYTES, self.size(name) - first)
        start, end = max(start - first, 0), min(end - first, size)
        is_checked = path in self._checked  # asked first: a thread may replace a damaged file that is open here
        with suppress(OSError), path.open("rb", buffering=0) as file:  # not kept yet, or its disk fails
            if is_checked:
                file.seek(start)
                content = file.read(end - start)
                is_intact = len(content) == end - start
            else:
                block, checksum = file.read(size), file.read()
                is_intact = checksum == _checksum(block)
                content = block[start:end]
            if is_intact:
                self._checked.add(path)
                with suppress(OSError):  # another user's
                    os.utime(path)
                return content
        block = read_stored(self.path(name), first, first + size)
        if len(block) != size:
            raise FolderError(f"{self.path(name)} was cut short while it was read", repair=_RESUME)
        self._keep(path, block)
        return block[start:end]

    def _keep(self, path: Path, block: bytes) -> None:
        with suppress(OSError, StorageError):  # a full disk keeps nothing
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_path(path, flushed=False) as made:  # its checksum shows what a power cut damaged
                made.write_bytes(block + _checksum(block))
            self._checked.add(path)
        self._written += len(block)
        if self._written > CACHED_BYTES // 64:
            self._written = 0
            _remove_old_blocks()


def _checksum(block: bytes) -> bytes:
    return zlib.crc32(block).to_bytes(_CHECKSUM_BYTES, "little")


def _remove_old_blocks() -> None:
    blocks = []
    for path in _tokens_cache().glob("*/*.npy/*/*[0-9]"):
        with suppress(OSError):  # another process removed it
            found = path.stat()
            blocks.append((found.st_mtime_ns, found.st_size, path))
    # An eighth stays free for what eight processes write until they do this again.
    excess = sum(size for _, size, _ in blocks) - CACHED_BYTES * 7 // 8
    for _, size, path in sorted(blocks):
        if excess <= 0:
            return
        excess -= size
        with suppress(OSError):  # also one that another process reads, on Windows
            path.unlink()


def _tokens_cache() -> Path:
    return cache_folder() / "tokens"


def read_stored(url: str, start: int | None = None, end: int | None = None) -> bytes:
    """Return the bytes [start, end) of a file at a URL."""

    def read() -> bytes:
        with open_store(url) as (store, path):
            return bytes(store.cat_file(path, start=start, end=end))

    return _with_retries(read)


def _with_retries(request: Callable[[], T]) -> T:
    """Return what a request to a store returns; repeat one that fails, as with the status 503."""
    for attempt in range(ATTEMPTS - 1):
        with suppress(StorageError):
            return request()
        time.sleep(WAIT_SECONDS * 2**attempt)
    return request()


def local_tokens(tokens: str | Path) -> Path:
    """Return a tokens folder; for a URL the folder here with its manifest, tokenizer and blocks of its files.

    Raises DataError if nothing is at the URL, FolderError if that is not a complete tokens folder, StorageError if
    the store fails.
    """
    if not is_remote(tokens):
        return Path(tokens)
    url = tokens.rstrip("/")
    listing = _with_retries(lambda: list_source(url))
    if listing.manifest is None or listing.manifest.kind != "tokens":
        raise FolderError(f"{url} is a {listing.input.kind}", expected="a tokens folder", repair="Check the URL")
    key = hashlib.sha256(f"{url}\n{listing.manifest.identity}".encode()).hexdigest()
    folder = _tokens_cache() / key[:16]
    if folder.exists():
        return folder
    try:
        with storage_errors(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(folder, folder=True) as work:
            (work / "tokenizer").mkdir()
            for name in ("headwater.json", *listing.manifest.files):
                if name == "headwater.json" or name.startswith("tokenizer/"):
                    (work / name).write_bytes(read_stored(f"{url}/{name}"))
            (work / ORIGIN).write_text(url, encoding="utf-8")
    except StorageError:
        if not folder.exists():  # else another rank made it meanwhile
            raise
    return folder


def origin_of(tokens: Path) -> str | Path:
    """Return the URL of a folder that `local_tokens` returned; another folder itself."""
    origin = tokens / ORIGIN
    return origin.read_text(encoding="utf-8") if origin.is_file() else tokens


def open_tokens(tokens: Path) -> Manifest:
    """Return the manifest of a tokens folder, whose files are checked, but not those at a URL."""
    return read_manifest(tokens) if (tokens / ORIGIN).is_file() else open_folder(tokens, "tokens")


def files_of(tokens: Path, manifest: Manifest) -> OpenFiles | StoredFiles:
    """Return what reads the files of a tokens folder."""
    return StoredFiles(tokens, manifest) if (tokens / ORIGIN).is_file() else OpenFiles(tokens)


class Shard:
    """The ids of one file; `len` is their number.

    The file is read, not mapped: if it is cut short or its disk fails, a read raises an error, where access to a
    mapping would end the process (SIGBUS). A file that replaces it is not read.
    """

    def __init__(self, name: str, files: OpenFiles | StoredFiles) -> None:
        """Read the header.

        Raises FolderError if the file is not one row of uint16 or uint32, DataError if a store does not have it.
        """
        self._name, self._files, self.path = name, files, files.path(name)
        try:
            header, size = io.BytesIO(files.read(name, _HEADER_BYTES, 0)), files.size(name)
            version = np.lib.format.read_magic(header)
            read_header = np.lib.format.read_array_header_1_0
            if version != (1, 0):
                read_header = np.lib.format.read_array_header_2_0
            shape, _, self._dtype = read_header(header)
        except OSError as error:
            raise FolderError(f"{self.path} cannot be read: {error.strerror}") from None
        except DataError:  # a store does not have the file
            raise
        except ValueError as error:
            raise FolderError(f"{self.path} is damaged: {error}", repair="Pack the corpus again") from None
        if len(shape) != 1 or self._dtype not in (np.uint16, np.uint32):
            raise FolderError(f"{self.path} has {self._dtype} {shape}", expected="one row of uint16 or uint32")
        self._start, self._length = header.tell(), int(shape[0])
        missing = self._start + self._length * self._dtype.itemsize - size
        if missing > 0:
            raise FolderError(
                f"{self.path} is damaged: {counted(missing, 'byte')} are missing", repair="Pack the corpus again"
            )

    def __len__(self) -> int:
        return self._length

    def read(self, start: int, end: int) -> np.ndarray:
        """Return the ids in the half-open interval [start, end); raises FolderError if it cannot."""
        size = self._dtype.itemsize * (end - start)
        try:
            content = self._files.read(self._name, size, self._start + self._dtype.itemsize * start)
        except OSError as error:
            raise FolderError(f"{self.path} cannot be read: {error.strerror}", repair=_RESUME) from None
        if len(content) < size:
            raise FolderError(f"{self.path} was cut short while it was read", repair=_RESUME)
        return np.frombuffer(content, self._dtype)


def check_ids(ids: np.ndarray, vocabulary: int, path: Path | str, first: int = 0) -> None:
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


def _close_all(files: OrderedDict[str, int]) -> None:
    while files:
        os.close(files.popitem()[1])
