"""The memory that answers may take: of one request, and of all that are under way."""

from __future__ import annotations

import threading

from headwater.serve.limits import Limits
from headwater.serve.problems import Problem

# Smaller answers are not counted, so that a short request is never refused for what others hold.
_SMALL_BYTES = 64 * 1024


class Budget:
    """Bytes of the large answers that are held at the same time, as estimated before each is computed."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.held = 0
        self._lock = threading.Lock()

    def add(self, size: int) -> None:
        """Reserve bytes, or give back a negative number of them; raises Problem 429 if too few are left."""
        with self._lock:
            if size > 0 and self.held + size > self.limits.held_bytes:
                raise Problem(
                    429,
                    f"The answers under way have {self.held:,} bytes, this one would have about {size:,}; "
                    f"the most is {self.limits.held_bytes:,} in all. Try again in 1 s.",
                    code="answers_full",
                    headers={"Retry-After": "1"},
                )
            self.held += size


class Share:
    """What one request holds of the budget; a context manager that gives it back."""

    def __init__(self, budget: Budget) -> None:
        self.limits = budget.limits
        self._budget, self._size = budget, 0

    def __enter__(self) -> Share:
        return self

    def __exit__(self, *_: object) -> None:
        self._budget.add(-self._size)
        self._size = 0

    def take(self, size: int, param: str) -> None:
        """Reserve about `size` bytes; raises Problem if the answer, or all of them together, are too large."""
        most = min(self.limits.answer_bytes, self.limits.held_bytes)
        if size > most:
            raise Problem(
                400,
                f"The answer would have about {size:,} bytes; the most is {most:,}.",
                param=param,
                code="answer_too_large",
            )
        if size > _SMALL_BYTES:
            self._budget.add(size)
            self._size += size
