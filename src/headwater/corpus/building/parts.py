"""Do the first tasks of a plan: read files as documents, apply the steps of the recipe, write parts of the corpus.

A file that cannot be read is set aside, one that is damaged later is used up to the damage, both with a note: a
build of thousands of files does not end with one of them. Only a file that is alone in its build is an error. A
page that the extracting process cannot take is set aside too.

A part is a folder with documents (an Arrow stream, which only the join of the parts reads), their fingerprints,
band keys and sizes, and its funnel as the account.
"""

from __future__ import annotations

import platform
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from headwater.corpus.building.plan import BuildTask
from headwater.corpus.building.recipes import BuildConfig
from headwater.corpus.dedup.keys import text_fingerprint
from headwater.corpus.dedup.near import MinHash
from headwater.corpus.extract.page_text import OUT_OF_TIME, TIMER, Extracted, page_handler
from headwater.corpus.filters import Step
from headwater.corpus.folder import (
    COLUMNS,
    DOCUMENT_BYTES,
    Document,
    Funnel,
    Tally,
    example_of,
    grouped,
    make_id,
    merge,
    read_shard,
    size_of,
)
from headwater.corpus.sources import python_docs
from headwater.corpus.sources.pages import Page, holds_pages, read_pages
from headwater.corpus.sources.text import BINARY, read_text_file
from headwater.corpus.task_workers import ACCOUNT, WorkerDied, WorkerPool
from headwater.errors import DataError, ResourceError, StorageError
from headwater.reading import UTF_8, compose, file_encoding, file_error, read_json, unpacked_suffix
from headwater.storage import storage_errors

DOCUMENTS = "documents.arrow"
FINGERPRINTS, KEYS, SIZES = "fingerprints", "keys", "sizes"  # one row per document
EMPTY = "it is empty"  # why a file was set aside
SECONDS = 20.0  # of processor time for a page; a usual one takes some milliseconds
_PATIENCE = 15.0  # factor for the limit by the clock, for a process that waits or a system without such timers
_AHEAD = 16  # pages read before the first of their texts is awaited


