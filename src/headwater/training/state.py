"""The data of a run, read one update ahead, and the state that it has next to its weights and moments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
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


@dataclass(frozen=True, slots=True)
class Measurement:
    """The result of one validation.

    figures: for the journal, such as `validation_loss`. quality: the best state has the largest. details: JSON
    values for the run's curve.
    """

    figures: dict[str, float]
    quality: tuple[float, ...]
    details: dict[str, Any] = field(default_factory=dict)


@dataclass
class TrainingState:
    """The state that a run resumes from, next to its weights and moments; a checkpoint's `state.json`."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    best: dict[str, Any] | None = None  # {"quality": …, "step": …}
    # One entry per validation: step, figures, details, and as "training" the mean losses since the one before.
    curve: list[dict[str, Any]] = field(default_factory=list)
    sums: dict[str, float] = field(default_factory=dict)  # of losses since the last validation
    summed: int = 0

    @property
    def best_step(self) -> int | None:
        """The step with the best measurement."""
        return None if self.best is None else self.best["step"]

    def add_validation(self, validation: Measurement) -> bool:
        """Add a validation of the present step to the curve; return whether it is the best one."""
        means = {name: total / self.summed for name, total in self.sums.items()}
        self.curve.append({"step": self.step, **validation.figures, **validation.details, "training": means})
        self.sums, self.summed = {}, 0
        is_best = self.best is None or validation.quality > tuple(self.best["quality"])
        if is_best:
            self.best = {"quality": list(validation.quality), "step": self.step}
        return is_best
