"""Plan tasks from the sources that a user names, and read the documents of a task.

A task is a unit of work for one worker: some files of one source, a file of a corpus, or a built-in source. Tasks,
and so their results, depend on the sources, never on the number of workers.
"""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from headwater.corpus.building.recipes import BuildConfig, make_steps
from headwater.corpus.filters.steps import Funnel, run_steps
from headwater.corpus.folder import Document, make_id, read_shard, shard_paths
from headwater.corpus.sources import python_docs
from headwater.corpus.sources.pages import SUFFIXES as PAGE_SUFFIXES
from headwater.corpus.sources.pages import Page, holds_pages, read_pages
from headwater.corpus.sources.text import (
    SEPARATOR,
    SUFFIXES,
    TEXT_SUFFIXES,
    check_encoding,
    holds_text,
    other_encoding,
    read_text_file,
)
from headwater.errors import DataError, ResourceError
from headwater.reading import (
    AnyFile,
    byte_blocks,
    check_name,
    compose,
    file_at,
    file_error,
    is_remote,
    unpacked_suffix,
    without_surrogates,
)
from headwater.storage import Input, folder_files, has_manifest, list_source, read_manifest, user_files

BUILT_IN = (python_docs.SOURCE,)
_PAGES = ".warc.gz"  # the files with pages in a folder that `corpus fetch` wrote
EMPTY = "it is empty"  # why a file of a folder was set aside
_EXPECTED = (
    f"files that end in {', '.join(SUFFIXES)} (also .gz, .zst, .xz, .bz2 of these), {', '.join(PAGE_SUFFIXES)}"
)
# Files are grouped into one task up to these limits; a larger file is a task of its own.
TASK_BYTES = 16 * 1024**2
TASK_FILES = 1000
TEXT_BYTES = 1024**3  # of one text file in any encoding, which is in memory several times


@dataclass(frozen=True, slots=True)
class BuildTask:
    """Work for one worker; `files` are relative to `root`; `of_folder`: set unreadable files aside."""

    source: int
    kind: Literal["python-docs", "corpus", "files"]
    root: str
    files: tuple[str, ...] = ()
    of_folder: bool = False


