"""List what is at a URL (s3://, gs://, hdfs://, https://, …) once, before anything is read; upload a folder.

The identity of a source is a hash of the names, sizes and checksums (S3: ETags) of its files, or that of its
`headwater.json`, if it has one. An http(s) URL is one file, never a folder.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from headwater.errors import DataError, FolderError
from headwater.reading import AnyFile, file_at, is_remote, open_store, remote_size
from headwater.storage.provenance import (
    MANIFEST,
    UPLOADING,
    Input,
    Manifest,
    check_manifest,
    half_uploaded,
    open_folder,
    read_manifest,
)

# Stores without folders: asked to make one, they would create a bucket with a mistyped name.
_BUCKETS = {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oci", "oss"}


@dataclass(frozen=True, slots=True)
class RemoteListing:
    """The files of a remote source in order, (name below `root`, bytes), and its manifest, if it has one.

    The files of a Headwater folder are those that its manifest names. others: the folders that Headwater wrote
    inside a user's folder, whose files are left out, as on this machine.
    """

    root: str
    files: tuple[tuple[str, int], ...]
    input: Input
    manifest: Manifest | None = None
    others: tuple[str, ...] = ()

    def paths(self, suffix: str = "") -> list[AnyFile]:
        """Return the files whose names end in `suffix`."""
        return [file_at(self.root, name) for name, _ in self.files if name.endswith(suffix)]


def list_source(url: str) -> RemoteListing:
    """List a URL: a file, a folder or a pattern with `*`.

    Raises DataError if nothing is there, FolderError for a Headwater folder that is not complete, also one in a
    folder, whose upload has not ended.
    """
    url = url.rstrip("/")
    with open_store(url) as (store, path):
        top, entries = _entries(store, path)
        sizes = {name: remote_size(url, info) for name, info in entries}
        marks: list[list[Any]] = [
            [name, sizes[name], _checksum(store, posixpath.join(top, name), info)] for name, info in entries
        ]
        root = store.unstrip_protocol(top) if top else f"{url.partition('://')[0]}://"
        own = posixpath.join(posixpath.relpath(path, top or "."), MANIFEST)
        manifest = None
        if own in sizes:
            manifest = check_manifest(
                json.loads(store.cat_file(posixpath.join(path, MANIFEST))), f"{url}/{MANIFEST}"
            )
    if not sizes:
        raise DataError(f"nothing is at {url}", expected="a file or a folder", repair="Check the URL")
    if manifest is None:
        kind = "file" if [name for name in sizes if posixpath.join(top, name) == path] else "folder"
        others = {
            PurePosixPath(name).parent for name in sizes if posixpath.basename(name) == MANIFEST and kind != "file"
        }
        marks = [mark for mark in marks if others.isdisjoint(PurePosixPath(mark[0]).parents)]
        identity = hashlib.sha256(json.dumps(marks).encode()).hexdigest()
        files = tuple((name, sizes[name]) for name, *_ in marks)
        described = Input(role="", path=url, kind=kind, identity=identity)
        return RemoteListing(root, files, described, others=tuple(sorted(map(str, others))))
    folder = posixpath.dirname(own)
    wanted = {posixpath.join(folder, name): record.bytes for name, record in manifest.files.items()}
    if not manifest.complete or any(sizes.get(name) != size for name, size in wanted.items()):
        raise FolderError(f"{url} is not complete", repair="Upload it again with the command that made it")
    described = Input(role="", path=url, kind=manifest.kind, identity=manifest.identity)
    return RemoteListing(root, tuple(sorted(wanted.items())), described, manifest)


def folder_files(folder: str | Path, kind: str, suffix: str) -> list[AnyFile]:
    """Return the files of a complete Headwater folder or URL of this kind that end in `suffix`, in order."""
    if is_remote(folder):
        listing = list_source(folder)
        if listing.manifest is None:
            raise FolderError(f"{folder} has no {MANIFEST}", expected=f"a {kind} folder", repair="Check the URL")
        if listing.manifest.kind != kind:
            raise FolderError(f"{folder} is a {listing.manifest.kind} folder", expected=f"a {kind} folder")
        return listing.paths(suffix)
    names = sorted(open_folder(Path(folder), kind).files)
    return [Path(folder, name) for name in names if name.endswith(suffix)]


def _entries(store: Any, path: str) -> tuple[str, list[tuple[str, dict[str, Any]]]]:
    """Return a top folder, and (name below it, the store's description) of the files at a path, in order."""
    if path.startswith(("http://", "https://")):
        return posixpath.dirname(path), [(posixpath.basename(path), store.info(path))]
    path = path.rstrip("/") or path
    pattern = "*" in path
    listed = store.glob(path, detail=True) if pattern else store.find(path, detail=True)
    top = posixpath.dirname(path.partition("*")[0].rstrip("/") if pattern else path)
    marks = [name for name in listed if posixpath.basename(name) == UPLOADING]
    for folder in (posixpath.dirname(path), posixpath.dirname(posixpath.dirname(path)))[: 1 + pattern]:
        if folder:  # a part of a folder is named, or a pattern, which does not find the mark
            # S3's answer for what is missing, without the right to list; the Hub's above a repository
            with suppress(PermissionError, FileNotFoundError, ValueError):
                marks += store.glob(posixpath.join(folder, UPLOADING))
    for folder in map(posixpath.dirname, marks):
        if not (f"{folder}/{MANIFEST}" in listed or store.exists(f"{folder}/{MANIFEST}")):
            raise half_uploaded(store.unstrip_protocol(folder))
    entries = []
    for name, info in sorted(listed.items()):
        relative = posixpath.relpath(name, top or ".") if top != "/" else name.lstrip("/")
        info = info or store.info(name)
        if info["type"] == "file" and not any(part.startswith(".") for part in relative.split("/")):
            entries.append((relative, info))
    return top, entries


def _checksum(store: Any, path: str, info: dict[str, Any]) -> str:
    """Return the checksum of a file by its store.

    Of S3 it is the listing's ETag, as s3fs computes it; asked for each file, s3fs searches the whole listing.
    """
    try:
        return str(int(info["ETag"].strip('"').partition("-")[0], 16))
    except (KeyError, ValueError, AttributeError):
        return str(store.checksum(path))


def upload(folder: Path, url: str) -> None:
    """Copy a finished folder to a URL, its manifest last; skip the files that an earlier attempt uploaded."""
    manifest = read_manifest(folder)
    identity = manifest.identity.encode()
    with open_store(url) as (store, path):
        base = path.rstrip("/")
        marker = f"{base}/{UPLOADING}"
        begun = store.cat_file(marker) if store.exists(marker) else None
        if begun is None and store.exists(base) and store.find(base):
            raise FolderError(
                f"{url} already contains files that are not Headwater's",
                expected="an empty folder",
                repair="Choose another output path",
            )
        folders = url.partition("://")[0] not in _BUCKETS
        if folders:
            store.makedirs(base, exist_ok=True)
        if begun != identity:
            # Another folder's files go first: with our marker, a file of the right size counts as uploaded.
            for name in store.find(base) if begun is not None else ():
                if posixpath.basename(name) != UPLOADING:
                    store.rm_file(name)
            store.pipe_file(marker, identity)
        for name, record in sorted(manifest.files.items()):
            target = f"{base}/{name}"
            if begun == identity and store.exists(target) and store.size(target) == record.bytes:
                continue
            if folders:
                store.makedirs(posixpath.dirname(target), exist_ok=True)
            store.put_file(str(folder / name), target)
        store.put_file(str(folder / MANIFEST), f"{base}/{MANIFEST}")
        store.rm_file(marker)
