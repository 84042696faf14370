"""Tasks in phases, done here, by worker processes, or (`building.cluster`) on machines that share a disk.

The output of a task is flushed and gets its name when it is complete, so that work resumes anywhere.

A worker calls one function for every request that it receives, and may die at any: `WorkerPool` replaces it.
Requests and replies are pickled: both ends of the pipe belong to one command. `multiprocessing` would import the
caller's script in every worker, so that a script would need `if __name__ == "__main__"`.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from headwater.errors import FolderError, HeadwaterError, ResourceError, StorageError
from headwater.reading import read_json
from headwater.storage import Stage, atomic_path, folder_lock, to_json

ACCOUNT = "account.json"
Engine = Literal["local", "ray"]
ATTEMPTS = 3


def _ignore(progress: Any) -> None:
    """Do not show the progress of a task."""


@dataclass(eq=False)
class TaskRunner:
    """Does numbered tasks, phase by phase, each into a folder of its own unless it exists.

    A subclass is a dataclass of what the tasks need; each process that does tasks has a copy. Its method
    `make_PHASE(number, work)` fills the folder of one task and returns the task's account, if it has one.
    """

    folder: Path
    """The folder of the tasks' folders."""
    report: Callable[[Any], None] = field(default_factory=lambda: _ignore, init=False)
    """Called by a task now and then."""

    def phases(self) -> Iterator[tuple[str, int]]:
        """Yield each phase and the number of its tasks, which may depend on what the phases before it wrote."""
        raise NotImplementedError

    def close(self) -> None:
        """End the processes that the tasks have started."""

    def output(self, phase: str, number: int) -> Path:
        """Return the folder of a task's output; it exists when the task is done."""
        return self.folder / f"{phase}-{number:06d}"

    def account(self, phase: str, number: int = 0) -> dict[str, Any]:
        """Return the account of a task that is done."""
        return dict(read_json(self.output(phase, number) / ACCOUNT))

    def missing(self, phase: str, count: int) -> list[int]:
        """Return the numbers of the tasks of a phase that are not done."""
        return [number for number in range(count) if not self.output(phase, number).is_dir()]

    def run(self, phase: str, number: int) -> None:
        """Do one task unless it is done."""
        output = self.output(phase, number)
        if output.is_dir():
            return
        try:
            with atomic_path(output, folder=True) as work:
                account = getattr(self, f"make_{phase}")(number, work)
                if account is not None:
                    (work / ACCOUNT).write_bytes(to_json(account))
        except StorageError:
            if not output.is_dir():  # else a worker that was thought dead did it
                raise

    def input_of(self, phase: str, number: int) -> str:
        """Return a task's input, for messages."""
        return f"{phase} {number}"

    def run_all(
        self,
        *,
        workers: int = 1,
        engine: Engine = "local",
        address: str = "",
        on_done: Callable[[str, int], None] = lambda phase, number: None,
    ) -> None:
        """Do all tasks that are missing; call `on_done` after each that was done here.

        engine "ray" does them on the cluster at `address`, or on one started here. Raises what a task raised, or
        ResourceError for a task whose worker died ATTEMPTS times, after the others of its phase are done, but a
        failure of storage or of the program at once. Removes `folder` then if no task is done.
        """
        count = workers if engine == "local" else min(workers, os.cpu_count() or 1)
        try:
            with closing(self), closing(WorkerPool(count, getattr, replace(self), "run")) as pool:
                for phase, tasks in self.phases():
                    if engine == "ray":
                        from headwater.corpus.building.cluster import run_on_ray

                        run_on_ray(self, phase, self.missing(phase, tasks), workers, address)
                    for number in self._run_missing(phase, self.missing(phase, tasks), pool):
                        on_done(phase, number)
        except HeadwaterError:
            if not any(self.folder.glob("[!.]*")):
                shutil.rmtree(self.folder, ignore_errors=True)
            raise

    def _run_missing(self, phase: str, missing: Sequence[int], pool: WorkerPool) -> Iterator[int]:
        """Do tasks, here if one worker would do them alone; yield each when it is done."""
        results: Iterable[tuple[int, Callable[[], Any]]] = ((n, partial(self.run, phase, n)) for n in missing)
        if min(pool.count, len(missing)) > 1:
            futures = {pool.submit(phase, number, attempts=ATTEMPTS): number for number in missing}
            results = ((futures[future], future.result) for future in as_completed(futures))
        failed: HeadwaterError | None = None
        for number, result in results:
            try:
                result()
            except StorageError:
                raise
            except HeadwaterError as error:
                failed = failed or error
            except WorkerDied:
                failed = failed or ResourceError(
                    f"the worker that read {self.input_of(phase, number)} died {ATTEMPTS} times",
                    repair="See whether memory ran out: with fewer --workers each has more; done tasks are kept",
                )
            else:
                yield number
        if failed is not None:
            raise failed