@dataclass
class Account:
    """What reading a task found besides documents: pages set aside, notes for the user, figures of the source."""

    aside: list[dict[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)
    encodings: Counter[str] = field(default_factory=Counter)  # pages of each
    composed: int = 0  # documents that had another Unicode form
    replaced: int = 0  # documents with U+FFFD


@dataclass(frozen=True, slots=True)
class BuildSource:
    """A source of a build.

    given: as the user named it; name: in `funnel.json`; path: `given`, independent of the current folder; input:
    for the manifest of the corpus, None for a built-in source; others: what is skipped in a folder.
    """

    given: str
    name: str
    path: str
    input: Path | Input | None
    tasks: list[BuildTask]
    others: list[str] = field(default_factory=list)


def open_source(number: int, given: str | Path) -> BuildSource:
    """Return the source that a user named; raises DataError for one that cannot be used."""
    named = str(given)
    if named in BUILT_IN:
        return BuildSource(named, named, named, None, [BuildTask(number, "python-docs", "")])
    if is_remote(given):
        return _remote_source(number, given)
    path = Path(given)
    if not path.exists() and path.name == named:
        raise DataError(
            f"{path} is neither a file, a folder, nor a built-in source",
            expected=f"{' or '.join(BUILT_IN)}, or a path",
            repair="Check the spelling",
        )
    absolute = path.absolute()
    name = Path(os.path.normpath(absolute)).name  # of `.`: that of the current folder
    kind = read_manifest(path).kind if has_manifest(path) else ""
    if kind and kind != "pages":
        shards = [os.path.relpath(str(shard), path) for shard in shard_paths(path)]
        tasks = [BuildTask(number, "corpus", str(absolute), (shard,)) for shard in shards]
        return BuildSource(named, name, str(absolute), path, tasks)
    others: list[str] = []
    if kind:
        files = [Path(str(file)).absolute() for file in folder_files(path, "pages", _PAGES)]
    else:
        chosen, others = _text_files(path)
        files = [file.absolute() for file in chosen]
    for file in files:
        check_name(file)
    sizes = [(file.relative_to(absolute.parent).as_posix(), file.stat().st_size) for file in files]
    tasks = [BuildTask(number, "files", str(absolute.parent), names, path.is_dir()) for names in _groups(sizes)]
    return BuildSource(named, name, str(absolute), path, tasks, others)


def _remote_source(number: int, url: str) -> BuildSource:
    listing = list_source(url)
    kind, root = listing.input.kind, listing.root
    if kind == "corpus":
        shards = [name for name, _ in listing.files if name.endswith(".parquet")]
        tasks = [BuildTask(number, "corpus", root, (name,)) for name in shards]
    elif kind in {"file", "folder", "pages"}:
        alone = kind == "file"
        files = [entry for entry in listing.files if alone or _is_source(PurePosixPath(entry[0]), kind)]
        if not files:
            raise DataError(f"{listing.input.path} contains no text file", expected=_EXPECTED)
        tasks = [BuildTask(number, "files", root, names, not alone) for names in _groups(files)]
    else:
        raise DataError(f"{listing.input.path} is a {kind} folder", expected="files with text, pages or a corpus")
    return BuildSource(url, Path(url).name, url, listing.input, tasks)


def _is_source(path: Path | PurePosixPath, kind: str = "folder") -> bool:
    """Return whether a file, by its name, is read as part of a folder of this kind."""
    return path.name.endswith(_PAGES) if kind == "pages" else holds_text(path) or holds_pages(path)


def _text_files(source: Path) -> tuple[list[Path], list[str]]:
    """Return the files of a source in order, and the names of what is skipped: other files, folders and links."""
    if source.is_file():
        return [source], []
    if not source.is_dir():
        what = "is neither a file nor a folder" if source.exists() else "does not exist"
        raise DataError(f"{source} {what}", expected="a text file or a folder", repair="Check the path")
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


def read_task(task: BuildTask, config: BuildConfig, account: Account) -> Iterator[Document]:
    """Stream the documents of a task, of a user's source in composed form; `account` is filled on the way.

    Raises ResourceError for a local file that is not on this machine, DataError for one that cannot be used.
    """
    composing = config.compose and task.kind != "python-docs"
    for document in _read(task, config, account):
        account.replaced += "\ufffd" in document.text
        if composing and (text := compose(document.text)) != document.text:
            account.composed += 1
            document = replace(document, text=text)
        yield document


def _read(task: BuildTask, config: BuildConfig, account: Account) -> Iterator[Document]:
    paths = [(name, file_at(task.root, name)) for name in task.files]
    removed = [(name, file) for name, file in paths if isinstance(file, Path) and not file.exists()]
    if removed and (len(removed) == len(paths) or not task.of_folder):
        raise ResourceError(
            f"{removed[0][1]} does not exist on {platform.node()}",
            repair="Make the sources available there at the same path, and run the same command again",
        )
    for name, file in removed:
        _set_aside(name, DataError(f"{file} was removed while the corpus was built"), account)
    paths = [entry for entry in paths if entry not in removed]
    if task.kind == "python-docs":
        findings = python_docs.GatheringReport()
        yield from python_docs.read_python_docs(None, findings, config.python_docs_bytes)
        account.details |= vars(findings)
        if findings.files_left:
            total = findings.files + findings.files_left
            account.notes.append(f"python-docs is a sample of {findings.files:,} out of {total:,} source files")
        if findings.unreadable:
            count = len(findings.unreadable)
            account.notes.append(f"{count} source files could not be parsed and are left out")
    elif task.kind == "corpus":
        for _, path in paths:
            yield from read_shard(path)
    else:

        def holds_raw_text(entry: tuple[str, AnyFile]) -> bool:
            path = entry[1]
            detect = config.any_encoding and not config.encoding
            return holds_pages(path) or (detect and unpacked_suffix(path) in TEXT_SUFFIXES)

        for is_raw, group in groupby(paths, holds_raw_text):
            if is_raw:
                yield from _extracted(group, task, config, account)
            else:
                for name, path in group:
                    yield from _read_or_set_aside(path, name, task, config, account)


def documents_of(source: str | Path, config: BuildConfig) -> Iterator[Document]:
    """Stream the documents of one source that the recipe's steps keep, before duplicates are removed."""
    for task in open_source(0, source).tasks:
        yield from run_steps(read_task(task, config, Account()), make_steps(config), Funnel())


def _read_or_set_aside(
    path: AnyFile, name: str, task: BuildTask, config: BuildConfig, account: Account
) -> Iterator[Document]:
    """Stream the documents of a text file; set it aside if it is part of a folder and empty or unreadable.

    A broken row after the first document is an error also in a folder, since documents of the file were used. Of a
    file that changed meanwhile, what was read is kept.
    """
    empty, before = True, _state(path)
    try:
        if task.of_folder:
            check_encoding(path, config.encoding)
        for document in read_text_file(path, name, config.text_field, config.encoding):
            empty = False
            yield document
    except DataError as error:
        if not empty and _state(path) == before:
            raise
        if empty and not task.of_folder:
            raise
        if empty:
            _set_aside(name, error, account)
    else:
        if empty and task.of_folder:
            account.aside.append({"source": name, "page": "", "reason": EMPTY})
        if not config.encoding and (other := other_encoding(path)):
            account.encodings[f"{other} (text file)"] += 1
    _note_change(path, before, account)


def _state(path: AnyFile) -> tuple[int, int] | None:
    """Return the size and time of a local file; None if it does not exist or is remote."""
    if not isinstance(path, Path):
        return None
    with suppress(OSError):
        status = path.stat()
        return status.st_size, status.st_mtime_ns
    return None


def _note_change(path: AnyFile, before: tuple[int, int] | None, account: Account) -> None:
    if _state(path) != before:
        account.notes.append(f"{path} changed while it was read: the corpus has what was read of it")


def _set_aside(name: str, error: DataError, account: Account) -> None:
    account.aside.append({"source": name, "page": "", "reason": error.seen})
    account.notes.append(f"Left out: {error}")


def _extracted(
    files: Iterable[tuple[str, AnyFile]], task: BuildTask, config: BuildConfig, account: Account
) -> Iterator[Document]:
    """Stream the documents of files of pages, or of text in any encoding."""
    from headwater.corpus.extract.page_text import Extractor

    def pages() -> Iterator[tuple[str, Page]]:
        for name, path in files:
            empty, noted, before = True, len(account.notes), _state(path)
            try:
                for page in read_pages(path, account.notes) if holds_pages(path) else _text_page(path):
                    empty = False
                    yield name, page
            except (DataError, OSError) as failed:
                error = file_error(path, failed) if isinstance(failed, OSError) else failed
                if empty and not task.of_folder:
                    raise error from None
                _set_aside(name, error, account)
            else:
                if empty and len(account.notes) == noted:  # a note has the reason
                    account.aside.append({"source": name, "page": "", "reason": "it has no usable page"})
            _note_change(path, before, account)

    with Extractor(config.extractor) as extractor:
        for name, page, text, reason in extractor.texts(pages()):
            is_file = page.kind == "text" and not page.url
            if reason or not text.strip():
                reason = reason or (EMPTY if is_file else "it has no text")
                account.aside.append({"source": name, "page": page.url or page.name, "reason": reason})
                continue
            texts = text.split(SEPARATOR) if is_file else [text]
            for position, piece in enumerate(texts):
                if piece.strip():
                    yield Document(
                        id=make_id(name, page.url or page.name, str(position), piece),
                        text=piece.strip("\n"),
                        source=name,
                        url=page.url,
                        date=page.date,
                    )
        account.encodings += extractor.encodings


def _text_page(path: AnyFile) -> Iterator[Page]:
    data = bytearray()
    try:
        for block in byte_blocks(path):
            data += block
            if len(data) > TEXT_BYTES:
                raise DataError(
                    f"{path} is larger than {TEXT_BYTES:,} bytes, too large to detect its encoding",
                    repair="Cut it into several files, or read it as a stream of UTF-8: --set any_encoding=false",
                )
    except OSError as error:
        raise file_error(path, error) from None
    yield Page(name=path.name, data=bytes(data), kind="text")


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
