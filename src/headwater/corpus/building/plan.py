"""The plan of a build: its sources, divided into tasks. A task names files; nothing is read here."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from headwater.corpus.folder import shard_paths
from headwater.corpus.sources import python_docs
from headwater.corpus.sources.pages import SUFFIXES as PAGE_SUFFIXES
from headwater.corpus.sources.pages import holds_pages
from headwater.corpus.sources.text import SUFFIXES, holds_text
from headwater.errors import DataError
from headwater.reading import check_name, sha256_of, without_surrogates
from headwater.storage import (
    Input,
    download,
    folder_files,
    has_manifest,
    is_url,
    read_manifest,
    user_files,
)

BUILT_IN = (python_docs.SOURCE,)
PARTS = "parts"  # the first phase of a build; `runner` has the others
_PAGES = ".warc.gz"  # the files with pages in a folder that `corpus fetch` wrote
_EXPECTED = (
    f"files that end in {', '.join(SUFFIXES)} (also .gz, .zst, .xz, .bz2 of these), {', '.join(PAGE_SUFFIXES)}"
)
# Files are grouped into one task up to these limits; a larger file is a task of its own.
TASK_BYTES = 16 * 1024**2
TASK_FILES = 1000


@dataclass(frozen=True, slots=True)
class BuildTask:
    """Work for one worker; `files` are relative to `root`; `alone`: no other file is read in this build."""

    source: int
    kind: Literal["python-docs", "corpus", "files"]
    root: str
    files: tuple[str, ...] = ()
    alone: bool = False


@dataclass(frozen=True, slots=True)
class BuildSource:
    """A source of a build.

    named: as the user named it; name: in `funnel.json`; path: `named`, independent of the current folder; input:
    for the manifest of the corpus, None for a built-in source; skipped: what is not read in a folder.
    """

    named: str
    name: str
    path: str
    input: Path | Input | None
    tasks: list[BuildTask]
    skipped: list[str] = field(default_factory=list)


def open_source(number: int, source: str | Path, *, alone: bool = True) -> BuildSource:
    """Return the source that a user named, the only one if `alone`; raises DataError if it cannot be used."""
    named = str(source)
    if named in BUILT_IN:
        return BuildSource(named, named, named, None, [BuildTask(number, "python-docs", "")])
    if is_url(source):
        copy = download(source)
        described = Input(role="", path=source, kind="file", identity=sha256_of(copy))
        tasks = [BuildTask(number, "files", str(copy.parent), (copy.name,), alone)]
        return BuildSource(source, copy.name, source, described, tasks)
    path = Path(source)
    absolute = path.absolute()
    name = Path(os.path.normpath(absolute)).name  # of `.`: that of the current folder
    kind = read_manifest(path).kind if has_manifest(path) else ""
    if kind and kind != "pages":
        shards = [os.path.relpath(shard, path) for shard in shard_paths(path)]
        tasks = [BuildTask(number, "corpus", str(absolute), (shard,)) for shard in shards]
        return BuildSource(named, name, str(absolute), path, tasks)
    skipped: list[str] = []
    if kind:
        files = [file.absolute() for file in folder_files(path, "pages", _PAGES)]
    else:
        chosen, skipped = _text_files(path)
        files = [file.absolute() for file in chosen]
    sizes = [(file.relative_to(absolute.parent).as_posix(), file.stat().st_size) for file in files]
    alone = alone and path.is_file()
    tasks = [BuildTask(number, "files", str(absolute.parent), names, alone) for names in _groups(sizes)]
    return BuildSource(named, name, str(absolute), path, tasks, skipped)


def _text_files(source: Path) -> tuple[list[Path], list[str]]:
    """Return the files of a source in order, and the names of skipped items: other files, folders and links."""
    if source.is_file():
        check_name(source)
        return [source], []
    if not source.is_dir():
        problem = "is neither a file nor a folder" if source.exists() else "does not exist"
        expected = f"a file, a folder or {' or '.join(BUILT_IN)}"
        raise DataError(f"{source} {problem}", expected=expected, repair="Check the path")
    every, left_out = user_files(source)
    named = [path for path in every if str(path) == without_surrogates(str(path))]  # in UTF-8
    files = [path for path in named if holds_text(path) or holds_pages(path)]
    if not files:
        raise DataError(
            f"{source} contains no text file",
            expected=_EXPECTED,
            repair="Name the files themselves if they have other endings",
        )
    read = {*files}
    others = [path for path in every if path not in read]
    names = [path.relative_to(source).as_posix() for path in others]
    names += [f"{path.relative_to(source).as_posix()}{'/' if path.is_dir() else ''}" for path in left_out]
    return files, [without_surrogates(name) for name in names]


def _groups(files: Iterable[tuple[str, int]]) -> Iterator[tuple[str, ...]]:
    """Group the names of files, given with their sizes, into tasks."""
    group: list[str] = []
    size = 0
    for name, length in files:
        if group and (size + length > TASK_BYTES or len(group) >= TASK_FILES):
            yield tuple(group)
            group, size = [], 0
        group.append(name)
        size += length
    if group:
        yield tuple(group)
