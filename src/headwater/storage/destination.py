"""Choose where a stage writes: a local folder or a URL.

The folder for a URL is written on this machine, below HEADWATER_CACHE, where a killed stage resumes. The finished
folder is uploaded and then removed here. Its `headwater.json` is uploaded last, so that a remote folder which has
one is complete. During the upload the file UPLOADING names the folder's identity, so that a cut upload resumes.
"""

from __future__ import annotations

import hashlib
import posixpath
import shutil
from pathlib import Path, PurePosixPath
from typing import Any

from headwater.errors import FolderError
from headwater.reading import file_at, is_remote, open_store, read_json
from headwater.storage.progress import Progress
from headwater.storage.provenance import MANIFEST, read_manifest
from headwater.storage.remote import UPLOADING, list_source
from headwater.storage.resources import cache_folder
from headwater.storage.stage import Stage

# Stores without folders: asked to make one, they would create a bucket with a mistyped name.
_BUCKETS = {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oci", "oss"}


class Destination:
    """Where an `--out` is: the stage writes to `folder`, which is then uploaded to `url` unless that is empty."""

    def __init__(self, out: str | Path) -> None:
        self.url = str(out).rstrip("/") if is_remote(out) else ""
        self.folder = _working_folder(self.url) if self.url else Path(out)

    def is_complete(self, stage: Stage, progress: Progress) -> bool:
        """Return whether the stage's output exists, and note it; upload what an earlier run finished here.

        Raises FolderError if something else is there.
        """
        if not self.url:
            return stage.is_complete(progress)
        if file_at(self.url, MANIFEST).is_file():
            manifest = list_source(self.url).manifest
            assert manifest is not None
            stage.compare(manifest, self.url)
            progress.note(f"{self.url} is complete already")
            return True
        complete = stage.is_complete()
        if complete:
            self.publish(progress)
        return complete

    def publish(self, progress: Progress) -> None:
        """Upload the finished folder to its URL, if it has one, and remove the local copy."""
        if not self.url:
            return
        progress.start("upload")
        _upload(self.folder, self.url)
        shutil.rmtree(self.folder.parent)
        progress.finish(self.url)

    def read_json(self, name: str) -> dict[str, Any]:
        """Read a JSON object of the finished folder, local or remote."""
        return dict(read_json(file_at(self.url or self.folder, name)))


def _working_folder(url: str) -> Path:
    digest = hashlib.sha256(url.encode()).hexdigest()[:12]
    return cache_folder() / "uploads" / digest / (PurePosixPath(url).name or "out")


def _upload(folder: Path, url: str) -> None:
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
