"""Tasks in phases, done here, by worker processes, or (`building.cluster`) on machines that share a disk.

The output of a task is flushed and gets its name when it is complete, so that work resumes anywhere.

A worker calls one function for every request that it receives, and may die at any: `WorkerPool` replaces it and
sends the request again, ATTEMPTS times in all. Requests and replies are pickled: both ends of the pipe belong to
one command.
"""

from __future__ import annotations

import glob
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple

from headwater.errors import FolderError, HeadwaterError, ResourceError, StorageError
from headwater.storage import atomic_path, folder_lock, to_json

ACCOUNT = "account.json"
Engine = Literal["local", "ray"]
ATTEMPTS = 3
_START_SECONDS = 120.0


class Phase(NamedTuple):
    """Tasks of one kind: their number, and what fills a task's folder and returns its account, if it has one."""

    name: str
    count: Callable[[Any], int]
    fill: Callable[[Any, int, Path], Mapping[str, Any] | None]


class TaskRunner:
    """Does the tasks of a plan, phase by phase, each into a folder of its own unless it exists.

    Subclasses are made of the plan alone, `Subclass(plan)`, in each process that does its tasks.
    """

    def __init__(self, plan: Any, phases: Sequence[Phase] = ()) -> None:
        """plan: a dataclass with a method `output(phase, number)`, the folder of a task."""
        self.plan, self.phases = plan, {phase.name: phase for phase in phases}
        self.report: Callable[[Any], None] = lambda progress: None  # called by a task now and then

    def close(self) -> None:
        """End what the tasks have started."""

    def plan_alone(self) -> Any:
        """Return the plan for another process, without what it has cached."""
        return replace(self.plan)

    def missing(self, phase: str) -> list[int]:
        """Return the numbers of the tasks of a phase that are not done; those of the phases before it must be."""
        count = self.phases[phase].count(self.plan)
        return [number for number in range(count) if not self.plan.output(phase, number).is_dir()]

    def run(self, phase: str, number: int) -> None:
        """Do one task unless it is done."""
        output = self.plan.output(phase, number)
        if output.is_dir():
            return
        try:
            with atomic_path(output, folder=True) as work:
                account = self.phases[phase].fill(self.plan, number, work)
                if account is not None:
                    (work / ACCOUNT).write_bytes(to_json(account))
        except StorageError:
            if not output.is_dir():  # else a worker that was thought dead did it
                raise

    def described(self, phase: str, number: int) -> str:
        """Return what a task reads, for messages."""
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

        engine "ray" does them on the cluster at `address`, or on one started here. Raises what a task raised after
        the others of its phase are done, but a failure of storage at once.
        """
        count = workers if engine == "local" else min(workers, os.cpu_count() or 1)
        with closing(self), WorkerPool(count, _task_handler, type(self), self.plan_alone()) as pool:
            if engine == "ray":
                from headwater.corpus.building.cluster import run_on_ray

                run_on_ray(self, workers, address)
            for phase in self.phases:
                requests = [(phase, number) for number in self.missing(phase)]
                for number in pool.replies(
                    requests, partial(do_task, self), lambda request: self.described(*request)
                ):
                    on_done(phase, number)


def remove_parts(out: Path) -> None:
    """Remove what tasks for `out` left, also with other settings, unless a process uses it."""
    for folder in out.parent.glob(f".{glob.escape(out.name)}.{'[0-9a-f]' * 12}.parts"):
        with suppress(FolderError, StorageError):
            with folder_lock(folder):
                pass
            shutil.rmtree(folder, ignore_errors=True)


def _task_handler(runner: type[TaskRunner], plan: Any) -> Callable[[tuple[str, int]], int]:
    """Return what a worker process does with a request (phase, number of a task): it returns the number."""
    return partial(do_task, runner(plan))


def do_task(runner: TaskRunner, request: tuple[str, int]) -> int:
    """Do the task of a request; return its number."""
    runner.run(*request)
    return request[1]


class WorkerDied(Exception):
    """A worker ended before it replied to `request`: by itself with `status`, or `timed_out` and killed."""

    def __init__(self, request: Any, status: int = 0, *, timed_out: bool = False) -> None:
        super().__init__(request)
        self.request, self.status, self.timed_out = request, status, timed_out


class WorkerFailed(RuntimeError):
    """A bug: a request raised what is not a HeadwaterError. The text is the traceback of the worker."""


class WorkerProcess:
    """A process that answers one request at a time.

    It calls `handler` with `arguments`, which returns the function for the requests.
    """

    def __init__(self, handler: Callable[..., Any], *arguments: Any) -> None:
        command = [sys.executable, "-m", "headwater.corpus.task_workers"]
        self._process: Any = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._timed_out = False
        try:
            self.ask((handler, arguments), _START_SECONDS)
        except WorkerDied:
            self.stop()
            raise

    def ask(self, request: Any, seconds: float = threading.TIMEOUT_MAX) -> Any:
        """Return the reply to a request, or raise the HeadwaterError that it raised.

        Raises WorkerFailed for another error, WorkerDied if the process ends first; kills it after `seconds`.
        """
        watchdog = threading.Timer(seconds, self._time_out)
        watchdog.daemon = True
        watchdog.start()
        try:
            with suppress(OSError):  # the process ended, so that no reply comes
                pickle.dump(pickle.dumps(request), self._process.stdin)
                self._process.stdin.flush()
            reply = pickle.load(self._process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError):
            raise WorkerDied(request, self._process.wait(), timed_out=self._timed_out) from None
        finally:
            watchdog.cancel()
        if isinstance(reply, HeadwaterError | WorkerFailed):
            raise reply
        return reply

    def _time_out(self) -> None:
        self._timed_out = True
        self.kill()

    def kill(self) -> None:
        """End the process; a request that waits for its reply raises WorkerDied."""
        self._process.kill()

    def stop(self) -> None:
        """End the process and close its pipes."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):  # unwritten bytes for a process that is gone
                pipe.close()


