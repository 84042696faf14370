"""A thread that drives one model's engine, and its connection to the event loop.

Only this thread uses the engine: requests and cancellations reach it through an inbox that it empties between
steps, and the events of a step go back to the loop together. The loop never waits for a step. If the thread ends,
its open requests are answered with an error, and `alive` is False from then on.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from headwater.errors import HeadwaterError
from headwater.inference import Engine, Event, Generation, Request
from headwater.serve.problems import Problem, refused, too_busy

logger = logging.getLogger(__name__)


class GenerationGroup:
    """The continuations of one API request. Iterate over (number, event); `close` cancels what still runs."""

    def __init__(self, worker: Worker, count: int) -> None:
        self.generations: list[Generation] = []  # used by the worker's thread
        self.closed = False
        self.running = set(range(count))
        self._worker = worker
        self._events: asyncio.Queue[tuple[int, Event | Problem]] = asyncio.Queue()

    def __aiter__(self) -> GenerationGroup:
        return self

    async def __anext__(self) -> tuple[int, Event]:
        if not self.running and self._events.empty():
            raise StopAsyncIteration
        number, event = await self._events.get()
        if isinstance(event, Problem):
            raise event
        return number, event

    def close(self) -> None:
        """Cancel what is not finished; its slots are free at the next step."""
        if not self.closed:
            self.closed = True
            if self.running:
                self._worker.post(lambda: self._worker.cancel(self))

    def deliver(self, number: int, event: Event | Problem) -> None:
        """Hand over one event, in the event loop."""
        if number not in self.running:
            return
        if isinstance(event, Problem) or event.finished is not None:
            self.running.discard(number)
            self._worker.count_finished(self)
        if not self.closed:
            self._events.put_nowait((number, event))


class Worker:
    """Drives one engine. The event loop calls `open`; the thread calls `cancel` and the steps."""

    def __init__(
        self, engine: Engine, queue_length: int, name: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.slots = engine.runner.slots
        self.capacity = self.slots + queue_length
        self.held = 0  # continuations accepted and not finished
        self.rejected = 0
        self._engine, self._loop = engine, asyncio.get_running_loop()
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._outbox: list[tuple[GenerationGroup, int, Event | Problem]] = []
        self._runs: set[GenerationGroup] = set()
        self._stopping = False
        self._open: set[GenerationGroup] = set()
        self._clock = clock
        # Running mean of the seconds between two slots becoming free while continuations wait, and the last time.
        self._between = 0.1
        self._freed: float | None = None
        self._thread = threading.Thread(target=self._drive, name=f"engine {name}", daemon=True)
        # A thread that is inside torch when the interpreter ends can abort the process.
        atexit.register(self.stop)
        self._thread.start()

    def open(self, requests: Sequence[Request]) -> GenerationGroup:
        """Start checked continuations. Raises Problem 429 if the queue is full."""
        if len(requests) > self.capacity:
            raise Problem(400, f"{len(requests)} continuations at once; the most is {self.capacity}.")
        if not self.alive:
            raise _dead()
        if self._stopping:
            raise Problem(503, "The server is stopping.", code="stopping")
        if self.held + len(requests) > self.capacity:
            self.rejected += 1
            lacking = self.held + len(requests) - self.capacity
            raise too_busy(max(1, min(60, math.ceil(self._between * lacking))))
        run = GenerationGroup(self, len(requests))
        self.held += len(requests)
        self._open.add(run)
        self.post(lambda: self._submit(run, requests))
        return run

    def count_finished(self, run: GenerationGroup) -> None:
        """Count one continuation of a run as finished."""
        now = self._clock()
        if self._freed is not None and self.waiting:
            self._between += 0.1 * (now - self._freed - self._between)
        self._freed = now if self.waiting else None
        self.held -= 1
        if not run.running:
            self._open.discard(run)

    @property
    def alive(self) -> bool:
        """Whether the thread runs or was told to stop."""
        return self._stopping or self._thread.is_alive()

    @property
    def waiting(self) -> int:
        """Continuations beyond the slots."""
        return max(0, self.held - self.slots)

    def post(self, command: Callable[[], None]) -> None:
        """Let the thread call `command` between two steps."""
        self._inbox.put(command)

    def cancel(self, run: GenerationGroup) -> None:
        """Cancel the remaining continuations of a run."""
        self._engine.cancel(*run.generations)

    def stop(self) -> None:
        """End the thread; what still runs is cancelled. Also called at the interpreter's exit."""
        atexit.unregister(self.stop)
        self._stopping = True
        self.post(lambda: None)
        self._thread.join()

    def _submit(self, run: GenerationGroup, requests: Sequence[Request]) -> None:
        if run.closed:
            self._outbox += [(run, number, Event(None, "", None, "cancelled")) for number in range(len(requests))]
            return
        self._runs.add(run)
        for number, request in enumerate(requests):
            try:
                run.generations.append(self._engine.submit(request, partial(self._listen, run, number)))
            except Exception as error:  # every continuation needs an answer, or its place is never freed
                if not isinstance(error, HeadwaterError):
                    logger.exception("the engine did not take a request")
                problem = refused(error) if isinstance(error, HeadwaterError) else _failed()
                self._outbox += [(run, rest, problem) for rest in range(number, len(requests))]
                return

    def _listen(self, run: GenerationGroup, number: int, event: Event) -> None:
        self._outbox.append((run, number, event))

    def _drive(self) -> None:
        try:
            self._steps()
        except BaseException:
            logger.critical("the engine's thread has ended", exc_info=True)
        finally:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._abandon)

    def _steps(self) -> None:
        more = False
        while not self._stopping:
            try:
                self._empty_inbox(wait=not more)
                more = self._engine.step()
            except Exception:
                logger.exception("a step of the engine failed")
                self._fail()
                more = False
            self._flush()
        self._fail()
        self._flush()

    def _abandon(self) -> None:
        """Answer the open requests, in the event loop, after the thread has ended."""
        for run in list(self._open):
            for number in sorted(run.running):
                run.deliver(number, _dead())

    def _empty_inbox(self, wait: bool) -> None:
        if wait:
            self._inbox.get()()
        while True:
            try:
                command = self._inbox.get_nowait()
            except queue.Empty:
                return
            command()

    def _fail(self) -> None:
        """End everything that runs with an error; the engine continues with later requests."""
        for run in list(self._runs):
            for number, generation in enumerate(run.generations):
                if generation.finished is None:
                    self._outbox.append((run, number, _failed()))
                    self._engine.cancel(generation)

    def _flush(self) -> None:
        self._runs = {run for run in self._runs if any(g.finished is None for g in run.generations)}
        if not self._outbox:
            return
        events, self._outbox = self._outbox, []
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(_deliver, events)


def _dead() -> Problem:
    return Problem(503, "The model's engine has stopped. Restart the server.", code="engine_stopped")


def _failed() -> Problem:
    return Problem(500, "The model failed on this request.", code="engine_fault")


def _deliver(events: list[tuple[GenerationGroup, int, Event | Problem]]) -> None:
    for run, number, event in events:
        run.deliver(number, event)
