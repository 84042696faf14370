"""Read files at URLs (s3://, gs://, hdfs://, https://, …) as streams, without a copy on the disk.

fsspec does the transport and documents the packages and credentials of each scheme. A source is listed once,
before anything is read. Its identity is a hash of the names, sizes and checksums (S3: ETags) of its files, or that
of its `headwater.json`, if it has one. An http(s) URL is one file, never a folder. `destination` writes to URLs.
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

from headwater.errors import DataError, FolderError, HeadwaterError, ResourceError, StorageError, require_extra
from headwater.storage.provenance import MANIFEST, Input, Manifest, check_manifest, open_folder

_BLOCK_BYTES = 8 * 1024**2  # of one request


def is_remote(place: str | Path) -> bool:
    """Return whether a name is a URL; a Path never is."""
    return isinstance(place, str) and "://" in place


class RemoteFile:
    """One file at a URL, with the methods of a Path that the readers of this package call."""

    def __init__(self, url: str) -> None:
        self.url = url
        # The query of a URL is not part of the file name.
        path = PurePosixPath(url.partition("?")[0] if url.startswith(("http://", "https://")) else url)
        self.name, self.suffix = path.name, path.suffix

    def open(self, mode: str = "rb") -> IO[bytes]:
        """Open the file as a seekable stream of bytes; raises StorageError if the store fails."""
        if mode != "rb":
            raise ValueError("a remote file is read as bytes")
        with open_store(self.url) as (store, path):
            return io.BufferedReader(_Stream(self.url, store.open(path, "rb", block_size=_BLOCK_BYTES)))

    def read_bytes(self) -> bytes:
        """Return the content."""
        with self.open() as stream:
            return stream.read()

    def is_file(self) -> bool:
        """Return whether the file exists."""
        with open_store(self.url) as (store, path):
            return bool(store.isfile(path))

    def stat(self) -> SimpleNamespace:
        """Return an object with the size, as `st_size`."""
        with open_store(self.url) as (store, path):
            return SimpleNamespace(st_size=_size(self.url, store.info(path)))

    def __str__(self) -> str:
        return self.url


@dataclass(frozen=True, slots=True)
class RemoteListing:
    """The files of a remote source in order, (name below `root`, bytes), and its manifest, if it has one.

    The files of a Headwater folder are those that its manifest names.
    """

    root: str
    files: tuple[tuple[str, int], ...]
    input: Input
    manifest: Manifest | None = None

    def paths(self, suffix: str = "") -> list[Path]:
        """Return the files whose names end in `suffix`."""
        return [place(self.root, name) for name, _ in self.files if name.endswith(suffix)]


def list_source(url: str) -> RemoteListing:
    """List a URL: a file, a folder or a pattern with `*`.

    Raises DataError if nothing is there, FolderError for a Headwater folder that is not complete.
    """
    url = url.rstrip("/")
    with open_store(url) as (store, path):
        top, entries = _entries(store, path)
        sizes = {name: _size(url, info) for name, info in entries}
        marks = [[name, size, str(store.checksum(_join(top, name)))] for name, size in sizes.items()]
        root = store.unstrip_protocol(top) if top else f"{url.partition('://')[0]}://"
        own = posixpath.join(posixpath.relpath(path, top or "."), MANIFEST)
        manifest = None
        if own in sizes:
            manifest = check_manifest(json.loads(store.cat_file(_join(path, MANIFEST))), f"{url}/{MANIFEST}")
    if not sizes:
        raise DataError(f"nothing is at {url}", expected="a file or a folder", repair="Check the URL")
    if manifest is None:
        kind = "file" if [name for name in sizes if _join(top, name) == path] else "folder"
        identity = hashlib.sha256(json.dumps(marks).encode()).hexdigest()
        return RemoteListing(root, tuple(sizes.items()), Input(role="", path=url, kind=kind, identity=identity))
    folder = posixpath.dirname(own)
    wanted = {posixpath.join(folder, name): record.bytes for name, record in manifest.files.items()}
    if not manifest.complete or any(sizes.get(name) != size for name, size in wanted.items()):
        raise FolderError(f"{url} is not complete", repair="Upload it again with the command that made it")
    described = Input(role="", path=url, kind=manifest.kind, identity=manifest.identity)
    return RemoteListing(root, tuple(sorted(wanted.items())), described, manifest)


def folder_files(folder: str | Path, kind: str, suffix: str) -> list[Path]:
    """Return the files of a complete Headwater folder or URL of this kind that end in `suffix`, in order."""
    if isinstance(folder, str) and is_remote(folder):
        listing = list_source(folder)
        if listing.manifest is None:
            raise FolderError(f"{folder} has no {MANIFEST}", expected=f"a {kind} folder", repair="Check the URL")
        if listing.manifest.kind != kind:
            raise FolderError(f"{folder} is a {listing.manifest.kind} folder", expected=f"a {kind} folder")
        return listing.paths(suffix)
    names = sorted(open_folder(Path(folder), kind).files)
    return [Path(folder, name) for name in names if name.endswith(suffix)]


def place(root: str | Path, name: str) -> Path:
    """Return the file `name` below `root`, a folder or a URL."""
    if is_remote(root):
        return cast(Path, RemoteFile(f"{root}{'' if str(root).endswith('/') else '/'}{name}"))
    return Path(root, name)


def open_parquet(path: Path) -> Any:
    """Return pyarrow's ParquetFile for a local or remote file. Use it as a context manager."""
    import pyarrow.parquet

    return pyarrow.parquet.ParquetFile(path.open("rb") if isinstance(path, RemoteFile) else path)


def _entries(store: Any, path: str) -> tuple[str, list[tuple[str, dict[str, Any]]]]:
    """Return a top folder, and (name below it, the store's description) of the files at a path, in order."""
    if path.startswith(("http://", "https://")):
        return posixpath.dirname(path), [(posixpath.basename(path), store.info(path))]
    path = path.rstrip("/") or path
    pattern = "*" in path
    found = store.glob(path, detail=True) if pattern else store.find(path, detail=True)
    top = posixpath.dirname(path.partition("*")[0].rstrip("/") if pattern else path)
    entries = []
    for name, info in sorted(found.items()):
        relative = posixpath.relpath(name, top or ".") if top != "/" else name.lstrip("/")
        info = info or store.info(name)
        if info["type"] == "file" and not any(part.startswith(".") for part in relative.split("/")):
            entries.append((relative, info))
    return top, entries


def _join(top: str, name: str) -> str:
    return f"{top.rstrip('/')}/{name}" if top else name


def _size(url: str, info: dict[str, Any]) -> int:
    if info.get("size") is None:
        raise DataError(f"the server of {url} does not say how long it is", repair="Download it first")
    return int(info["size"])


class _Stream(io.RawIOBase):
    """A store's file that raises StorageError if the store fails, so that a failure is not taken for the end."""

    def __init__(self, url: str, inner: Any) -> None:
        self._url, self._inner = url, inner

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with store_errors(self._url):
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


@contextmanager
def open_store(url: str) -> Iterator[tuple[Any, str]]:
    """Yield fsspec's file system for a URL, and the path in it; turn the block's errors into Headwater's."""
    with require_extra("corpus", url):
        from fsspec.core import url_to_fs  # type: ignore[import-untyped]
    with store_errors(url):
        store, path = url_to_fs(url)
        yield store, str(path)


@contextmanager
def store_errors(url: str) -> Iterator[None]:
    """Turn the errors of a store, which differ from store to store, into Headwater's."""
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
