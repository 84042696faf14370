"""Bring one input at a URL (s3://, gs://, hdfs://, https://, …) to this machine."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path, PurePosixPath
from typing import TypeGuard

from headwater.errors import DataError, HeadwaterError, ResourceError, require_extra
from headwater.storage.files import atomic_path
from headwater.storage.resources import cache_folder


def is_url(source: object) -> TypeGuard[str]:
    """Return whether a name is a URL; a Path never is."""
    return isinstance(source, str) and "://" in source


def download(url: str) -> Path:
    """Return a copy, below HEADWATER_CACHE, of the file at a URL; a copy of the same file is used again.

    fsspec does the transport and documents the packages and credentials of each scheme. Raises DataError if there
    is no file at the URL, ResourceError if it cannot be reached.
    """
    with require_extra("corpus", url):
        from fsspec.core import url_to_fs  # type: ignore[import-untyped]
    try:
        store, path = url_to_fs(url)
        if not store.isfile(path):
            raise DataError(
                f"{url} is not a file", expected="one file", repair="Copy or mount a folder, and name it here"
            )
        described = json.dumps([url, store.info(path)], default=str, sort_keys=True)
        digest = hashlib.sha256(described.encode()).hexdigest()[:16]
        copy = cache_folder() / "downloads" / digest / PurePosixPath(url.partition("?")[0]).name
        if not copy.is_file():
            copy.parent.mkdir(parents=True, exist_ok=True)
            with atomic_path(copy) as made:
                store.get_file(path, str(made))
    except HeadwaterError:
        raise
    except Exception as error:  # stores raise errors of their own
        repair = "Check the URL, network and credentials"
        raise ResourceError(f"{url} cannot be read: {error}", repair=repair) from None
    return copy
