"""The training data of every update, read one update ahead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol


class BatchSource(Protocol):
    """The training data of every update: a function of the step alone, so that a resumed run reads the same."""

    def micro_batches(self, step: int) -> Sequence[Any]:
        """Return this rank's micro-batches of update `step` (from 0); each has a method `to(device)`."""

    def tokens(self, step: int) -> int:
        """Return the tokens of update `step`, over all ranks."""


class ReadAhead:
    """Calls `read(step)` one step ahead, in a thread."""

    def __init__(self, read: Callable[[int], list[Any]], end: int) -> None:
        self._read, self._end = read, end
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="batches")
        self._next: tuple[int, Future[list[Any]]] | None = None

    def take(self, step: int) -> list[Any]:
        """Return the batches of a step, and begin to read those of the next one."""
        if self._next is None or self._next[0] != step:
            self._next = (step, self._pool.submit(self._read, step))
        result = self._next[1].result()
        self._next = (step + 1, self._pool.submit(self._read, step + 1)) if step + 1 < self._end else None
        return result

    def close(self) -> None:
        """Wait for the thread."""
        self._pool.shutdown(wait=True, cancel_futures=True)
