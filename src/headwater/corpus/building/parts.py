"""Do the tasks of a plan: read files, apply the steps of the recipe, and write the output, a part of the corpus.

Tasks run in this process or in several (`run_tasks`); `cluster` runs them on other machines.

A part is a folder with documents (an Arrow stream, which only the join of the parts reads), their fingerprints,
their band keys and an account. It gets its name when it is complete, so that a killed build resumes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from headwater.corpus.building.documents import DocumentReader
from headwater.corpus.building.plan import BuildPlan, BuildTask, open_source, sealed, unsealed
from headwater.corpus.building.recipes import BuildConfig, make_steps
from headwater.corpus.dedup.keys import FINGERPRINT_BYTES, ArrayFile, text_fingerprint
from headwater.corpus.dedup.near import BANDS, MinHash, write_shingles
from headwater.corpus.folder import COLUMNS, GROUP_BYTES, GROUP_DOCUMENTS, Document
from headwater.corpus.steps import Funnel, run_steps
from headwater.corpus.workers import WorkerPool
from headwater.errors import HeadwaterError, StorageError
from headwater.reading import sha256_of
from headwater.storage import atomic_path, storage_errors

ACCOUNT, DOCUMENTS, FINGERPRINTS, KEYS = "account.json", "documents.arrow", "fingerprints.npy", "keys.npy"
WANTED, SHINGLES = "wanted.npy", "shingles.bin"
OnFunnel = Callable[[Funnel], None]


class TaskRunner:
    """Does tasks of a plan, with steps and an extracting process that are made once. Use as a context manager."""

    def __init__(self, plan: BuildPlan) -> None:
        self._plan = plan
        self._steps = make_steps(plan.config)
        self._hasher = MinHash() if plan.config.near_duplicates else None
        self._reader = DocumentReader(plan.config)

    def __enter__(self) -> TaskRunner:
        return self

    def __exit__(self, *unused: object) -> None:
        self._reader.__exit__()

    def run(self, number: int, on_funnel: OnFunnel = lambda funnel: None) -> None:
        """Do one task unless it is done; call `on_funnel` with its funnel now and then."""
        part = self._plan.part(number)
        if part.is_dir():
            return
        try:
            with atomic_path(part, folder=True) as work:
                self._fill(work, self._plan.tasks[number], on_funnel)
        except StorageError:
            if not part.is_dir():  # else a worker that was thought dead did it
                raise

    def _fill(self, work: Path, task: BuildTask, on_funnel: OnFunnel) -> None:
        funnel, hasher = Funnel(), self._hasher
        with (
            ArrayFile(work / FINGERPRINTS, FINGERPRINT_BYTES // 8, ">u8") as fingerprints,
            ArrayFile(work / KEYS, BANDS, "<u8") if hasher else nullcontext() as keys,
        ):

            def kept() -> Iterator[Document]:
                for document in run_steps(self._reader.read(task, funnel), self._steps, funnel):
                    fingerprints.append(text_fingerprint(document.text))
                    if hasher is not None and keys is not None:
                        keys.append(hasher.keys(document.text).tobytes())
                    if fingerprints.count % 100 == 0:
                        on_funnel(funnel)
                    funnel.labels |= dict.fromkeys(document.labels)
                    yield document

            _write(kept(), work / DOCUMENTS)
        files = {path.name: sha256_of(path) for path in sorted(work.iterdir())}
        (work / ACCOUNT).write_bytes(sealed({"funnel": funnel.to_dict(), "task": asdict(task), "files": files}))


def documents_of(source: str | Path, config: BuildConfig) -> Iterator[Document]:
    """Stream the documents of one source that the recipe's steps keep, before duplicates are removed."""
    with DocumentReader(config) as reader:
        for task in open_source(0, source).tasks:
            funnel = Funnel()
            yield from run_steps(reader.read(task, funnel), make_steps(config), funnel)


