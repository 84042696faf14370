"""A served model and its two threads: one drives the engine, one does everything else.

The engine's thread takes steps while there is work, and hands the events of a step to the event loop together; the
loop never waits for a step. If the thread ends, its open requests are answered with an error, and `alive` is False
from then on.

The second thread scores, embeds, classifies and inspects, one job at a time, so that only one job needs memory.
Requests split their work into short jobs: the jobs of several requests take turns, and after a request is
cancelled, at most one more of its jobs runs. The engine's kernel calls have priority over this thread's.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

from headwater import native
from headwater.errors import HeadwaterError
from headwater.finetuning import FineTuned
from headwater.inference import Engine, Event, Generation, LanguageModel, Request, Scorer
from headwater.serve.problems import Problem, refused, too_busy
from headwater.tokenizer import Tokenizer

T = TypeVar("T")
logger = logging.getLogger(__name__)
# Tokens of one job.
_JOB_TOKENS = 1_024
# Values of JSON content that are processed in the event loop, and characters that take as long as a value.
_FEW, _CHARACTERS_PER_VALUE = 256, 16


class GenerationGroup:
    """The continuations of one API request. Iterate over (number, event); `close` cancels what still runs."""

    def __init__(self, worker: Worker, count: int) -> None:
        self.generations: list[Generation] = []
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

    def __init__(
        self, engine: Engine, queue_length: int, name: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
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
        self._clock = clock
        # Running mean of the seconds between two slots becoming free while continuations wait, and the last time.
        self._between = 0.1
        self._freed: float | None = None
        self._thread = threading.Thread(target=self._drive, name=f"engine {name}", daemon=True)
        # A thread that is inside torch when the interpreter ends can abort the process.
        atexit.register(self.stop)
        self._thread.start()

    def open(self, requests: Sequence[tuple[Request, int]]) -> GenerationGroup:
        """Start continuations, each a checked request with its length. Raises Problem 429 if the queue is full."""
        count = len(requests)
        if count > self.capacity:
            raise Problem(400, f"{count} continuations at once; the most is {self.capacity}.")
        if not self.alive:
            raise _dead()
        if self._stopping:
            raise Problem(503, "The server is stopping.", code="stopping")
        if self.held + count > self.capacity:
            self.rejected += 1
            lacking = self.held + count - self.capacity
            raise too_busy(max(1, min(60, math.ceil(self._between * lacking))))
        run = GenerationGroup(self, count)
        self.held += count
        self._open.add(run)
        for number, (request, length) in enumerate(requests):
            try:
                run.generations.append(self._engine.submit(request, partial(self._listen, run, number), length))
            except Exception as error:  # every continuation needs an answer, or its place is never freed
                if not isinstance(error, HeadwaterError):
                    logger.exception("the engine did not take a request")
                problem = refused(error) if isinstance(error, HeadwaterError) else _failed()
                for rest in range(number, count):
                    run.deliver(rest, problem)
                break
        self._work.set()
        return run

    def cancel(self, run: GenerationGroup) -> None:
        """Cancel the remaining continuations of a run."""
        self._engine.cancel(*run.generations)
        self._work.set()

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

    def stop(self) -> None:
        """End the thread; what still runs is cancelled. Also called at the interpreter's exit."""
        atexit.unregister(self.stop)
        self._stopping = True
        self._work.set()
        self._thread.join()

    def _listen(self, run: GenerationGroup, number: int, event: Event) -> None:
        self._outbox.append((run, number, event))

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
        for run in list(self._open):
            for number, generation in enumerate(run.generations):
                if generation.finished is None:
                    self._outbox.append((run, number, _failed()))
                    self._engine.cancel(generation)

    def _flush(self) -> None:
        if self._outbox:
            events, self._outbox = self._outbox, []
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(_deliver, events)

    def _abandon(self) -> None:
        """Answer the open requests, in the event loop, after the thread has ended."""
        for run in list(self._open):
            for number in sorted(run.running):
                run.deliver(number, _dead())


def _deliver(events: list[tuple[GenerationGroup, int, Event | Problem]]) -> None:
    for run, number, event in events:
        run.deliver(number, event)


def _dead() -> Problem:
    return Problem(503, "The model's engine has stopped. Restart the server.", code="engine_stopped")


def _failed() -> Problem:
    return Problem(500, "The model failed on this request.", code="engine_fault")


