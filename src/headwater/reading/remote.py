"""Read files at URLs (s3://, gs://, hdfs://, https://, …) as streams, without a copy on the disk.

fsspec does the transport and documents the packages and credentials of each scheme.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import IO, Any, TypeGuard

from headwater.errors import DataError, HeadwaterError, ResourceError, StorageError, require_extra

_BLOCK_BYTES = 8 * 1024**2  # of one request


def is_remote(source: object) -> TypeGuard[str]:
    """Return whether a name is a URL; a Path never is."""
    return isinstance(source, str) and "://" in source


class RemoteFile:
    """One file at a URL, with the methods of a Path that readers call."""

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
            return SimpleNamespace(st_size=remote_size(self.url, store.info(path)))

    def __str__(self) -> str:
        return self.url


AnyFile = Path | RemoteFile


def file_at(root: str | Path, name: str) -> AnyFile:
    """Return the file `name` below `root`, a folder or a URL."""
    if is_remote(root):
        return RemoteFile(f"{root}{'' if root.endswith('/') else '/'}{name}")
    return Path(root, name)


def remote_size(url: str, info: dict[str, Any]) -> int:
    """Return the bytes of a file from its description by the store; raises DataError if it does not say."""
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
