"""A served model, the server of several, and a request that uses one, from its acceptance to its end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from headwater.errors import UsageError, nearest
from headwater.finetuning import FineTuned
from headwater.inference import Engine, LanguageModel, Scorer, require_causal
from headwater.serve.config import ServeConfig
from headwater.serve.metrics import Metrics
from headwater.serve.problems import Problem, too_busy
from headwater.serve.threads import Worker, give_way

T = TypeVar("T")
# Tokens of one job, and bytes of a body from which on its texts are long.
_JOB_TOKENS, _LONG_BODY = 1_024, 4 * 1024


@dataclass
class Served:
    """One model and its name; `fine_tuned` if its folder has a head."""

    name: str
    lm: LanguageModel
    fine_tuned: FineTuned | None = None
    language: str | None = None  # of its text, as "en"; None if unknown
    created: int = field(default_factory=lambda: int(time.time()))
    # Opens the same source with so many slots; None if it has not changed.
    reopen: Callable[[int], Served | None] = lambda slots: None
    stale: str = ""  # why the changed folder cannot be opened
    requests: int = 0  # that have begun with it and have not ended
    worker: Worker | None = None  # the engine's thread

    def start(self, queue: int) -> None:
        """Begin its threads, in a running event loop; the engine's if there is an engine."""
        self._queue, self.jobs, self.rejected = queue, 0, 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"compute {self.name}", initializer=give_way)
        if self.generates:
            self.worker = Worker(self.engine, queue, self.name)

    async def start_engine(self) -> Worker:
        """Return the engine's thread; for a fine-tuned model, the first completion starts it."""
        require_causal(self.lm.config)
        if self.worker is None:
            engine = await self.compute(lambda: self.engine)
            self.worker = self.worker or Worker(engine, self._queue, self.name)
        return self.worker

    async def compute(self, job: Callable[[], T]) -> T:
        """Run a job in the second thread and return its result. Raises Problem 429 if too many wait."""
        if self.jobs >= max(1, self._queue):
            self.rejected += 1
            raise too_busy()
        self.jobs += 1
        try:
            return await asyncio.wrap_future(self._thread.submit(job))
        finally:
            self.jobs -= 1

    def allocate(self) -> None:
        """Pack the weights and allocate the caches now, not at the first request."""
        # The rules of GPT-1's words too: importing spaCy while serving would stop all requests for seconds.
        self.lm.tokenizer.encode("a")
        if self.generates:
            _ = self.engine, self.scorer

    def stop(self) -> None:
        """Stop the threads."""
        if self.worker is not None:
            self.worker.stop()
        self._thread.shutdown(cancel_futures=True)

    @property
    def alive(self) -> bool:
        """Whether the model can answer."""
        return self.worker is None or self.worker.alive

    @property
    def generates(self) -> bool:
        """Whether it has its engine from the start: a fine-tuned model is served for its labels."""
        return self.lm.config.is_causal and self.fine_tuned is None

    # Read once: `LanguageModel` gives them under its lock, which a long job may hold.
    @cached_property
    def engine(self) -> Engine:
        """The engine, for the engine's thread."""
        return self.lm.engine

    @cached_property
    def scorer(self) -> Scorer:
        """The scorer, for the second thread."""
        return self.lm.scorer

    def token_name(self, token: int) -> str:
        """Return a token's name in the API: its text, or `bytes:\\xe2\\x80` if it is part of a character."""
        if token >= self.lm.tokenizer.vocabulary_size:
            return f"bytes:{token}"
        data = self.lm.tokenizer.token_bytes(token)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


class Server:
    """The models, configuration, threads and metrics of one server."""

    def __init__(self, models: list[Served], config: ServeConfig) -> None:
        self.models = {served.name: served for served in models}
        self.config, self.metrics = config, Metrics(self.models)
        self.reload: Callable[[], object] = lambda: None  # opens the models whose folders have changed

    def start(self) -> None:
        """Start the threads, in a running event loop.

        Threads take turns in one interpreter: with each more busy thread a short request waits one turn longer.
        So all long texts share one thread; the short ones use the loop's own pool.
        """
        self.long_texts = ThreadPoolExecutor(1, thread_name_prefix="long texts")
        for served in self.models.values():
            served.start(self.config.queue)

    def stop(self) -> None:
        """Stop the threads."""
        for served in self.models.values():
            served.stop()
        self.long_texts.shutdown(cancel_futures=True)

    def choose(self, name: str | None, suits: Callable[[Served], object]) -> str | None:
        """Return the name of a request's model: as given, else the name of the first suitable model."""
        suiting = (served.name for served in self.models.values() if suits(served))
        return next(suiting, None) if name is None else name

    def find(self, name: str | None) -> Served:
        """Return the model of that name, by default the first. Raises Problem 404."""
        if name is None:
            return next(iter(self.models.values()))
        if name not in self.models:
            unknown = UsageError(
                f"there is no model {name[:200]!r}",
                expected=" or ".join(map(repr, self.models)),
                repair=nearest(name[:200], self.models) or "GET /v1/models lists them",
            )
            raise Problem(404, str(unknown), param="model", code="model_not_found")
        return self.models[name]


class OpenRequest:
    """An open request. A context manager, whose exit releases what the request holds.

    It keeps its model until it ends, even if another model replaces it meanwhile.

    scope: of ASGI; `model` is added to it for the log, and `body_bytes` is the size of the body.
    """

    def __init__(self, server: Server, model: str | None, scope: Any) -> None:
        self.model = server.find(model)
        self.labels = getattr(scope.get("route"), "path", "other"), self.model.name  # of its metrics
        self.metrics, self._most_tokens = server.metrics, server.config.tokens
        self._pool = server.long_texts if scope.get("body_bytes", 0) > _LONG_BODY else None
        scope["model"] = self.model.name

    def __enter__(self) -> OpenRequest:
        self.model.requests += 1
        self.metrics.active.labels(*self.labels).inc()
        return self

    def __exit__(self, *_: object) -> None:
        self.model.requests -= 1
        self.metrics.active.labels(*self.labels).dec()

    def require_tokens(self, total: int, param: str) -> None:
        """Raise Problem for more tokens than one request may have."""
        if total > self._most_tokens:
            message = f"{total:,} tokens in one request; the most is {self._most_tokens:,}."
            raise Problem(400, message, param=param)

    def count_tokens(self, read: int) -> None:
        """Add the tokens of its texts to the metrics."""
        self.metrics.prompt_tokens.labels(*self.labels).inc(read)

    async def read(self, job: Callable[..., T], *arguments: Any) -> T:
        """Run a job that encodes the texts of a request. Short texts never wait for long ones."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, job, *arguments)


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
