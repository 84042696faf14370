"""Tasks done by any number of workers, each task once and whole, in any order, with one result.

A task reads its files, takes the steps and writes a part: documents, their fingerprints, their band keys, and
an account, in a folder that gets its name when all of it is there. A killed build therefore goes on where it
was. A worker is a process; one that dies is replaced and its task tried again, ATTEMPTS times in all. The plan
is a JSON file, so that a worker may as well run on another machine that shares the disk.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from headwater import errors
from headwater.corpus.build.recipes import BuildConfig, make_steps
from headwater.corpus.build.tasks import Account, BuildTask, read_task
from headwater.corpus.dedup.exact import FINGERPRINT_BYTES, text_fingerprint
from headwater.corpus.filters.steps import Funnel, run_steps
from headwater.corpus.folder import Document, read_shard, write_documents
from headwater.errors import HeadwaterError, StorageError
from headwater.storage.arrays import ArrayFile
from headwater.storage.files import (
    new_part,
    read_json,
    read_sealed,
    sha256_of,
    storage_errors,
    write_json,
    write_sealed,
)

ATTEMPTS = 3
ACCOUNT, FINGERPRINTS, KEYS = "account.json", "fingerprints.npy", "keys.npy"
WANTED, SHINGLES = "wanted.npy", "shingles.bin"
_PLAN, _ERROR = "plan.json", "error.json"
Seen = Callable[[Funnel], None]


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """All tasks of a build, how to do them, and the folder for their parts; saved before any is done."""

    folder: Path
    config: BuildConfig
    tasks: tuple[BuildTask, ...]

    def save(self) -> None:
        """Write the plan into its folder, for workers to read."""
        tasks = [asdict(task) for task in self.tasks]
        write_sealed(self.folder / _PLAN, {"config": self.config.to_dict(), "tasks": tasks})

    @staticmethod
    def is_saved(folder: Path) -> bool:
        """Whether a plan lies in a folder."""
        return (folder / _PLAN).is_file()

    @classmethod
    def load(cls, folder: Path) -> BuildPlan:
        """The plan that lies in a folder; raises FolderError where it was altered."""
        found = read_sealed(folder / _PLAN)
        tasks = tuple(BuildTask(**{**task, "files": tuple(task["files"])}) for task in found["tasks"])
        return cls(folder, BuildConfig.build(found["config"]), tasks)

    def part(self, number: int) -> Path:
        """The folder of a task's part; it exists when the task is done."""
        return self.folder / f"{number:06d}"

    def drop_damaged(self) -> list[int]:
        """Remove the parts that were altered since they were written, to be done again; returns their numbers."""
        damaged = [n for n in range(len(self.tasks)) if self.part(n).is_dir() and not _is_whole(self.part(n))]
        for number in damaged:
            shutil.rmtree(self.part(number))
        return damaged

    def missing(self) -> list[int]:
        """Tasks that are still to be done."""
        return [number for number in range(len(self.tasks)) if not self.part(number).is_dir()]


def run_task(plan: BuildPlan, number: int, seen: Seen = lambda funnel: None) -> None:
    """Do one task, unless it is done; `seen` is shown its funnel on the way."""
    part = plan.part(number)
    if part.is_dir():
        return
    with storage_errors(plan.folder), new_part(part, folder=True) as work:
        _fill_part(work, plan.config, plan.tasks[number], seen)
        try:
            work.rename(part)
        except OSError:
            if not part.is_dir():  # another worker, thought dead, was not
                raise


@dataclass
class Workers:
    """So many processes, started when they are needed; a context manager, at whose end they end."""

    count: int
    idle: list[subprocess.Popen[str]] = field(default_factory=list)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *unused: object) -> None:
        while self.idle:
            _end(self.idle.pop())


def run_tasks(plan: BuildPlan, workers: Workers, seen: Seen) -> None:
    """Do all missing tasks with these processes; `seen` is shown the funnel of all that is done so far.

    Raises what a task raised, StorageError for a task whose worker died ATTEMPTS times.
    """
    missing = plan.missing()
    if workers.count == 1 or len(missing) <= 1:
        total = Funnel()
        for number in missing:
            run_task(plan, number, lambda funnel, before=total: seen(before.joined(funnel)))  # type: ignore[misc]
            total = total.joined(_funnel(plan.part(number)))
            seen(total)
        return
    total = Funnel()

    def done(reply: dict[str, Any]) -> None:
        total.add(Funnel.from_dict(reply["funnel"]))
        seen(total)

    _Round(plan, "do", missing, done, workers).run()


