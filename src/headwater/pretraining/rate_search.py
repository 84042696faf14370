"""A learning-rate range test (Smith 2017, "Cyclical learning rates"): one short training with a rising rate.

The rate grows from LOWEST to HIGHEST by a constant factor per update, until the loss has clearly risen. The loss
is that of the same held-out windows after each update: GPT-2's rates were chosen on held-out text (section 2.3).
The suggestion is a tenth of the rate with the lowest smoothed loss: safely below divergence, and still fast.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from headwater.errors import TrainingError
from headwater.pretraining.pretraining import build_run, run_inputs
from headwater.pretraining.recipe import PretrainConfig, resolve
from headwater.pretraining.tokens.shards import local_tokens
from headwater.reading import read_text
from headwater.report import require_matplotlib, save_plot
from headwater.storage import SILENT, Progress, Stage, write_text
from headwater.training import CHANGEABLE, Measurement, Trainer, process_group

LOWEST, HIGHEST = 1e-6, 1.0
UPDATES = 120
SMOOTHING = 0.9
# The test ends when the smoothed loss is this many nats above its minimum.
TURNED = 1.0
_POINTS = "points.jsonl"


class Point(NamedTuple):
    """One update: its rate, the held-out loss after it, and the smoothed loss."""

    learning_rate: float
    loss: float
    smoothed: float


def find_rate(config: PretrainConfig, tokens: str | Path, out: Path, *, progress: Progress = SILENT) -> float:
    """Return the learning rate that a range test of this recipe suggests, as a number that is easy to type.

    The folder `out` gets the test, `points.jsonl` and its curve, `curve.svg`; an existing one is used as it is.
    Under torchrun every rank calls this; the first one writes.
    """
    require_matplotlib()  # before the test
    tokens = local_tokens(tokens)
    with process_group(config.device) as ranks:
        config = resolve(config, tokens, ranks)
        progress = progress if ranks.is_first else SILENT
        inputs = run_inputs(config, tokens)
        stage = Stage(
            out,
            kind="rate-search",
            config=config.deciding() | {"loss": "held-out"},
            inputs=inputs,
            seed=config.seed,
            measured=[*CHANGEABLE, "init_from"],  # which earlier versions wrote
        )
        if ranks.broadcast(stage.is_complete() if ranks.is_first else None):
            progress.note(f"{out} is complete already")
            return suggestion([Point(**json.loads(line)) for line in read_text(out / _POINTS).splitlines()])
        few = config.model_copy(update={"validation_windows": config.batch_size})
        run = build_run(few, tokens, out, ranks, SILENT)
        with run.computing():
            points = search_rate(run.trainer, run.read, run.validate, progress=progress)
        if ranks.is_first:
            with stage.write() as work:
                lines = [json.dumps(point._asdict()) + "\n" for point in points]
                write_text(work / _POINTS, "".join(lines))
                save_plot(partial(_draw, points), work / "curve.svg")
    return suggestion(points)


def search_rate(
    trainer: Trainer,
    read: Callable[[int], Sequence[Any]],
    validate: Callable[[], Measurement],
    *,
    progress: Progress = SILENT,
) -> list[Point]:
    """Run the test; it ruins the trainer's weights. `validate` measures the held-out loss."""
    growth = (HIGHEST / LOWEST) ** (1 / (UPDATES - 1))
    points: list[Point] = []
    average = 0.0
    progress.start("learning-rate range test", UPDATES, "updates")
    for step in range(UPDATES):
        rate = LOWEST * growth**step
        try:
            trainer.update(read(step), learning_rate=rate)
        except TrainingError:  # divergence ends the curve
            if not points:
                raise
            break
        loss = validate().figures["validation_loss"]
        if not math.isfinite(loss) and points:
            break
        average = SMOOTHING * average + (1 - SMOOTHING) * loss
        points.append(Point(rate, loss, average / (1 - SMOOTHING ** (step + 1))))
        progress.advance(step + 1, loss=loss, learning_rate=rate)
        if points[-1].smoothed > min(point.smoothed for point in points) + TURNED:
            break
    progress.finish(f"{suggestion(points):g}, a tenth of the rate with the lowest held-out loss")
    return points


def suggestion(points: list[Point]) -> float:
    """Return the suggested rate, rounded to 1, 1.5, 2, 3, 4, 6 or 8 times a power of ten."""
    rate = min(points, key=lambda point: point.smoothed).learning_rate / 10
    power = 10.0 ** math.floor(math.log10(rate))
    return float(f"{min((1, 1.5, 2, 3, 4, 6, 8, 10), key=lambda d: abs(math.log(d * power / rate))) * power:.2g}")


def _draw(points: list[Point], figure: Any) -> None:
    axes = figure.subplots()
    rates, best = [point.learning_rate for point in points], suggestion(points)
    axes.semilogx(rates, [point.loss for point in points], color="0.8", label="held-out loss")
    axes.semilogx(rates, [point.smoothed for point in points], label="smoothed")
    axes.axvline(best, linestyle=":", color="0.3", label=f"suggested: {best:g}")
    axes.set(xlabel="learning rate", ylabel="held-out loss (nats per token)")
    axes.legend()
