"""Worker processes, each of which calls one function for every request that it receives.

A worker may die at any request. `WorkerPool` replaces it and sends the request again, ATTEMPTS times in all.
Requests and replies are pickled: both ends of the pipe belong to one command.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any

from headwater.errors import HeadwaterError, ResourceError, StorageError

ATTEMPTS = 3
_START_SECONDS = 120.0
_READY = "ready"


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
        self._process = subprocess.Popen(
            [sys.executable, "-m", "headwater.corpus.workers", handler, *arguments],
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
        assert self._process.stdin is not None
        assert self._process.stdout is not None
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
                pipe.close()  # type: ignore[union-attr]


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
            vars(self._own).clear()
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
    module, _, name = handler.partition(":")
    answer: Callable[[Any], Any] = getattr(import_module(module), name)(*arguments)
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
    import_module("headwater.corpus.workers")._serve(*sys.argv[1:])
