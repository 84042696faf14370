"""Workers: processes that do the tasks of a build, each task once and whole, in any order, with one result.

A worker that dies is replaced and its task tried again, ATTEMPTS times in all.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater import errors
from headwater.corpus.build.parts import BuildPlan, Seen, part_funnel, run_task, write_part_wanted
from headwater.corpus.filters.steps import Funnel
from headwater.errors import HeadwaterError, StorageError
from headwater.storage.files import (
    read_json,
    write_json,
)

ATTEMPTS = 3
_ERROR = "error.json"


@dataclass
class Workers:
    """Pool of worker processes, started when they are needed. Use as a context manager; exit stops them."""

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
            total = total.joined(part_funnel(plan.part(number)))
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
            write_part_wanted(plan.part(number))
        return
    _Round(plan, "shingle", numbers, lambda reply: None, workers).run()


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
                write_part_wanted(part)
            else:
                run_task(plan, int(number))
                reply = {"funnel": part_funnel(part).to_dict()}
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