def _write(documents: Iterable[Document], path: Path) -> None:
    """Write documents as an Arrow stream in batches of a bounded size."""
    import pyarrow

    strings = pyarrow.string()
    schema = pyarrow.schema([*((name, strings) for name in COLUMNS), ("labels", pyarrow.map_(strings, strings))])
    options = pyarrow.ipc.IpcWriteOptions(compression="zstd")
    with storage_errors(path), pyarrow.OSFile(str(path), "wb") as file, ExitStack() as opened:
        stream = opened.enter_context(pyarrow.ipc.new_stream(file, schema, options=options))
        for batch in _batches(documents):
            columns = [[getattr(document, name) for document in batch] for name in COLUMNS]
            columns.append([list(document.labels.items()) for document in batch])
            arrays = [pyarrow.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
            stream.write_batch(pyarrow.record_batch(arrays, schema=schema))


def _batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    batch: list[Document] = []
    size = 0
    for document in documents:
        length = len(document.text.encode())
        if batch and (size + length > GROUP_BYTES or len(batch) >= GROUP_DOCUMENTS):
            yield batch
            batch, size = [], 0
        batch.append(document)
        size += length
    if batch:
        yield batch


def read_part(part: Path) -> Iterator[Document]:
    """Stream the documents of a part in order."""
    import pyarrow

    with pyarrow.OSFile(str(part / DOCUMENTS)) as file, pyarrow.ipc.open_stream(file) as stream:
        for batch in stream:
            *columns, labels = (column.to_pylist() for column in batch.columns)
            for fields, own in zip(zip(*columns, strict=True), labels, strict=True):
                yield Document(**dict(zip(COLUMNS, fields, strict=True)), labels=dict(own))


def altered_parts(plan: BuildPlan) -> list[int]:
    """Return the numbers of the parts that are not as their tasks wrote them."""
    return [n for n, part in enumerate(plan.parts) if part.is_dir() and not _is_intact(part, plan.tasks[n])]


def _is_intact(part: Path, task: BuildTask) -> bool:
    try:
        account = unsealed((part / ACCOUNT).read_bytes(), part / ACCOUNT)
        Funnel.from_dict(account["funnel"])
        files, described = account["files"], account["task"]
    except (HeadwaterError, OSError, KeyError):  # or of an earlier version
        return False
    same_task = described == {**asdict(task), "files": list(task.files)}
    return same_task and all((part / n).is_file() and sha256_of(part / n) == digest for n, digest in files.items())


def part_funnel(part: Path) -> Funnel:
    """Return the funnel of a part that is done; raises FolderError if it was altered."""
    return Funnel.from_dict(unsealed((part / ACCOUNT).read_bytes(), part / ACCOUNT)["funnel"])


def write_part_wanted(part: Path) -> None:
    """Write the shingles of the documents that WANTED in this part names."""
    wanted = np.load(part / WANTED, allow_pickle=False).tolist()
    rows = read_part(part)
    read = 0

    def texts() -> Iterator[str]:
        nonlocal read
        for row in wanted:
            document = next(islice(rows, row - read, None))
            read = row + 1
            yield document.text

    with storage_errors(part):
        write_shingles(texts(), part / SHINGLES)


def start_workers(plan: BuildPlan, count: int) -> WorkerPool:
    """Return a pool of `count` processes that do the tasks of `plan`."""
    return WorkerPool(count, "headwater.corpus.building.parts:_task_handler", str(plan.folder))


def run_tasks(plan: BuildPlan, workers: WorkerPool, on_funnel: OnFunnel) -> None:
    """Do all missing tasks; call `on_funnel` with the funnel of what is done so far.

    Raises what a task raised after the other tasks are done, but a failure of storage at once.
    """
    missing = plan.missing()
    total = Funnel()
    if workers.count == 1 or len(missing) <= 1:
        failed: HeadwaterError | None = None
        with TaskRunner(plan) as runner:
            for number in missing:
                try:
                    runner.run(number, lambda funnel: on_funnel(total.joined(funnel)))
                except StorageError:
                    raise
                except HeadwaterError as error:
                    failed = failed or error
                    continue
                total.add(part_funnel(plan.part(number)))
                on_funnel(total)
        if failed is not None:
            raise failed
        return
    for funnel in _replies(plan, workers, "do", missing):
        total.add(funnel)
        on_funnel(total)


def write_wanted(plan: BuildPlan, numbers: list[int], workers: WorkerPool) -> None:
    """Write the shingles of the documents that WANTED in each of these parts names, next to them."""
    if workers.count == 1 or len(numbers) <= 1:
        for number in numbers:
            write_part_wanted(plan.part(number))
        return
    for _ in _replies(plan, workers, "shingle", numbers):
        pass


def _replies(plan: BuildPlan, workers: WorkerPool, job: str, numbers: list[int]) -> Iterator[Any]:
    requests = [(job, number) for number in numbers]
    return workers.replies(requests, lambda request: ", ".join(plan.tasks[request[1]].files[:3]))


def _task_handler(folder: str) -> Callable[[tuple[str, int]], Funnel | None]:
    """Return what a worker process does with a request (job, number of a task)."""
    plan = BuildPlan.load(Path(folder))
    runner = TaskRunner(plan)

    def handle(request: tuple[str, int]) -> Funnel | None:
        job, number = request
        if job == "shingle":
            write_part_wanted(plan.part(number))
            return None
        runner.run(number)
        return part_funnel(plan.part(number))

    return handle
