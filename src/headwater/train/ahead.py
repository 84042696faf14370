"""The next update's batch, read while the present one computes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar("T")


class Ahead(Generic[T]):
    """Calls `read(step)` one step ahead, in a thread of its own."""

    def __init__(self, read: Callable[[int], T], end: int) -> None:
        self._read, self._end = read, end
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="batches")
        self._next: tuple[int, Future[T]] | None = None

    def take(self, step: int) -> T:
        """What `read(step)` returns, and a start on the step after it."""
        if self._next is None or self._next[0] != step:
            self._next = (step, self._pool.submit(self._read, step))
        result = self._next[1].result()
        self._next = (step + 1, self._pool.submit(self._read, step + 1)) if step + 1 < self._end else None
        return result

    def close(self) -> None:
        """Stop reading."""
        self._pool.shutdown(wait=True, cancel_futures=True)