class Extractor:
    """Extracts the texts of pages in another process, started with the first; `close` ends it."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._pool = WorkerPool(1, page_handler, seconds, _PATIENCE * seconds)

    def close(self) -> None:
        """End the process."""
        self._pool.close()

    def texts(self, pages: Iterable[tuple[str, Page]]) -> Iterator[tuple[str, Page, Extracted]]:
        """Yield (file, page, its text) in the order of the pages, some of which are read ahead.

        Raises ResourceError if the process does not start.
        """
        waiting: deque[tuple[str, Page, Future[Extracted]]] = deque()
        for file, page in pages:
            waiting.append((file, page, self._pool.submit(page)))
            if len(waiting) >= _AHEAD:
                yield self._extracted(*waiting.popleft())
        while waiting:
            yield self._extracted(*waiting.popleft())

    def _extracted(self, file: str, page: Page, reply: Future[Extracted]) -> tuple[str, Page, Extracted]:
        try:
            return file, page, reply.result()
        except WorkerDied as died:
            if died.at_start:
                raise ResourceError(
                    "the extracting process ended before its first page",
                    repair="See its own message above, and whether memory ran out",
                ) from None
            reasons = {
                -TIMER: f"the extractor took longer than {self._seconds:g} s",
                OUT_OF_TIME: f"the extractor took longer than {_PATIENCE * self._seconds:g} s by the clock",
            }
            return file, page, Extracted(reason=reasons.get(died.status, "the extractor crashed on it"))


class PartMaker:
    """Makes parts, one after the other, with steps and an extracting process that are made once."""

    def __init__(self, config: BuildConfig, steps: Sequence[Step]) -> None:
        self._config, self._steps = config, steps
        self._hasher = MinHash() if config.near_duplicates else None
        self.extractor = Extractor()

    def fill(self, task: BuildTask, work: Path, report: Callable[[int], None]) -> dict[str, Any]:
        """Do a task in the folder `work` and return its account; `report` how many documents were read."""
        funnel = Funnel()
        with ExitStack() as opened:
            names = (FINGERPRINTS, SIZES, KEYS) if self._hasher else (FINGERPRINTS, SIZES)
            fingerprints, sizes, *keys = (opened.enter_context((work / name).open("wb")) for name in names)

            def documents() -> Iterator[Document]:
                for count, document in enumerate(run_steps(self.read(task, funnel), self._steps, funnel), 1):
                    fingerprints.write(text_fingerprint(document.text))
                    sizes.write(len(document.text.encode()).to_bytes(8, "little"))
                    if self._hasher is not None:
                        keys[0].write(self._hasher.keys(document.text).tobytes())
                    if count % 100 == 0:
                        report(funnel.read["documents"])
                    merge(funnel.labels, dict.fromkeys(document.labels, 1))
                    yield document

            _write(documents(), work / DOCUMENTS)
        return vars(funnel)

    def read(self, task: BuildTask, funnel: Funnel) -> Iterator[Document]:
        """Stream the documents of a task, of a user's source in composed form; fill `funnel` on the way.

        Raises ResourceError for a local file that is not on this machine, DataError for a file alone in its build
        that cannot be used, FolderError for a damaged corpus.
        """
        composing = self._config.compose and task.kind != "python-docs"
        for document in self._documents(task, funnel):
            funnel.replaced += "\ufffd" in document.text
            if composing and (text := compose(document.text)) != document.text:
                funnel.composed += 1
                document = replace(document, text=text)
            if len(document.text) > DOCUMENT_BYTES // 4 and len(document.text.encode()) > DOCUMENT_BYTES:
                size = f"a document of more than {DOCUMENT_BYTES:,} bytes, which is Arrow's limit"
                funnel.set_aside(document.source, DataError(f"{document.source} has {size}"))
                continue
            yield document

    def _documents(self, task: BuildTask, funnel: Funnel) -> Iterator[Document]:
        if task.kind == "python-docs":
            roots, limit = python_docs.Roots.of_interpreter(), self._config.python_docs_bytes
            yield from python_docs.read_python_docs(roots, funnel.left_out, limit)
            return
        paths = [(name, Path(task.root, name)) for name in task.files]
        missing = [path for _, path in paths if not path.exists()]
        if missing and (len(missing) == len(paths) or task.kind == "corpus"):
            raise ResourceError(
                f"{missing[0]} does not exist on {platform.node()}",
                repair="Make the sources available there at the same path, and run the same command again",
            )
        if task.kind == "corpus":
            for _, path in paths:
                yield from read_shard(path)
            return
        for is_raw, group in groupby(paths, lambda entry: holds_pages(entry[1])):
            if is_raw:
                yield from self._extracted(group, task, funnel)
                continue
            for name, path in group:
                yield from self._text_documents(path, name, task, funnel)

    def _text_documents(self, path: Path, name: str, task: BuildTask, funnel: Funnel) -> Iterator[Document]:
        config, documents, detected = self._config, 0, ""
        try:
            if not config.encoding and unpacked_suffix(path) not in BINARY:
                detected = file_encoding(path)
            encoding = config.encoding or detected
            for document in read_text_file(path, name, config.text_field, encoding, funnel.left_out):
                documents += 1
                yield document
        except DataError as error:
            if task.alone:
                raise
            funnel.set_aside(name, error, documents)
        else:
            if not documents and not task.alone:
                funnel.aside.append({"source": name, "page": "", "reason": EMPTY})
            if detected not in {"", UTF_8}:
                merge(funnel.encodings, {f"{detected} (text file)": 1})

    def _extracted(self, files: Iterable[tuple[str, Path]], task: BuildTask, funnel: Funnel) -> Iterator[Document]:
        """Stream the documents of files of pages."""
        for name, page, extracted in self.extractor.texts(_pages(files, task, funnel)):
            if extracted.encoding:
                merge(funnel.encodings, {extracted.encoding: 1})
            for kind, count in extracted.left_out.items():
                funnel.left_out.add(kind, page.url or page.name, count=count)
            named = page.url or page.name
            if text := extracted.text:
                yield Document(make_id(name, named, "0", text), text, name, page.url, page.date)
            else:
                reason = extracted.reason or "it has no text"
                funnel.aside.append({"source": name, "page": named, "reason": reason})


def run_steps(documents: Iterable[Document], steps: Iterable[Step], funnel: Funnel) -> Iterator[Document]:
    """Stream the documents that no step removes."""
    steps = list(steps)
    for step in steps:
        funnel.removed.setdefault(step.name, Tally())  # keeps the order of the steps
    for document in documents:
        merge(funnel.read, size_of(document))
        for step in steps:
            outcome = step.apply(document)
            if isinstance(outcome, str):
                funnel.removed[step.name].add(outcome, example_of(document), **size_of(document))
                break
            document = outcome
        else:
            merge(funnel.kept, size_of(document))
            yield document


def _pages(files: Iterable[tuple[str, Path]], task: BuildTask, funnel: Funnel) -> Iterator[tuple[str, Page]]:
    """Yield (file, page) of each page; set aside files without one."""
    for name, path in files:
        count, noted = 0, len(funnel.notes)
        try:
            for page in read_pages(path, funnel.notes, funnel.left_out):
                count += 1
                yield name, page
        except (DataError, OSError) as failed:
            error = file_error(path, failed) if isinstance(failed, OSError) else failed
            if isinstance(error, StorageError) or (task.alone and not count):
                raise error from None
            funnel.set_aside(name, error)
        else:
            if not count and len(funnel.notes) == noted:  # a note has the reason
                funnel.aside.append({"source": name, "page": "", "reason": "it has no usable page"})


def _write(documents: Iterable[Document], path: Path) -> None:
    """Write documents as an Arrow stream in batches of a bounded size."""
    import pyarrow

    strings = pyarrow.string()
    schema = pyarrow.schema([*((name, strings) for name in COLUMNS), ("labels", pyarrow.map_(strings, strings))])
    options = pyarrow.ipc.IpcWriteOptions(compression="zstd")
    with storage_errors(path), pyarrow.OSFile(str(path), "wb") as file, ExitStack() as opened:
        stream = opened.enter_context(pyarrow.ipc.new_stream(file, schema, options=options))
        for batch in grouped(documents):
            columns = [[getattr(document, name) for document in batch] for name in COLUMNS]
            columns.append([list(document.labels.items()) for document in batch])
            arrays = [pyarrow.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
            stream.write_batch(pyarrow.record_batch(arrays, schema=schema))


def read_part(part: Path) -> Iterator[Document]:
    """Stream the documents of a part in order."""
    import pyarrow

    with pyarrow.OSFile(str(part / DOCUMENTS)) as file, pyarrow.ipc.open_stream(file) as stream:
        for batch in stream:
            *columns, labels = (column.to_pylist() for column in batch.columns)
            for fields, own in zip(zip(*columns, strict=True), labels, strict=True):
                yield Document(**dict(zip(COLUMNS, fields, strict=True)), labels=dict(own))


def part_funnel(part: Path) -> Funnel:
    """Return the funnel of a part that is done."""
    account = read_json(part / ACCOUNT)
    return Funnel(**account | {"left_out": Tally(account["left_out"])})
