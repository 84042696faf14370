"""A build's plan and its parts: each task reads its files, applies the steps and writes one part.

A part is a folder with documents, their fingerprints, their band keys and an account. It gets its name when it is
complete, so that a killed build resumes. The plan is a JSON file, so that a task may run on another machine that
shares the disk.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from headwater.corpus.arrays import ArrayFile
from headwater.corpus.building.recipes import BuildConfig, make_steps
from headwater.corpus.building.sealed import read_sealed, write_sealed
from headwater.corpus.building.tasks import Account, BuildTask, read_task
from headwater.corpus.dedup.exact import FINGERPRINT_BYTES, text_fingerprint
from headwater.corpus.dedup.near import BANDS, MinHash, write_shingles
from headwater.corpus.filters.steps import Funnel, run_steps
from headwater.corpus.folder import Document, read_shard, write_documents
from headwater.corpus.workers import ATTEMPTS, WorkerDied, WorkerPool
from headwater.errors import HeadwaterError, StorageError
from headwater.reading import sha256_of
from headwater.storage import atomic_path, storage_errors

ACCOUNT, FINGERPRINTS, KEYS = "account.json", "fingerprints.npy", "keys.npy"
WANTED, SHINGLES = "wanted.npy", "shingles.bin"
PLAN = "plan.json"
OnFunnel = Callable[[Funnel], None]


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """All tasks of a build, its configuration, and the folder of the parts; saved before any task is done."""

    folder: Path
    config: BuildConfig
    tasks: tuple[BuildTask, ...]

    def save(self) -> None:
        """Write the plan into its folder."""
        tasks = [asdict(task) for task in self.tasks]
        write_sealed(self.folder / PLAN, {"config": self.config.to_dict(), "tasks": tasks})

    @classmethod
    def load(cls, folder: Path) -> BuildPlan:
        """Read the plan of a folder; raises FolderError if it was altered."""
        plan = read_sealed(folder / PLAN)
        tasks = tuple(BuildTask(**{**task, "files": tuple(task["files"])}) for task in plan["tasks"])
        return cls(folder, BuildConfig.build(plan["config"]), tasks)

    def part(self, number: int) -> Path:
        """Return the folder of a task's part; it exists when the task is done."""
        return self.folder / f"{number:06d}"

    @property
    def parts(self) -> list[Path]:
        """The folders of all parts."""
        return [self.part(number) for number in range(len(self.tasks))]

    def drop_damaged(self) -> list[int]:
        """Remove the parts that were altered since they were written; return their numbers."""
        damaged = [n for n, part in enumerate(self.parts) if part.is_dir() and not _is_intact(part)]
        for number in damaged:
            shutil.rmtree(self.part(number))
        return damaged

    def missing(self) -> list[int]:
        """Return the numbers of the tasks that are not done."""
        return [number for number, part in enumerate(self.parts) if not part.is_dir()]

    def remove_if_unused(self) -> None:
        """Remove the folder if no task is done; else what is done is kept for the next run."""
        if len(self.missing()) == len(self.tasks):
            shutil.rmtree(self.folder, ignore_errors=True)


def start_workers(plan: BuildPlan, count: int) -> WorkerPool:
    """Return a pool of `count` processes that do the tasks of `plan`."""
    return WorkerPool(count, "headwater.corpus.building.parts:_task_handler", str(plan.folder))


def run_tasks(plan: BuildPlan, workers: WorkerPool, on_funnel: OnFunnel) -> None:
    """Do all missing tasks; call `on_funnel` with the funnel of what is done so far.

    Raises what a task raised, StorageError for a task whose worker died ATTEMPTS times.
    """
    missing = plan.missing()
    total = Funnel()
    if workers.count == 1 or len(missing) <= 1:
        for number in missing:
            run_task(plan, number, lambda funnel: on_funnel(total.joined(funnel)))
            total.add(part_funnel(plan.part(number)))
            on_funnel(total)
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
    try:
        yield from workers.replies([(job, number) for number in numbers])
    except WorkerDied as died:
        files = ", ".join(plan.tasks[died.request[1]].files[:3])
        raise StorageError(
            f"the worker that read {files} died {ATTEMPTS} times",
            repair="See whether memory ran out: with fewer --workers each has more; what is complete is kept",
        ) from None


def _task_handler(folder: str) -> Callable[[tuple[str, int]], Funnel | None]:
    """Return what a worker process does with a request (job, number of a part)."""
    plan = BuildPlan.load(Path(folder))

    def handle(request: tuple[str, int]) -> Funnel | None:
        job, number = request
        if job == "shingle":
            write_part_wanted(plan.part(number))
            return None
        run_task(plan, number)
        return part_funnel(plan.part(number))

    return handle


def run_task(plan: BuildPlan, number: int, on_funnel: OnFunnel = lambda funnel: None) -> None:
    """Do one task unless it is done; call `on_funnel` with its funnel now and then."""
    part = plan.part(number)
    if part.is_dir():
        return
    try:
        with atomic_path(part, folder=True) as work:
            _fill_part(work, plan.config, plan.tasks[number], on_funnel)
    except StorageError:
        if not part.is_dir():  # else a worker that was thought dead did it
            raise


def write_part_wanted(part: Path) -> None:
    """Write the shingles of the documents that WANTED in this part names."""
    wanted = np.load(part / WANTED, allow_pickle=False).tolist()
    rows = read_part(part)
    read = 0

    def texts() -> Iterator[str]:
        nonlocal read
        for row in wanted:
            yield next(islice(rows, row - read, None)).text
            read = row + 1

    with storage_errors(part):
        write_shingles(texts(), part / SHINGLES)


def read_part(part: Path) -> Iterator[Document]:
    """Stream the documents of a part in order."""
    for shard in sorted(part.glob("documents-*.parquet")):
        yield from read_shard(shard)


def _fill_part(work: Path, config: BuildConfig, task: BuildTask, on_funnel: OnFunnel) -> None:
    account, funnel = Account(), Funnel()
    hasher = MinHash() if config.near_duplicates else None

    def kept(fingerprints: ArrayFile, keys: ArrayFile | None) -> Iterator[Document]:
        for document in run_steps(read_task(task, config, account), make_steps(config), funnel):
            fingerprints.append(text_fingerprint(document.text))
            if hasher is not None and keys is not None:
                keys.append(hasher.keys(document.text).tobytes())
            if fingerprints.count % 100 == 0:
                on_funnel(funnel)
            yield document

    with (
        ArrayFile(work / FINGERPRINTS, FINGERPRINT_BYTES // 8, ">u8") as fingerprints,
        ArrayFile(work / KEYS, BANDS, "<u8") if hasher else nullcontext() as keys,
    ):
        write_documents(kept(fingerprints, keys), work)
    funnel.notes += account.notes
    account_fields = {
        "funnel": funnel.to_dict(),
        "aside": account.aside,
        "details": account.details,
        "encodings": account.encodings,
        "composed": account.composed,
        "replaced": account.replaced,
    }
    files = {path.name: sha256_of(path) for path in sorted(work.iterdir())}
    write_sealed(work / ACCOUNT, {**account_fields, "files": files})


def _is_intact(part: Path) -> bool:
    """Return whether a part is as its task wrote it."""
    try:
        files = read_sealed(part / ACCOUNT)["files"]
    except (HeadwaterError, KeyError):
        return False
    return all((part / name).is_file() and sha256_of(part / name) == digest for name, digest in files.items())


def part_funnel(part: Path) -> Funnel:
    """Return the funnel of a part that is done."""
    return Funnel.from_dict(read_sealed(part / ACCOUNT)["funnel"])
