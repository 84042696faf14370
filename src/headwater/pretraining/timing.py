"""Time an update in bounded time: by a part of it.

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

_BUDGET = 20.0  # seconds for all timings, as far as the first sequence leaves a choice
_SHARE = 4  # of the budget for one timing
_TIMED = (3, 2.0)  # the fewest timings, after those that choose kernels and allocate memory, and their seconds


def time_updates(
    trainer: Trainer, read: Callable[[int], Sequence[Any]], progress: Progress = SILENT, budget: float = _BUDGET
) -> float:
    """Return the seconds of an update, measured in about `budget` seconds; every rank must call this.

    The part is as many sequences of a micro-batch as fit the time, on an accelerator all of them: each other shape
    would be compiled. Changes the model.
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
    part = whole = batches[0]
    if ranks.device.type == "cpu":
        part = whole.first(1)

    def time_part() -> float:
        return clock(lambda: trainer.update([part]))

    seconds = time_part()
    # Ranks decide together: if one did less than the others, they would wait for it.
    if not ranks.any(seconds > budget / _SHARE):  # else the first one, which is slower, must do
        seconds = time_part()
    fitting = ranks.minimum(int(len(part.ids) * budget / _SHARE / seconds))
    if fitting >= len(part.ids):
        part = whole.first(min(fitting, len(whole.ids)))
        time_part()  # allocates memory
        timings: list[float] = []
        while ranks.any(len(timings) < _TIMED[0] or sum(timings) < _TIMED[1]):
            timings.append(time_part())
        seconds = statistics.median(timings)
    step = clock(lambda: trainer.optimizer.step(0.0))
    return step + max(0.0, seconds - step) * sequences / len(part.ids)