class WorkerPool:
    """Pool of lazily started workers, each asked by a thread of its own.

    Use as a context manager; exit stops them and does not wait for running requests, as after Ctrl-C.
    """

    def __init__(self, count: int, handler: Callable[..., Any], *arguments: Any) -> None:
        self._command = (handler, *arguments)
        self._count, self._threads, self._own = count, ThreadPoolExecutor(count), threading.local()
        self._started: list[WorkerProcess] = []
        self._ended = False

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *unused: object) -> None:
        self._ended = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        for worker in list(self._started):
            worker.kill()
        self._threads.shutdown()
        for worker in self._started:
            worker.stop()

    def replies(
        self, requests: Sequence[Any], here: Callable[[Any], Any], input_of: Callable[[Any], str]
    ) -> Iterator[Any]:
        """Yield the replies in the order of completion; raise what a request raised.

        `here` answers in this process what one worker would do alone. A request whose worker dies ATTEMPTS times
        raises ResourceError with what `input_of` returns for it. The other requests are answered first, unless
        storage or the program failed.
        """
        if self._count == 1 or len(requests) <= 1:
            yield from _results(partial(here, request) for request in requests)
            return
        futures = [self._threads.submit(self._ask, request, input_of) for request in requests]
        yield from _results(future.result for future in as_completed(futures))

    def _ask(self, request: Any, input_of: Callable[[Any], str]) -> Any:
        for _ in range(ATTEMPTS):
            if self._ended:
                break
            with suppress(WorkerDied):
                return self._worker().ask(request)
            if worker := vars(self._own).pop("worker", None):
                self._started.remove(worker)
                worker.stop()  # closes its pipes
        raise ResourceError(
            f"the worker that read {input_of(request)} died {ATTEMPTS} times",
            repair="See whether memory ran out: with fewer --workers each has more; what is complete is kept",
        )

    def _worker(self) -> WorkerProcess:
        """Return the worker of this thread."""
        if not hasattr(self._own, "worker"):
            self._own.worker = self._start()
            self._started.append(self._own.worker)
            if self._ended:  # while it started
                self._own.worker.kill()
        worker: WorkerProcess = self._own.worker
        return worker

    def _start(self) -> WorkerProcess:
        return WorkerProcess(*self._command)


def _results(calls: Iterable[Callable[[], Any]]) -> Iterator[Any]:
    """Yield what calls return; raise the first error after all others, but a failure of storage at once."""
    failed: HeadwaterError | None = None
    for call in calls:
        try:
            result = call()
        except StorageError:
            raise
        except HeadwaterError as error:
            failed = failed or error
        else:
            yield result
    if failed is not None:
        raise failed


def _serve() -> None:
    """Run one worker until its standard input ends. The first request has the handler and its arguments."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which stops its workers
    replies, sys.stdout = sys.stdout.buffer, sys.stderr
    answer: Callable[[Any], Any] | None = None
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
                reply = answer(request)
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
