"""A corpus built for a place behind a URL: made here, where a killed build goes on, then uploaded."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headwater.corpus.pipeline import build, read_funnel
from headwater.corpus.recipes import BuildConfig
from headwater.corpus.remote import read_manifest_at, upload, working_folder
from headwater.errors import FolderError
from headwater.progress import SILENT, Progress
from headwater.provenance import read_manifest


def build_at(
    sources: Sequence[str | Path],
    url: str,
    config: BuildConfig | None = None,
    *,
    progress: Progress = SILENT,
    **options: Any,
) -> dict[str, Any]:
    """`build` with an `out` behind a URL; returns the funnel. What was made here goes when it has been uploaded.

    Raises FolderError where another folder lies at the URL, StorageError where the store fails: run again, the
    build is found complete and what was uploaded is not sent a second time.
    """
    folder = working_folder(url)
    folder.parent.mkdir(parents=True, exist_ok=True)
    there = read_manifest_at(url)
    build(sources, folder, config, progress=progress, **options)
    made = read_manifest(folder)
    if there is not None and there.get("identity") != made.identity:
        raise FolderError(f"{url} already holds something else", repair="Choose another --out, or remove it first")
    funnel = read_funnel(folder)
    progress.start("upload")
    if there is None:
        upload(folder, url)
    progress.finish(url)
    shutil.rmtree(folder.parent)
    return funnel