@dataclass
class Served:
    """One model and its name; `fine_tuned` if its folder has a head."""

    name: str
    lm: LanguageModel
    fine_tuned: FineTuned | None = None
    beams: int = 1  # the most of one search
    language: str | None = None  # of its text, as "en"; None if unknown
    created: int = field(default_factory=lambda: int(time.time()))
    folder: Path | None = None  # of the model
    run: Path | None = None  # the run folder that is followed
    journal: Any = None  # of the run
    reopen: Callable[[], Served] | None = None  # opens the run's newest model

    def start(self, queue: int, background: Executor | None = None) -> None:
        """Begin its threads, in a running event loop. Only a causal model has an engine and a thread for it.

        background: reads and writes long texts, for all models of a server.
        """
        if self._is_causal:
            self.worker = Worker(self.engine, queue, self.name)
        self._queue, self._jobs = max(1, queue), 0
        self.searching = asyncio.Lock()  # held by the beam search that has memory
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"compute {self.name}", initializer=_give_way)
        self._background = background or background_executor()

    async def compute(self, job: Callable[[], T]) -> T:
        """Run a job in the second thread and return its result. Raises Problem 429 if too many wait."""
        if self._jobs >= self._queue:
            raise too_busy(1)
        self._jobs += 1
        future = asyncio.wrap_future(self._thread.submit(job))
        future.add_done_callback(self._done)
        return await future

    async def read(self, given: object, job: Callable[[], T]) -> T:
        """Run a job that encodes what a client sent, and return its result.

        Long texts have a thread of their own, so short ones never wait for them.
        """
        pool = None if is_small(given) else self._background
        return await asyncio.get_running_loop().run_in_executor(pool, job)

    async def write(self, job: Callable[[], T]) -> T:
        """Return the result of a job that puts a long answer together, in the thread of long texts."""
        return await asyncio.get_running_loop().run_in_executor(self._background, job)

    def _done(self, _: object) -> None:
        self._jobs -= 1

    def take_place_of(self, other: Served) -> None:
        """Get the settings of another opening of the same run, and allocate what its engine needs."""
        self.beams, self.journal, self.reopen = other.beams, other.journal, other.reopen
        self.lm.slots = other.lm.slots
        if self._is_causal:
            _ = self.engine, self.scorer

    def stop(self, *, background: bool = True) -> None:
        """Stop the threads; without `background` not that of long texts, which other models share."""
        if self._is_causal:
            self.worker.stop()
        self._thread.shutdown(cancel_futures=True)
        if background:
            self._background.shutdown(cancel_futures=True)

    @property
    def idle(self) -> bool:
        """Whether no request uses the model."""
        return not self._jobs and not (self._is_causal and self.worker.held)

    @property
    def alive(self) -> bool:
        """Whether the model can answer."""
        return not self._is_causal or self.worker.alive

    def require_causal(self) -> None:
        """Raise Problem for a model that does not read a text from left to right."""
        if self._is_causal:
            return
        if self.lm.config.is_masked:
            raise Problem(
                400,
                f"The model {self.name!r} is masked: it does not read a text from left to right. "
                "It fills blanks: see /v1/fill.",
                param="model",
                code="masked_model",
            )
        raise Problem(
            400,
            f"The model {self.name!r} has an LSTM in each direction: it does not continue a text.",
            param="model",
        )

    # Read once: a model does not change while it is served.
    @cached_property
    def _is_causal(self) -> bool:
        return self.lm.config.is_causal

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer."""
        return self.lm.tokenizer

    @cached_property
    def engine(self) -> Engine:
        """The engine, for the engine's thread."""
        return self.lm.engine

    @cached_property
    def scorer(self) -> Scorer:
        """The scorer, for the second thread."""
        return self.lm.scorer

    @cached_property
    def longest_token(self) -> int:
        """The most bytes that one token decodes to."""
        return max(len(self.tokenizer.token_bytes(token)) for token in range(self.tokenizer.vocabulary_size))

    def require_head(self) -> FineTuned:
        """Return the fine-tuned model. Raises Problem for a model without a head."""
        if self.fine_tuned is None:
            raise Problem(400, f"The model {self.name!r} was not fine-tuned: it has no classes.", param="model")
        return self.fine_tuned


def is_small(content: Any) -> bool:
    """Return whether JSON content has few values and little text, so that processing it is quick."""
    left = _FEW
    rest = [content]
    while rest:
        value = rest.pop()
        if isinstance(value, str):
            left -= len(value) // _CHARACTERS_PER_VALUE
        elif isinstance(value, dict | list | tuple):
            left -= len(value)
            if left >= 0:
                rest.extend(value.values() if isinstance(value, dict) else value)
        if left < 0:
            return False
    return True


def background_executor() -> Executor:
    """Return the one thread of a server in which Python works on long texts and answers.

    Threads take turns in one interpreter: with each more busy thread a short request waits one turn longer.
    """
    return ThreadPoolExecutor(1, thread_name_prefix="long texts", initializer=_give_way)


def short_jobs(items: Sequence[T], tokens: Callable[[T], int]) -> Iterator[list[T]]:
    """Yield groups of consecutive items of up to `_JOB_TOKENS` tokens each, one item at least."""
    group: list[T] = []
    size = 0
    for item in items:
        if group and size + tokens(item) > _JOB_TOKENS:
            yield group
            group, size = [], 0
        group.append(item)
        size += tokens(item)
    if group:
        yield group


def _give_way() -> None:
    """Give the engine's kernel calls priority over those of the calling thread.

    The thread's priority in the operating system is unchanged: a thread of low priority that waits for a core
    while it holds the interpreter's lock makes all others wait too.
    """
    kernels = native.kernels()
    if kernels is not None:
        kernels.give_way()
