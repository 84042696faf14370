"""A served model: its name, its engine's thread, and a second thread for everything but generation.

The second thread scores, embeds, classifies and inspects, one job at a time, so that only one job needs memory.
Requests split their work into short jobs: the jobs of several requests take turns, and after a request is
cancelled, at most one more of its jobs runs. The engine's kernel calls have priority over this thread's.
"""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from headwater import native, shipped
from headwater.errors import UsageError, counted
from headwater.finetuning import TASK_FILE, FineTuned
from headwater.inference import Engine, LanguageModel, Scorer, load
from headwater.model import ModelConfig
from headwater.serve.problems import Problem, is_small, too_busy
from headwater.serve.worker import Worker
from headwater.training import available_memory, choose_device

T = TypeVar("T")
# More continuations at a time add little throughput.
_MOST_SLOTS = 32
# Tokens of one job.
_JOB_TOKENS = 1_024


@dataclass
class Served:
    """One model and its name; `fine_tuned` if its folder has a head."""

    name: str
    lm: LanguageModel
    fine_tuned: FineTuned | None = None
    created: int = field(default_factory=lambda: int(time.time()))

    def start(self, queue: int, background: Executor | None = None) -> None:
        """Begin its threads, in a running event loop. Only a causal model has an engine and a thread for it.

        background: reads and writes long texts, for all models of a server.
        """
        if self.lm.config.is_causal:
            self.worker = Worker(self.engine, queue, self.name)
        self._queue, self._jobs = max(1, queue), 0
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

    def stop(self) -> None:
        """Stop the threads."""
        if self.lm.config.is_causal:
            self.worker.stop()
        self._thread.shutdown(cancel_futures=True)
        self._background.shutdown(cancel_futures=True)

    @property
    def alive(self) -> bool:
        """Whether the model can answer."""
        return not self.lm.config.is_causal or self.worker.alive

    def require_causal(self) -> None:
        """Raise Problem for a model that does not read a text from left to right."""
        if self.lm.config.is_masked:
            raise Problem(
                400,
                f"The model {self.name!r} is masked: it does not read a text from left to right. "
                "It fills blanks: see /v1/fill.",
                param="model",
                code="masked_model",
            )
        if not self.lm.config.is_causal:
            raise Problem(
                400,
                f"The model {self.name!r} has an LSTM in each direction: it does not continue a text.",
                param="model",
            )

    # Read once: a model does not change while it is served.
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
        tokenizer = self.lm.tokenizer
        return max(len(tokenizer.token_bytes(token)) for token in range(tokenizer.vocabulary_size))

    def require_head(self) -> FineTuned:
        """Return the fine-tuned model. Raises Problem for a model without a head."""
        if self.fine_tuned is None:
            raise Problem(400, f"The model {self.name!r} was not fine-tuned: it has no classes.", param="model")
        return self.fine_tuned


def open_models(
    models: list[str],
    *,
    tokenizer: str | None = None,
    precision: str,
    device: str = "auto",
    slots: int | None,
) -> list[Served]:
    """Open each `MODEL` or `NAME=MODEL`, with `tokenizer` if its folder has none.

    slots: continuations of one model at a time; None means `automatic_slots`.

    Raises UsageError for two models of the same name and for slots that do not fit the memory, and what `load`
    raises.
    """
    named: dict[str, str] = {}
    for model in models:
        given, place = shipped.split_name(model)
        name = _usual_name(model) if given is None else given
        if not name or not place:
            raise UsageError(f"--model {model!r} has no name or no folder", expected="FOLDER or NAME=FOLDER")
        if name in named:
            raise UsageError(
                f"two models would be called {name!r}: {named[name]} and {place}",
                repair=f"Name one: --model {shlex.quote(f'other={place}')}",
            )
        named[name] = place
    served = [_open(name, place, tokenizer, precision, device, slots or 1) for name, place in named.items()]
    memory = available_memory(choose_device(device, training=False)) // len(served)
    for one in served:
        # Load the rules of GPT-1's words now: importing spaCy while serving would stop all requests for seconds.
        one.lm.tokenizer.encode("a")
        if not one.lm.config.is_causal:
            continue
        fitting = max(1, memory // _slot_bytes(one.lm.config))
        if slots is None:
            one.lm.slots = automatic_slots(one.lm.config, memory)
        elif slots > fitting:
            raise UsageError(
                f"{counted(slots, 'continuation')} of {one.name} at a time need more memory than is free",
                expected=f"at most {fitting:,}",
                repair="Give a lower --max-concurrency",
            )
        _ = one.engine, one.scorer  # allocate their caches now, not at the first request
    return served


def automatic_slots(config: ModelConfig, memory: int) -> int:
    """Return how many continuations to run at a time: 32, or as many as fit an eighth of `memory`."""
    return max(1, min(_MOST_SLOTS, memory // 8 // _slot_bytes(config)))


def _slot_bytes(config: ModelConfig) -> int:
    """Return the bytes of a whole context of keys and values in float32; for an LSTM, an upper bound."""
    states = config.units or config.width if config.architecture == "lstm" else config.width
    return 2 * 4 * config.layers * config.context * states


def _usual_name(model: str) -> str:
    """Return the folder's name, or the name of the run whose model it is; a hub name is unchanged."""
    path = Path(model)
    if not path.exists():
        return model
    return shipped.name_of(path.resolve())


def _open(name: str, place: str, tokenizer: str | None, precision: str, device: str, slots: int) -> Served:
    folder = shipped.resolve(place)
    if not (folder / TASK_FILE).is_file():
        return Served(name, load(place, tokenizer=tokenizer, precision=precision, device=device, slots=slots))
    fine_tuned = FineTuned.load(folder, device=choose_device(device, training=False))
    exact = "fp32" if precision == "auto" else precision
    lm = LanguageModel(fine_tuned.model.model, fine_tuned.tokenizer, precision=exact, slots=slots)
    return Served(name, lm, fine_tuned)


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
