"""The plan of a build: its sources, divided into tasks, saved in a folder next to the corpus.

A task names files; nothing is read here. The plan is a file of JSON lines, the configuration first and then one
task a line, with the offsets of its lines in a second file: a worker, here or on a machine that shares the disk,
reads the line of its task. Each line has a checksum.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import numpy as np

from headwater.corpus.building.recipes import BuildConfig
from headwater.corpus.folder import shard_paths
from headwater.corpus.sources import python_docs
from headwater.corpus.sources.pages import SUFFIXES as PAGE_SUFFIXES
from headwater.corpus.sources.pages import holds_pages
from headwater.corpus.sources.text import SEPARATOR, SUFFIXES, holds_text
from headwater.corpus.task_workers import damaged, sealed, unsealed
from headwater.errors import DataError
from headwater.reading import check_name, is_remote, without_surrogates
from headwater.storage import (
    Input,
    atomic_write,
    folder_files,
    has_manifest,
    list_source,
    read_manifest,
    save_array,
    user_files,
)

BUILT_IN = (python_docs.SOURCE,)
PARTS = "parts"  # the first phase of a build; `phases` has the others
PLAN, OFFSETS = "plan.jsonl", "plan.offsets.npy"
_PAGES = ".warc.gz"  # the files with pages in a folder that `corpus fetch` wrote
_EXPECTED = (
    f"files that end in {', '.join(SUFFIXES)} (also .gz, .zst, .xz, .bz2 of these), {', '.join(PAGE_SUFFIXES)}"
)
# Files are grouped into one task up to these limits; a larger file is a task of its own.
TASK_BYTES = 16 * 1024**2
TASK_FILES = 1000


# A file of so many lines without a blank one, of so many bytes on average, may have a text a line.
_NOTED_LINES, _SHORT_LINE, _NOTED_BYTES = 50, 400, 1 << 16


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

    given: as the user named it; name: in `funnel.json`; path: `given`, independent of the current folder; input:
    for the manifest of the corpus, None for a built-in source; skipped: what is not read in a folder.
    """

    given: str
    name: str
    path: str
    input: Path | Input | None
    tasks: list[BuildTask]
    skipped: list[str] = field(default_factory=list)


def open_source(number: int, given: str | Path, *, alone: bool = True) -> BuildSource:
    """Return the source that a user named, the only one if `alone`; raises DataError if it cannot be used."""
    named = str(given)
    if named in BUILT_IN:
        return BuildSource(named, named, named, None, [BuildTask(number, "python-docs", "")])
    if is_remote(given):
        return _remote_source(number, given, alone=alone)
    path = Path(given)
    absolute = path.absolute()
    name = Path(os.path.normpath(absolute)).name  # of `.`: that of the current folder
    kind = read_manifest(path).kind if has_manifest(path) else ""
    if kind and kind != "pages":
        shards = [os.path.relpath(str(shard), path) for shard in shard_paths(path)]
        tasks = [BuildTask(number, "corpus", str(absolute), (shard,)) for shard in shards]
        return BuildSource(named, name, str(absolute), path, tasks)
    skipped: list[str] = []
    if kind:
        files = [Path(str(file)).absolute() for file in folder_files(path, "pages", _PAGES)]
    else:
        chosen, skipped = _text_files(path)
        files = [file.absolute() for file in chosen]
    for file in files:
        check_name(file)
    sizes = [(file.relative_to(absolute.parent).as_posix(), file.stat().st_size) for file in files]
    alone = alone and path.is_file()
    tasks = [BuildTask(number, "files", str(absolute.parent), names, alone) for names in _groups(sizes)]
    return BuildSource(named, name, str(absolute), path, tasks, skipped)


def lines_note(path: Path) -> str:
    """Return a note about a `.txt` file of many short lines, which is one document; "" for any other file."""
    if path.suffix.lower() != ".txt" or not path.is_file():
        return ""
    try:
        with path.open("rb") as handle:
            beginning = handle.read(_NOTED_BYTES)
    except OSError:  # the reader of the file says so
        return ""
    lines = beginning.splitlines()[:-1] if b"\0" not in beginning else []
    whole = len(lines) < _NOTED_LINES or not all(map(bytes.strip, lines)) or SEPARATOR.encode() in beginning
    if whole or len(beginning) > _SHORT_LINE * len(lines):
        return ""
    return (
        f"{path} is one document, however many lines it has; if each line is a text of its own, put {SEPARATOR} "
        "after it, or save the file as .csv with the header text"
    )


