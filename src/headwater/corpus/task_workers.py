"""Tasks in phases, done here, by worker processes, or (`building.cluster`) on machines that share a disk.

An output gets its name when it is complete, so that work resumes anywhere; its account has the hashes of its
files.

A worker calls one function for every request that it receives, and may die at any: `WorkerPool` replaces it and
sends the request again, ATTEMPTS times in all. Requests and replies are pickled: both ends of the pipe belong to
one command.
"""

from __future__ import annotations

import hashlib
import json
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
from functools import partial
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Literal, NamedTuple

from headwater.errors import FolderError, HeadwaterError, ResourceError, StorageError
from headwater.reading import parse_json, sha256_of
from headwater.storage import atomic_path

ACCOUNT = "account.json"
Engine = Literal["local", "ray"]
ATTEMPTS = 3
_START_SECONDS = 120.0
_READY = "ready"


class Phase(NamedTuple):
    """Tasks of one kind: their number, and what fills a task's folder and returns more for its account.

    A power cut may damage outputs that are not `flushed`: their hashes show it, and they are made again.
    """

    name: str
    count: Callable[[Any], int]
    fill: Callable[[Any, int, Path], Mapping[str, Any] | None]
    flushed: bool = False


class TaskRunner:
    """Does the tasks of a plan, phase by phase, each into a folder of its own unless it exists."""

    def __init__(self, plan: Any, phases: Sequence[Phase]) -> None:
        """plan: has a `folder`, where it is saved, and `output(phase, number)` in it, the folder of a task."""
        self.plan, self.phases = plan, {phase.name: phase for phase in phases}
        self.report: Callable[[Any], None] = lambda progress: None  # called by a task now and then

    @property
    def opener(self) -> str:
        """The name of the class, whose method `load` opens the folder of the plan in another process."""
        return f"{type(self).__module__}:{type(self).__qualname__}"

    def close(self) -> None:
        """End what the tasks have started."""

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
            with atomic_path(output, folder=True, flushed=self.phases[phase].flushed) as work:
                account = self.phases[phase].fill(self.plan, number, work) or {}
                files = {path.name: sha256_of(path) for path in sorted(work.iterdir())}
                (work / ACCOUNT).write_bytes(sealed({**account, "files": files}))
        except StorageError:
            if not output.is_dir():  # else a worker that was thought dead did it
                raise

    def remove_altered(self) -> int:
        """Remove the outputs that are not as their tasks wrote them, and all of later phases; return the number.

        Those of later phases do not count.
        """
        altered: list[Path] = []
        for phase in self.phases:
            outputs = [*self.plan.folder.glob(f"{phase}-[0-9]*")]
            if altered:
                removed = outputs
            else:
                removed = altered = [output for output in outputs if not is_intact(output)]
            for output in removed:
                shutil.rmtree(output)
        return len(altered)

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
        command = ("headwater.corpus.task_workers:_task_handler", self.opener, str(self.plan.folder))
        with closing(self), WorkerPool(count, *command) as pool:
            if engine == "ray":
                from headwater.corpus.building.cluster import run_on_ray

                run_on_ray(self, workers, address)
            for phase in self.phases:
                requests = [(phase, number) for number in self.missing(phase)]
                for number in pool.replies(requests, partial(_do, self), lambda request: self.described(*request)):
                    on_done(phase, number)


def load_runner(opener: str, folder: Path) -> TaskRunner:
    """Return the runner of the plan in a folder; opener: see `TaskRunner.opener`."""
    runner: TaskRunner = resolve_name(opener).load(folder)
    return runner


def _task_handler(opener: str, folder: str) -> Callable[[tuple[str, int]], int]:
    """Return what a worker process does with a request (phase, number of a task): it returns the number."""
    return partial(_do, load_runner(opener, Path(folder)))


def _do(runner: TaskRunner, request: tuple[str, int]) -> int:
    runner.run(*request)
    return request[1]


def read_account(output: Path) -> dict[str, Any]:
    """Return the account of a task's output; raises FolderError if it was altered."""
    try:
        return unsealed((output / ACCOUNT).read_bytes(), output / ACCOUNT)
    except OSError:
        raise damaged(output / ACCOUNT) from None


def is_intact(output: Path) -> bool:
    """Return whether the files of an output are as its task wrote them."""
    try:
        files = read_account(output)["files"]
    except (HeadwaterError, KeyError):
        return False
    return all((output / name).is_file() and sha256_of(output / name) == files[name] for name in files)


def sealed(content: Mapping[str, Any]) -> bytes:
    """Return a line of JSON that contains its own checksum."""
    return json.dumps({**content, "checksum": _checksum(content)}).encode() + b"\n"


def unsealed(line: bytes, path: Path) -> dict[str, Any]:
    """Return what `sealed` was given; raises FolderError if the line of `path` was cut short or altered."""
    try:
        content = parse_json(line)
        if content.pop("checksum") == _checksum(content):
            return dict(content)
    except (json.JSONDecodeError, LookupError, AttributeError, TypeError):
        pass
    raise damaged(path)


def damaged(path: Path) -> FolderError:
    """Return the error for a file that was cut short or altered."""
    return FolderError(f"{path} was cut short or altered", repair="Remove its folder and run the command again")


def _checksum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


class WorkerDied(Exception):
    """A worker ended before it replied to `request`: by itself with `status`, or `timed_out` and killed."""

    def __init__(self, request: Any, status: int = 0, *, timed_out: bool = False) -> None:
        super().__init__(request)
        self.request, self.status, self.timed_out = request, status, timed_out


class WorkerFailed(RuntimeError):
    """A bug: a request raised what is not a HeadwaterError. The text is the traceback of the worker."""


class WorkerProcess:
    """A process that answers one request at a time.

    It calls `handler`, as "module:function", with `arguments`, which returns the function for the requests.
    """

    def __init__(self, handler: str, *arguments: str) -> None:
        self._process: Any = subprocess.Popen(
            [sys.executable, "-m", "headwater.corpus.task_workers", handler, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._timed_out = False
        try:
            self.ask(_READY, _START_SECONDS)
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
                pickle.dump(request, self._process.stdin)
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

    def __init__(self, count: int, handler: str, *arguments: str) -> None:
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


def _serve(handler: str, *arguments: str) -> None:
    """Run one worker until its standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which stops its workers
    replies, sys.stdout = sys.stdout.buffer, sys.stderr
    answer: Callable[[Any], Any] = resolve_name(handler)(*arguments)
    while True:
        try:
            request = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            reply = None if request == _READY else answer(request)
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
    import_module("headwater.corpus.task_workers")._serve(*sys.argv[1:])
