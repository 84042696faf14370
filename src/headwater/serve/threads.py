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
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import TypeAlias

from headwater import native
from headwater.inference import Engine, Event, Generation, Request
from headwater.serve.problems import Problem, too_busy

logger = logging.getLogger(__name__)
# The events of one API request, each with the number of its continuation.
Events: TypeAlias = "asyncio.Queue[tuple[int, Event]]"


class Worker:
    """The thread that drives one engine. The event loop calls the public methods."""

    def __init__(self, engine: Engine, queue_length: int, name: str) -> None:
        self.slots = engine.runner.slots
        self.capacity = self.slots + queue_length
        self.rejected = 0
        self.alive = True  # until the thread ends without being told to
        self._engine, self._loop = engine, asyncio.get_running_loop()
        self._work = threading.Event()  # set when the engine has something to do
        self._running: dict[Generation, tuple[Events, int]] = {}  # only the loop changes it
        self._stopping = False
        self._thread = threading.Thread(target=self._drive, name=f"engine {name}", daemon=True)
        # A thread that is inside torch when the interpreter ends can abort the process.
        atexit.register(self.stop)
        self._thread.start()

    @contextlib.contextmanager
    def open(self, requests: Sequence[tuple[Request, int]]) -> Iterator[AsyncIterator[tuple[int, Event]]]:
        """Start continuations, each a checked request with its length; at the end of the block, cancel the rest.

        Gives the number of a continuation with its next event, in turn. Raises Problem 429 if the queue is full,
        503 if the engine has stopped.
        """
        if not self.alive:
            raise _dead()
        if self._stopping:
            raise Problem(503, "The server is stopping.", code="stopping")
        if self.held + len(requests) > self.capacity:
            self.rejected += 1
            raise too_busy()
        events: Events = asyncio.Queue()
        generations: list[Generation] = []
        try:
            for number, (request, length) in enumerate(requests):
                generations.append(self._engine.submit(request, length))
                self._running[generations[-1]] = events, number
            self._work.set()
            yield self._received(events, len(requests))
        finally:
            self._engine.cancel(*generations)  # finished ones are left as they are
            self._work.set()

    async def _received(self, events: Events, running: int) -> AsyncIterator[tuple[int, Event]]:
        while running and self.alive:
            number, event = await events.get()
            if event.finished == "cancelled":
                break
            running -= event.finished is not None
            yield number, event
        if running and not self.alive:
            raise _dead()
        if running:  # cancelled by an error: nobody reads what the end of the block cancels
            raise Problem(500, "The model failed on this request.", code="engine_fault")

    @property
    def held(self) -> int:
        """Continuations accepted and not finished."""
        return len(self._running)

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

    def _drive(self) -> None:
        try:
            while not self._stopping:
                self._work.wait()
                self._work.clear()
                while self._step() and not self._stopping:
                    pass
        except BaseException:
            self.alive = False
            logger.critical("the engine's thread has ended", exc_info=True)
        finally:
            self._cancel_all()

    def _step(self) -> bool:
        """Take a step and hand its events over. Returns whether work is left."""
        try:
            more = self._engine.step()
        except Exception:
            logger.exception("a step of the engine failed")
            self._cancel_all()
            return False
        self._flush()
        return more

    def _cancel_all(self) -> None:
        """End everything that runs with an error."""
        self._engine.cancel(*self._running)
        self._flush()

    def _flush(self) -> None:
        """Hand over the events that have come."""
        if received := [(g, event) for g in tuple(self._running) for event in g.take_events()]:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._deliver, received)

    def _deliver(self, received: list[tuple[Generation, Event]]) -> None:
        """Put events into the queues of their requests, in the event loop."""
        for generation, event in received:
            if event.error is not None:
                logger.error("a continuation failed: %s", event.error)
            events, number = self._running[generation]
            if event.finished is not None:
                del self._running[generation]
            events.put_nowait((number, event))


def _dead() -> Problem:
    return Problem(503, "The model's engine has stopped. Restart the server.", code="engine_stopped")


def give_way() -> None:
    """Give the engine's kernel calls priority over those of the calling thread.

    The thread's priority in the operating system is unchanged: a thread of low priority that waits for a core
    while it holds the interpreter's lock makes all others wait too.
    """
    kernels = native.kernels()
    if kernels is not None:
        kernels.give_way()
