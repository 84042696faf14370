"""Do the first tasks of a plan: read files, apply the steps of the recipe, and write a part of the corpus.

A part is a folder with documents (an Arrow stream, which only the join of the parts reads), their fingerprints,
band keys and sizes, and an account. As the output of any task, it gets its name when it is complete, so that a
killed build resumes, and its account has the hashes of its files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headwater.corpus.building.documents import DocumentReader
from headwater.corpus.building.plan import BuildPlan, BuildTask, damaged, sealed, unsealed
from headwater.corpus.building.recipes import make_steps
from headwater.corpus.dedup.keys import FINGERPRINT_BYTES, ArrayFile, text_fingerprint
from headwater.corpus.dedup.near import BANDS, MinHash
from headwater.corpus.folder import COLUMNS, Document, grouped
from headwater.corpus.steps import Funnel, run_steps
from headwater.errors import HeadwaterError, StorageError
from headwater.reading import sha256_of
from headwater.storage import atomic_path, storage_errors

ACCOUNT, DOCUMENTS = "account.json", "documents.arrow"
FINGERPRINTS, KEYS, SIZES = "fingerprints.npy", "keys.npy", "sizes.npy"
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
        task, funnel = self._plan.tasks[number], Funnel()
        with task_output(self._plan.part(number)) as work:
            if work is not None:
                self._fill(work, task, funnel, on_funnel)
                seal(work, {"funnel": funnel.to_dict(), "task": asdict(task)})

    def _fill(self, work: Path, task: BuildTask, funnel: Funnel, on_funnel: OnFunnel) -> None:
        hasher = self._hasher
        with (
            ArrayFile(work / FINGERPRINTS, FINGERPRINT_BYTES // 8, ">u8") as fingerprints,
            ArrayFile(work / SIZES, 1, "<i8") as sizes,
            ArrayFile(work / KEYS, BANDS, "<u8") if hasher else nullcontext() as keys,
        ):

            def kept() -> Iterator[Document]:
                for document in run_steps(self._reader.read(task, funnel), self._steps, funnel):
                    fingerprints.append(text_fingerprint(document.text))
                    sizes.append(len(document.text.encode()).to_bytes(8, "little"))
                    if hasher is not None and keys is not None:
                        keys.append(hasher.keys(document.text).tobytes())
                    if fingerprints.count % 100 == 0:
                        on_funnel(funnel)
                    funnel.labels |= dict.fromkeys(document.labels)
                    yield document

            _write(kept(), work / DOCUMENTS)


@contextmanager
def task_output(folder: Path, *, flushed: bool = True) -> Iterator[Path | None]:
    """Yield a folder to fill, which becomes `folder`, the output of a task; None if the task is done."""
    if folder.is_dir():
        yield None
        return
    try:
        with atomic_path(folder, folder=True, flushed=flushed) as work:
            yield work
    except StorageError:
        if not folder.is_dir():  # else a worker that was thought dead did it
            raise


def seal(work: Path, account: dict[str, Any]) -> None:
    """Write the account of a task's output, with the hashes of its files."""
    files = {path.name: sha256_of(path) for path in sorted(work.iterdir())}
    (work / ACCOUNT).write_bytes(sealed({**account, "files": files}))


def read_account(output: Path) -> dict[str, Any]:
    """Return the account of a task's output; raises FolderError if it was altered."""
    try:
        return unsealed((output / ACCOUNT).read_bytes(), output / ACCOUNT)
    except OSError:
        raise damaged(output / ACCOUNT) from None


def is_intact(output: Path, task: BuildTask | None = None) -> bool:
    """Return whether the files of an output are as its task, which is `task` if that is named, wrote them."""
    try:
        account = read_account(output)
        files = account["files"]
        if task is not None:
            Funnel.from_dict(account["funnel"])
    except (HeadwaterError, KeyError, TypeError):  # or of an earlier version
        return False
    same_task = task is None or account["task"] == {**asdict(task), "files": list(task.files)}
    same_task &= task is None or SIZES in files
    return same_task and all((output / n).is_file() and sha256_of(output / n) == files[n] for n in files)


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
    """Return the funnel of a part that is done; raises FolderError if it was altered."""
    return Funnel.from_dict(read_account(part)["funnel"])
