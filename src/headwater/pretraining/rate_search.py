"""A learning-rate range test (Smith 2017, "Cyclical learning rates"): one short training with a rising rate.

The rate grows from LOWEST to HIGHEST by a constant factor an update, until the loss has clearly risen. The
suggestion is a tenth of the rate with the lowest smoothed loss: safely below divergence, and still fast.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from headwater.errors import TrainingError
from headwater.storage import SILENT, Progress
from headwater.training import Trainer

LOWEST, HIGHEST = 1e-6, 1.0
UPDATES = 120
SMOOTHING = 0.9
# The test ends when the smoothed loss is this many nats above its minimum.
TURNED = 1.0


class Point(NamedTuple):
    """One update: its rate, the loss, and the smoothed loss."""

    learning_rate: float
    loss: float
    smoothed: float


def search_rate(
    trainer: Trainer, read: Callable[[int], Sequence[Any]], *, progress: Progress = SILENT
) -> list[Point]:
    """Run the test; it ruins the trainer's weights."""
    growth = (HIGHEST / LOWEST) ** (1 / (UPDATES - 1))
    points: list[Point] = []
    average = 0.0
    progress.start("learning-rate range test", UPDATES, "updates")
    for step in range(UPDATES):
        rate = LOWEST * growth**step
        try:
            loss = trainer.update(read(step), learning_rate=rate).loss
        except TrainingError:  # divergence ends the curve
            if not points:
                raise
            break
        average = SMOOTHING * average + (1 - SMOOTHING) * loss
        points.append(Point(rate, loss, average / (1 - SMOOTHING ** (step + 1))))
        progress.advance(step + 1, loss=loss, learning_rate=rate)
        if points[-1].smoothed > min(point.smoothed for point in points) + TURNED:
            break
    progress.finish(f"{suggestion(points):g}, a tenth of the rate with the lowest loss")
    return points


def suggestion(points: list[Point]) -> float:
    """Return the suggested rate, rounded to 1, 1.5, 2, 3, 4, 6 or 8 times a power of ten."""
    rate = min(points, key=lambda point: point.smoothed).learning_rate / 10
    power = 10.0 ** math.floor(math.log10(rate))
    return float(f"{min((1, 1.5, 2, 3, 4, 6, 8, 10), key=lambda d: abs(math.log(d * power / rate))) * power:.2g}")
