"""The two threads of a model: one drives its engine, one does everything else.

The engine's thread takes steps while there is work, and hands the events of a step to the event loop together; the
loop never waits for a step. If the thread ends, its open requests are answered with an error, and `alive` is False
from then on.

The second thread scores, embeds, classifies and inspects, one job at a time, so that only one job needs memory.
Requests split their work into short jobs and queue one at a time, so they take turns. After a request is
cancelled, at most one more of its jobs runs. The engine's kernel calls have priority over this thread's.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Sequence
from functools import partial

from headwater import native
from headwater.errors import HeadwaterError
from headwater.inference import Engine, Event, Generation, Request
from headwater.serve.problems import Problem, refused, too_busy

logger = logging.getLogger(__name__)


class GenerationGroup:
    """The continuations of one API request; `close` cancels what still runs."""

    def __init__(self, worker: Worker, count: int) -> None:
        self.generations: list[Generation] = []
        self.closed = False
        self.running = set(range(count))
        self._worker = worker
        self._events: asyncio.Queue[tuple[int, Event | Problem]] = asyncio.Queue()

    async def __aiter__(self) -> AsyncIterator[tuple[int, Event]]:
        """Yield each continuation's number with its next event."""
        while self.running or not self._events.empty():
            number, event = await self._events.get()
            if isinstance(event, Problem):
                raise event
            yield number, event

    def close(self) -> None:
        """Cancel what is not finished; its slots are free at the next step."""
        if not self.closed:
            self.closed = True
            if self.running:
                self._worker.cancel(self)

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
    """The thread that drives one engine. The event loop calls the public methods."""

    def __init__(self, engine: Engine, queue_length: int, name: str) -> None:
        self.slots = engine.runner.slots
        self.capacity = self.slots + queue_length
        self.held = 0  # continuations accepted and not finished
        self.rejected = 0
        self._engine, self._loop = engine, asyncio.get_running_loop()
        self._work = threading.Event()  # set when the engine has something to do
        # What the listeners heard, for the loop. They run in a step, or in the loop itself when it cancels.
        self._outbox: list[tuple[GenerationGroup, int, Event | Problem]] = []
        self._open: set[GenerationGroup] = set()
        self._stopping = False
        self._thread = threading.Thread(target=self._drive, name=f"engine {name}", daemon=True)
        # A thread that is inside torch when the interpreter ends can abort the process.
        atexit.register(self.stop)
        self._thread.start()

    def open(self, requests: Sequence[tuple[Request, int]]) -> GenerationGroup:
        """Start continuations, each a checked request with its length. Raises Problem 429 if the queue is full."""
        count = len(requests)
        if not self.alive:
            raise _dead()
        if self._stopping:
            raise Problem(503, "The server is stopping.", code="stopping")
        if self.held + count > self.capacity:
            self.rejected += 1
            raise too_busy()
        group = GenerationGroup(self, count)
        self.held += count
        self._open.add(group)
        for number, (request, length) in enumerate(requests):
            try:
                group.generations.append(
                    self._engine.submit(request, partial(self._listen, group, number), length)
                )
            except Exception as error:  # every continuation needs an answer, or its place is never freed
                if not isinstance(error, HeadwaterError):
                    logger.exception("the engine did not take a request")
                problem = refused(error) if isinstance(error, HeadwaterError) else _failed()
                for rest in range(number, count):
                    group.deliver(rest, problem)
                break
        self._work.set()
        return group

    def cancel(self, group: GenerationGroup) -> None:
        """Cancel the remaining continuations of a group."""
        self._engine.cancel(*group.generations)
        self._work.set()

    def count_finished(self, group: GenerationGroup) -> None:
        """Count one continuation of a group as finished."""
        self.held -= 1
        if not group.running:
            self._open.discard(group)
            group.generations.clear()  # they refer to the group, and a model in a cycle is not freed when replaced

    @property
    def alive(self) -> bool:
        """Whether the thread runs or was told to stop."""
        return self._stopping or self._thread.is_alive()

    @property
    def waiting(self) -> int:
        """Continuations beyond the slots."""
        return max(0, self.held - self.slots)

    def stop(self) -> None:
        """End the thread; what still runs is cancelled. Also called at the interpreter's exit."""
        atexit.unregister(self.stop)
        self._stopping = True
        self._work.set()
        self._thread.join()

    def _listen(self, group: GenerationGroup, number: int, event: Event) -> None:
        if event.error is not None:
            logger.error("a continuation failed: %s", event.error)
        self._outbox.append((group, number, event if event.error is None else _failed()))

    def _drive(self) -> None:
        try:
            while not self._stopping:
                self._work.wait()
                self._work.clear()
                while self._step() and not self._stopping:
                    pass
            self._fail()
            self._flush()
        except BaseException:
            logger.critical("the engine's thread has ended", exc_info=True)
        finally:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._abandon)

    def _step(self) -> bool:
        """Take a step and hand its events over. Returns whether work is left."""
        try:
            more = self._engine.step()
        except Exception:
            logger.exception("a step of the engine failed")
            self._fail()
            more = False
        self._flush()
        return more

    def _fail(self) -> None:
        """End everything that runs with an error; the engine continues with later requests."""
        for group in list(self._open):
            for number, generation in enumerate(group.generations):
                if generation.finished is None:
                    self._outbox.append((group, number, _failed()))
                    self._engine.cancel(generation)

    def _flush(self) -> None:
        if self._outbox:
            events, self._outbox = self._outbox, []
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(_deliver, events)

    def _abandon(self) -> None:
        """Answer the open requests, in the event loop, after the thread has ended."""
        for group in list(self._open):
            for number in sorted(group.running):
                group.deliver(number, _dead())


def _deliver(events: list[tuple[GenerationGroup, int, Event | Problem]]) -> None:
    for group, number, event in events:
        group.deliver(number, event)


def _dead() -> Problem:
    return Problem(503, "The model's engine has stopped. Restart the server.", code="engine_stopped")


def _failed() -> Problem:
    return Problem(500, "The model failed on this request.", code="engine_fault")


def give_way() -> None:
    """Give the engine's kernel calls priority over those of the calling thread.

    The thread's priority in the operating system is unchanged: a thread of low priority that waits for a core
    while it holds the interpreter's lock makes all others wait too.
    """
    kernels = native.kernels()
    if kernels is not None:
        kernels.give_way()