def _remote_source(number: int, url: str, *, alone: bool) -> BuildSource:
    listing = list_source(url)
    kind, root = listing.input.kind, listing.root
    skipped = [f"{folder}/" for folder in listing.others]
    if kind == "corpus":
        shards = [name for name, _ in listing.files if name.endswith(".parquet")]
        tasks = [BuildTask(number, "corpus", root, (name,)) for name in shards]
    elif kind in {"file", "folder", "pages"}:
        is_file = kind == "file"
        files = [entry for entry in listing.files if is_file or _is_source(PurePosixPath(entry[0]), kind)]
        skipped += [name for name, _ in sorted({*listing.files} - {*files})] if kind == "folder" else []
        if not files:
            raise DataError(f"{listing.input.path} contains no text file", expected=_EXPECTED)
        tasks = [BuildTask(number, "files", root, names, alone and is_file) for names in _groups(files)]
    else:
        raise DataError(f"{listing.input.path} is a {kind} folder", expected="files with text, pages or a corpus")
    return BuildSource(url, Path(url).name, url, listing.input, tasks, skipped)


def _is_source(path: Path | PurePosixPath, kind: str = "folder") -> bool:
    """Return whether a file, by its name, is read as part of a folder of this kind."""
    return path.name.endswith(_PAGES) if kind == "pages" else holds_text(path) or holds_pages(path)


def _text_files(source: Path) -> tuple[list[Path], list[str]]:
    """Return the files of a source in order, and the names of what is skipped: other files, folders and links."""
    if source.is_file():
        return [source], []
    if not source.is_dir():
        what = "is neither a file nor a folder" if source.exists() else "does not exist"
        expected = f"a file, a folder or {' or '.join(BUILT_IN)}"
        raise DataError(f"{source} {what}", expected=expected, repair="Check the path")
    every, left_out = user_files(source)
    files = [path for path in every if _is_source(path)]
    if not files:
        raise DataError(
            f"{source} contains no text file",
            expected=_EXPECTED,
            repair="Name the files themselves if they have other endings",
        )
    others = [path for path in every if not _is_source(path)]
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


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """All tasks of a build, its configuration, and the folder of their outputs; saved before any task is done."""

    folder: Path
    config: BuildConfig
    tasks: Sequence[BuildTask]

    def save(self) -> None:
        """Write the plan into its folder."""
        offsets = [0]
        with atomic_write(self.folder / PLAN) as handle:
            for content in ({"config": self.config.to_dict()}, *map(asdict, self.tasks)):
                offsets.append(offsets[-1] + handle.write(sealed(content)))
        save_array(self.folder / OFFSETS, np.array(offsets, np.int64))

    @classmethod
    def load(cls, folder: Path) -> BuildPlan:
        """Open the plan of a folder; raises FolderError if it was altered, for a task when that is read."""
        tasks = _SavedTasks(folder)
        return cls(folder, BuildConfig.build(tasks.read(0)["config"]), tasks)

    def output(self, phase: str, number: int) -> Path:
        """Return the folder of a task's output; it exists when the task is done."""
        return self.folder / f"{phase}-{number:06d}"

    @property
    def parts(self) -> list[Path]:
        """The folders of all parts."""
        return [self.output(PARTS, number) for number in range(len(self.tasks))]


class _SavedTasks(Sequence[BuildTask]):
    """The tasks of a saved plan, whose lines are read one by one."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / PLAN
        try:
            self._offsets = np.load(folder / OFFSETS, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError):
            raise damaged(self._path) from None

    def read(self, line: int) -> dict[str, Any]:
        """Return the content of a line, from 0."""
        begin, end = self._offsets[line : line + 2].tolist()
        with self._path.open("rb") as handle:
            handle.seek(begin)
            return unsealed(handle.read(end - begin), self._path)

    def __len__(self) -> int:
        return len(self._offsets) - 2

    def __getitem__(self, number: Any) -> Any:
        task = self.read(range(len(self))[number] + 1)
        return BuildTask(**{**task, "files": tuple(task["files"])})