def parts_folder(stage: Stage, *settings: str) -> Path:
    """Return the folder next to a stage's output for its tasks, named by a hash of all that decides them."""
    inputs = [(entry.role, entry.identity) for entry in stage.inputs]
    key = json.dumps([stage.config, inputs, settings], sort_keys=True)
    return stage.out.with_name(f".{stage.out.name}.{hashlib.sha256(key.encode()).hexdigest()[:12]}.parts")


def remove_parts(out: Path) -> None:
    """Remove the files that tasks for `out` left, with any settings, unless a process uses them."""
    for folder in out.parent.glob(f".{glob.escape(out.name)}.{'[0-9a-f]' * 12}.parts"):
        with suppress(FolderError, StorageError):
            with folder_lock(folder):
                pass
            shutil.rmtree(folder, ignore_errors=True)


class WorkerDied(Exception):
    """A worker ended with `status` before it replied; `at_start`: before it was ready for requests."""

    def __init__(self, status: int, *, at_start: bool = False) -> None:
        super().__init__(status)
        self.status, self.at_start = status, at_start


class WorkerFailed(RuntimeError):
    """A bug: a request raised an exception other than HeadwaterError. The text is the traceback of the worker."""


class WorkerPool:
    """Worker processes, each started when it is needed, and as many threads that wait for their replies.

    A worker calls `handler` with `arguments`, which returns the function for the requests. `close` does not wait
    for running requests.
    """

    def __init__(self, count: int, handler: Callable[..., Any], *arguments: Any) -> None:
        self.count, self._threads = count, ThreadPoolExecutor(count)
        self._command = (handler, arguments)
        self._idle: list[subprocess.Popen[bytes] | None] = [None] * count  # None: not started
        self._workers: set[subprocess.Popen[bytes]] = set()
        self._closed = False

    def submit(self, *request: Any, attempts: int = 1) -> Future[Any]:
        """Return the future reply to a request, the function's arguments; one whose worker dies is sent again.

        It raises the HeadwaterError that the request raised, WorkerFailed for another error, WorkerDied if the
        worker of the last attempt ends first.
        """
        return self._threads.submit(self._ask, request, attempts)

    def close(self) -> None:
        """End the workers, also while they answer, as after Ctrl-C."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        for worker in [*self._workers]:
            worker.kill()
        self._threads.shutdown()
        for worker in [*self._workers]:
            self._end(worker)

    def _ask(self, request: Any, attempts: int) -> Any:
        worker = self._idle.pop()
        try:
            worker = worker or self._start()
            reply = self._exchange(worker, request)
        except WorkerDied:
            worker = None
            if attempts == 1:
                raise
        finally:
            self._idle.append(worker)
        if worker is None:
            return self._ask(request, attempts - 1)
        if isinstance(reply, HeadwaterError | WorkerFailed):
            raise reply
        return reply

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "headwater.corpus.task_workers"]
        worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._workers.add(worker)
        if self._closed:  # meanwhile
            worker.kill()
        error = self._exchange(worker, self._command)
        if error is not None:
            self._end(worker)
            raise error
        return worker

    def _exchange(self, worker: Any, request: Any) -> Any:
        try:
            with suppress(OSError):  # the process ended, so that no reply comes
                pickle.dump(pickle.dumps(request), worker.stdin)
                worker.stdin.flush()
            return pickle.load(worker.stdout)
        except (EOFError, OSError, pickle.UnpicklingError):
            self._end(worker)
            raise WorkerDied(worker.returncode, at_start=request is self._command) from None

    def _end(self, worker: Any) -> None:
        worker.kill()
        worker.wait()
        for pipe in (worker.stdin, worker.stdout):
            with suppress(OSError):  # unwritten bytes for a process that is gone
                pipe.close()
        self._workers.discard(worker)


def _serve() -> None:
    """Run one worker until its standard input ends. The first request has the handler and its arguments."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which stops its workers
    replies, sys.stdout = sys.stdout.buffer, sys.stderr
    answer: Callable[..., Any] | None = None
    while True:
        try:
            message = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        reply: Any = None
        try:
            request = pickle.loads(message)  # may import a module that raises
            if answer is None:
                handler, arguments = request
                answer = handler(*arguments)
            else:
                reply = answer(*request)
        except HeadwaterError as error:
            reply = error
        except MemoryError:  # the process ends: a new one has its memory back
            raise
        except Exception:
            reply = WorkerFailed(traceback.format_exc())
        try:
            pickle.dump(reply, replies)
            replies.flush()
        except BrokenPipeError:  # the parent was killed; what the task wrote is there for the next run
            os._exit(1)


if __name__ == "__main__":
    # As a module of its own name: the parent cannot unpickle a class of this process's __main__.
    import_module("headwater.corpus.task_workers")._serve()
