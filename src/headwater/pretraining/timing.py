"""Time an update in bounded time: a few whole ones if they are short, else a part of one, extrapolated.

An update of the paper's recipe has half a million tokens, which take a CPU minutes or hours. Its time is that of
its sequences, which are equally long, and of one step of the optimizer.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from headwater.storage import SILENT, Progress
from headwater.training import Trainer

# The first updates also choose kernels and allocate memory; timing short updates needs many of them.
_WARMUP = (2, 1.0)  # the fewest updates and seconds
_TIMED = (5, 2.0)
_BUDGET = 20.0  # seconds for all timings, as far as the first sequence leaves a choice
_PARTS = 3  # timings of a part


def time_updates(
    trainer: Trainer, read: Callable[[int], Sequence[Any]], progress: Progress = SILENT, budget: float = _BUDGET
) -> float:
    """Return the seconds of an update, measured in about `budget` seconds; every rank must call this.

    The part that is timed of a long update is as many sequences as fit the time, on an accelerator a micro-batch:
    each other shape would be compiled. Changes the model.
    """
    ranks = trainer.ranks
    began = time.perf_counter()

    def clock(work: Callable[[], Any]) -> float:
        started = time.perf_counter()
        work()
        progress.advance(time.perf_counter() - began)
        return time.perf_counter() - started

    batches = read(0)
    sequences = sum(len(batch.ids) for batch in batches)
    whole = batches[0]
    part = whole.first(1) if ranks.device.type == "cpu" else whole
    seconds = clock(lambda: trainer.update([part]))
    # Ranks decide together: if one did less than the others, they would wait for it.
    if not ranks.any(seconds > budget / _PARTS):  # else the first one, which is slower, must do
        seconds = clock(lambda: trainer.update([part]))
    updates = _WARMUP[0] + _TIMED[0]
    if not ranks.any(seconds * sequences / len(part.ids) * updates > budget):
        return _time_whole(trainer, read, clock)
    fitting = ranks.minimum(int(budget / (_PARTS + 1) / seconds))
    if len(part.ids) < min(fitting, len(whole.ids)):
        part = whole.first(min(fitting, len(whole.ids)))
        clock(lambda: trainer.update([part]))  # allocates memory
        seconds = statistics.median(clock(lambda: trainer.update([part])) for _ in range(_PARTS))
    step = clock(lambda: trainer.optimizer.step(0.0))
    return step + max(0.0, seconds - step) * sequences / len(part.ids)


def _time_whole(
    trainer: Trainer, read: Callable[[int], Sequence[Any]], clock: Callable[[Callable[[], Any]], float]
) -> float:
    """Return the median seconds of a few whole updates."""
    step = 0
    seconds: list[float] = []
    for updates, least in (_WARMUP, _TIMED):
        seconds = []
        while trainer.ranks.any(len(seconds) < updates or sum(seconds) < least):
            batches = read(step)
            seconds.append(clock(lambda batches=batches: trainer.update(batches)))  # type: ignore[misc]
            step += 1
    return statistics.median(seconds)
