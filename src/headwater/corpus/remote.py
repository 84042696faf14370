"""Files behind a URL (s3://, gs://, hdfs://, …): sources are read as streams, a finished folder is uploaded.

fsspec does the transport; which packages and credentials a scheme needs is fsspec's own affair. Decided here: a
source is listed once and known by the names, sizes and check sums of its files; nothing of it is kept on the disk.
What is written goes to a folder of this machine first, where a killed build goes on, and is uploaded whole, its
`headwater.json` last: a folder that has one there is complete.
"""

from __future__ import annotations

import hashlib
import io
import json
import posixpath
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import IO, Any, cast

from headwater.errors import DataError, FolderError, HeadwaterError, ResourceError, StorageError
from headwater.provenance import MANIFEST
from headwater.resources import cache_folder

_BLOCK_BYTES = 8 * 1024**2  # asked of a store at a time


def is_remote(place: str | Path) -> bool:
    """Whether a name is a URL; a Path is none."""
    return isinstance(place, str) and "://" in place


class RemoteFile:
    """One file behind a URL: what readers ask of a Path, and what libraries ask of an open file."""

    closed = False

    def __init__(self, url: str) -> None:
        self.url = url
        self.name = PurePosixPath(url).name
        self.suffix = PurePosixPath(url).suffix
        self._own: IO[bytes] | None = None

    def open(self, mode: str = "rb") -> IO[bytes]:
        """The file as a stream of bytes that can be sought; raises StorageError where the store fails."""
        if mode != "rb":
            raise ValueError("a remote file is read as bytes")
        with _errors(self.url):
            store, path = _store(self.url)
            return io.BufferedReader(_Stream(self.url, store.open(path, "rb", block_size=_BLOCK_BYTES)))

    def read_bytes(self) -> bytes:
        """All of it."""
        with self.open() as stream:
            return stream.read()

    def stat(self) -> SimpleNamespace:
        """Its size, as `st_size`."""
        with _errors(self.url):
            store, path = _store(self.url)
            return SimpleNamespace(st_size=int(store.size(path)))

    def read(self, size: int = -1) -> bytes:
        """See io.BufferedReader; so do `seek` and `tell`."""
        return self._opened().read(size)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """See `read`."""
        return self._opened().seek(offset, whence)

    def tell(self) -> int:
        """See `read`."""
        return self._opened().tell()

    def seekable(self) -> bool:
        """Yes."""
        return True

    def _opened(self) -> IO[bytes]:
        if self._own is None:
            self._own = self.open()
        return self._own

    def __str__(self) -> str:
        return self.url


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a remote source in order: (name below `root`, bytes), and a hash of what they are."""

    root: str
    files: tuple[tuple[str, int], ...]
    identity: str
    manifest: dict[str, Any] | None = None

    def check(self, url: str) -> str:
        """The kind of a Headwater folder, empty for others; raises FolderError where files are missing."""
        if self.manifest is None:
            return ""
        sizes = {posixpath.basename(name): size for name, size in self.files}
        wanted = {name: record["bytes"] for name, record in self.manifest["files"].items() if "/" not in name}
        wrong = [name for name, size in wanted.items() if sizes.get(name) != size]
        if wrong or not self.manifest["complete"]:
            raise FolderError(f"{url} is not complete", repair="Upload it again with the command that made it")
        return str(self.manifest["kind"])


def list_source(url: str) -> Listing:
    """What lies at a URL: a file, a folder or a pattern with `*`; raises DataError where nothing does."""
    with _errors(url):
        store, path = _store(url)
        path = path.rstrip("/") or path
        found = store.glob(path, detail=True) if "*" in path else store.find(path, detail=True)
        top = posixpath.dirname(path.partition("*")[0].rstrip("/") if "*" in path else path)
        entries = sorted((name, info) for name, info in found.items() if info["type"] == "file")
        files, marks = [], []
        manifest = None
        for name, info in entries:
            relative = posixpath.relpath(name, top or ".") if top != "/" else name.lstrip("/")
            files.append((relative, int(info["size"] or 0)))
            marks.append([relative, info["size"], str(store.checksum(name))])
            if posixpath.dirname(name) == path and posixpath.basename(name) == MANIFEST:
                manifest = json.loads(store.cat_file(name))
        root = store.unstrip_protocol(top) if top else f"{url.partition('://')[0]}://"
    if not files:
        raise DataError(f"nothing lies at {url}", expected="a file or a folder", repair="Check the URL")
    identity = hashlib.sha256(json.dumps(marks).encode()).hexdigest()
    return Listing(root, tuple(files), identity, manifest)


def place(root: str, name: str) -> Path:
    """The file `name` below `root`, a folder or a URL."""
    if is_remote(root):
        # What the readers of this room ask of a path, a remote file has.
        return cast(Path, RemoteFile(f"{root}{'' if root.endswith('/') else '/'}{name}"))
    return Path(root, name)


def working_folder(url: str) -> Path:
    """Where a folder is made that belongs at a URL: the same for the same URL."""
    digest = hashlib.sha256(url.rstrip("/").encode()).hexdigest()[:12]
    return cache_folder() / "uploads" / digest / (PurePosixPath(url.rstrip("/")).name or "out")


def read_manifest_at(url: str) -> dict[str, Any] | None:
    """The `headwater.json` of a folder behind a URL, None where there is none."""
    with _errors(url):
        store, path = _store(url)
        name = f"{path.rstrip('/')}/{MANIFEST}"
        found: dict[str, Any] | None = json.loads(store.cat_file(name)) if store.exists(name) else None
    return found


def upload(folder: Path, url: str) -> None:
    """Copy a finished folder to a URL, its manifest last; files that are there already in their size stay."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)
    with _errors(url):
        store, base = _store(url)
        base = base.rstrip("/")
        store.makedirs(base, exist_ok=True)
        for path in [*files, folder / MANIFEST]:
            target = f"{base}/{path.relative_to(folder).as_posix()}"
            if path.name != MANIFEST and store.exists(target) and store.size(target) == path.stat().st_size:
                continue
            store.makedirs(posixpath.dirname(target), exist_ok=True)
            store.put_file(str(path), target)


class _Stream(io.RawIOBase):
    """A store's file, whose failures are a StorageError: not the end of the file, and no damage to it."""

    def __init__(self, url: str, inner: Any) -> None:
        self._url, self._inner = url, inner

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with _errors(self._url):
            data = self._inner.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return int(self._inner.seek(offset, whence))

    def tell(self) -> int:
        return int(self._inner.tell())

    def close(self) -> None:
        if not self.closed:
            self._inner.close()
        super().close()


def _store(url: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs  # type: ignore[import-untyped]
    except ImportError:
        raise ResourceError(f"{url} needs the package fsspec", repair="pip install 'headwater[corpus]'") from None
    store, path = url_to_fs(url)
    return store, str(path)


@contextmanager
def _errors(url: str) -> Iterator[None]:
    """Whatever a store raises, and each store has errors of its own, in the terms of this project."""
    try:
        yield
    except HeadwaterError:
        raise
    except ImportError as error:
        raise ResourceError(
            f"{url} cannot be reached: {error}", repair="Install the package that it names"
        ) from None
    except FileNotFoundError:
        raise DataError(f"{url} does not exist", repair="Check the URL") from None
    except ValueError as error:
        raise DataError(f"{url} cannot be read: {error}", repair="Check the URL") from None
    except Exception as error:
        raise StorageError(
            f"{url} cannot be reached: {type(error).__name__}: {error}"[:500],
            repair="Check network and credentials, and run the same command again: what is complete is kept",
        ) from None