def write_wanted(plan: BuildPlan, numbers: list[int], workers: Workers) -> None:
    """Write the shingles of the documents that WANTED in each of these parts names, beside them."""
    if workers.count == 1 or len(numbers) <= 1:
        for number in numbers:
            _write_wanted(plan.part(number))
        return
    _Round(plan, "shingle", numbers, lambda reply: None, workers).run()


def _write_wanted(part: Path) -> None:
    import numpy as np

    from headwater.corpus.dedup.near import write_shingles

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
    """The documents of a part, in order."""
    for shard in sorted(part.glob("documents-*.parquet")):
        yield from read_shard(shard)


class _Round:
    """One job done with each of some parts, by the processes that ask for the next one until none is left."""

    def __init__(
        self,
        plan: BuildPlan,
        job: str,
        missing: list[int],
        done: Callable[[dict[str, Any]], None],
        workers: Workers,
    ) -> None:
        self._plan, self._job, self._done, self._workers = plan, job, done, workers
        self._tasks: queue.SimpleQueue[tuple[int, int] | None] = queue.SimpleQueue()
        for number in missing:
            self._tasks.put((number, 1))
        self._left = len(missing)
        self._failure: Exception | None = None
        self._lock = threading.Lock()
        self._processes: set[subprocess.Popen[str]] = set()

    def run(self) -> None:
        threads = [threading.Thread(target=self._guarded) for _ in range(min(self._workers.count, self._left))]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except BaseException:  # an interruption ends the workers too
            with self._lock:
                self._left = 0
                for process in self._processes:
                    process.kill()
            for thread in threads:
                thread.join()
            raise
        if self._failure is not None:
            raise self._failure

    def _guarded(self) -> None:
        """Work; whatever stops this thread stops the others, which would wait for its task."""
        try:
            self._work()
        except Exception as error:
            self._failure = self._failure or error

    def _work(self) -> None:
        process: subprocess.Popen[str] | None = None
        while self._left and self._failure is None:
            try:
                task = self._tasks.get(timeout=0.2)
            except queue.Empty:
                continue  # another worker may yet fail and give its task back
            if task is None:
                break
            number, attempt = task
            if process is None:
                process = self._start()
            reply = _ask(process, f"{self._job} {number}")
            with self._lock:
                if reply is None:
                    self._processes.discard(process)
                    _end(process)
                    process = None
                    self._died(number, attempt)
                elif "error" in reply:
                    self._failure = self._failure or _error(reply["error"])
                else:
                    self._left -= 1
                    self._done(reply)
                    if not self._left:  # nobody need wait any longer
                        for _ in range(self._workers.count):
                            self._tasks.put(None)
        if process is not None:
            self._workers.idle.append(process)

    def _died(self, number: int, attempt: int) -> None:
        if not self._left:
            return
        if attempt < ATTEMPTS:
            self._tasks.put((number, attempt + 1))
            return
        files = ", ".join(self._plan.tasks[number].files[:3])
        self._failure = StorageError(
            f"the worker that read {files} died {ATTEMPTS} times",
            repair="See whether memory ran out: with fewer --workers each has more; what is complete is kept",
        )

    def _start(self) -> subprocess.Popen[str]:
        with self._lock:
            if self._workers.idle:
                self._processes.add(self._workers.idle[-1])
                return self._workers.idle.pop()
        process = subprocess.Popen(
            [sys.executable, "-m", "headwater.corpus.build.workers", str(self._plan.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        with self._lock:
            self._processes.add(process)
        return process


def _ask(process: subprocess.Popen[str], request: str) -> dict[str, Any] | None:
    """A worker's answer to a request; None where the worker died over it."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(f"{request}\n")
        process.stdin.flush()
        line = process.stdout.readline()
    except OSError:
        line = ""
    if not line.endswith("\n"):
        return None
    reply: dict[str, Any] = json.loads(line)
    return reply


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        try:
            if pipe is not None:
                pipe.close()
        except OSError:
            continue  # what was not written any more belongs to a process that is gone


def _error(described: dict[str, str]) -> HeadwaterError:
    kind = getattr(errors, described.pop("class"))
    error: HeadwaterError = kind(described.pop("seen"), **described)
    return error


def _fill_part(work: Path, config: BuildConfig, task: BuildTask, seen: Seen) -> None:
    account, funnel = Account(), Funnel()
    hasher = None
    if config.near_duplicates:
        from headwater.corpus.dedup.near import MinHash

        hasher = MinHash()

    def kept(fingerprints: ArrayFile, keys: ArrayFile | None) -> Iterator[Document]:
        for document in run_steps(read_task(task, config, account), make_steps(config), funnel):
            fingerprints.append(text_fingerprint(document.text))
            if hasher is not None and keys is not None:
                keys.append(hasher.keys(document.text).tobytes())
            if fingerprints.count % 100 == 0:
                seen(funnel)
            yield document

    with (
        ArrayFile(work / FINGERPRINTS, FINGERPRINT_BYTES // 8, ">u8") as fingerprints,
        ArrayFile(work / KEYS, hasher.bands, "<u8") if hasher else nullcontext() as keys,
    ):
        write_documents(kept(fingerprints, keys), work)
    funnel.notes += account.notes
    found = {"funnel": funnel.to_dict(), "aside": account.aside, "details": account.details}
    files = {path.name: sha256_of(path) for path in sorted(work.iterdir())}
    write_sealed(work / ACCOUNT, {**found, "files": files})


def _is_whole(part: Path) -> bool:
    """Whether a part is what its task wrote."""
    try:
        files = read_sealed(part / ACCOUNT)["files"]
    except (HeadwaterError, KeyError):
        return False
    return all((part / name).is_file() and sha256_of(part / name) == found for name, found in files.items())


def _funnel(part: Path) -> Funnel:
    return Funnel.from_dict(read_sealed(part / ACCOUNT)["funnel"])


def save_error(plan: BuildPlan, error: HeadwaterError) -> None:
    """Leave a task's error where the build that waits for the task finds it."""
    write_json(plan.folder / _ERROR, _described(error))


def raise_error(plan: BuildPlan) -> None:
    """Raise the error that a task left, or StorageError where a task is still to be done."""
    left = plan.folder / _ERROR
    if left.exists():
        described = read_json(left)
        left.unlink()
        raise _error(described)
    missing = plan.missing()
    if missing:
        raise StorageError(
            f"{len(missing)} of {len(plan.tasks)} tasks were not done",
            repair="Run the same command again: what is complete is kept",
        )


def _described(error: HeadwaterError) -> dict[str, str]:
    kinds = (kind.__name__ for kind in type(error).__mro__)
    return {
        "class": next(kind for kind in kinds if hasattr(errors, kind)),
        "seen": error.seen,
        "expected": error.expected,
        "repair": error.repair,
    }


def _do_tasks(folder: Path, first: int, stride: int) -> int:
    """Every `stride`-th task from `first` on, as a job of a cluster does them; returns the exit status."""
    plan = BuildPlan.load(folder)
    for number in range(first, len(plan.tasks), stride):
        try:
            run_task(plan, number)
        except HeadwaterError as error:
            save_error(plan, error)
            print(f"Error: {error}", file=sys.stderr)
            return error.exit_status
    return 0


def _serve(folder: Path) -> None:
    """A worker: requests from stdin, what to do and the number of a task, one JSON line each to stdout."""
    answers, sys.stdout = sys.stdout, sys.stderr
    plan = BuildPlan.load(folder)
    for line in sys.stdin:
        job, _, number = line.partition(" ")
        part = plan.part(int(number))
        reply: dict[str, Any] = {}
        try:
            if job == "shingle":
                _write_wanted(part)
            else:
                run_task(plan, int(number))
                reply = {"funnel": _funnel(part).to_dict()}
        except HeadwaterError as error:
            reply = {"error": _described(error)}
        try:
            answers.write(json.dumps(reply) + "\n")
            answers.flush()
        except BrokenPipeError:  # the build was killed; the part is there for the next one
            os._exit(1)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit(_do_tasks(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
    _serve(Path(sys.argv[1]))
