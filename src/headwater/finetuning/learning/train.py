"""Train a base with a head on L3, and restore the best state; GPT-1's recipe and LP-FT use it."""

from __future__ import annotations

import math
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headwater.errors import DataError
from headwater.finetuning.learning.config import FinetuneConfig
from headwater.finetuning.model.batches import CPU_TOKENS, DEVICE_TOKENS, ExampleSampler
from headwater.finetuning.model.fine_tuned import decide
from headwater.finetuning.model.heads import TaskModel, l3
from headwater.finetuning.model.inputs import Encoded
from headwater.finetuning.results.metrics import measure_decisions
from headwater.finetuning.rows.labels import Labels
from headwater.storage import SILENT, Progress
from headwater.training import Measurement, OnUpdate, Ranks, Run, Trainer

Floats = npt.NDArray[np.float32]
# A training of fewer epochs is validated this many times instead of once an epoch.
_FEWEST_MEASUREMENTS = 3
_TRAINING_LOSSES = (("l2", "training_loss"), ("l1", "training_language_model_loss"))


@dataclass(frozen=True)
class Reporter:
    """Where a training reports: its progress, the folder of its checkpoints, and a call after each update."""

    progress: Progress = SILENT
    out: Path | None = None
    on_update: OnUpdate | None = None


@dataclass(frozen=True)
class Training:
    """The result of a training.

    learning_rate, reason: the peak rate, and why it is that. best_step: the update whose state the model has.
    steps, epochs: those that were made. curve: an entry for each validation.
    """

    learning_rate: float
    reason: str
    best_step: int
    steps: int
    epochs: float
    curve: list[dict[str, Any]] = field(default_factory=list)


def train_task(
    config: FinetuneConfig,
    model: TaskModel,
    labels: Labels,
    train: Encoded,
    validation: Encoded | None = None,
    *,
    weights: Floats | None = None,
    mixed_loss: Callable[[Floats], float] | None = None,
    reporter: Reporter | None = None,
) -> Training:
    """Train a task model on rows, and leave it in its best state on the validation rows, else in its last.

    weights: (training rows,) of each in L2. mixed_loss: returns the loss of the mixture for the validation rows'
    probabilities; the state with the lowest is the best, without it the state with the best metric. Raises what
    `Run.train` raises.
    """
    reporter = reporter or Reporter()
    rate, reason = config.peak_rate(model.model.config)
    metric = config.checked_metric(labels)
    config = config.resolve(model.model.config, examples=len(train))
    trainer, source = build_trainer(config, model, train, labels, weights)

    def validate() -> Measurement:
        if validation is None:
            return Measurement({}, ())
        shares, loss = model.predict(validation, labels)
        figures = measure_decisions(
            labels.target, validation.targets, decide(labels, shares), labels.outputs, intervals=False
        )
        value = figures[metric]["value"]
        mixed = None if mixed_loss is None else mixed_loss(shares)
        line = f"update {trainer.step}: {metric} {value:.3f}, validation loss {loss:.4f}"
        reporter.progress.note(line if mixed is None else f"{line}, of the mixture {mixed:.4f}")
        quality = (value, -loss) if mixed is None else (-mixed, -loss)  # its own loss while it has no weight
        return Measurement({"validation_loss": loss, f"validation_{metric}": value}, quality, figures)

    steps = trainer.config.steps
    out = reporter.out
    run = Run(
        trainer=trainer,
        config=config,
        source=source,
        validate=validate,
        out=out,
        name="fine-tuning" if out is None else f"fine-tuning {out.resolve().name}",
        progress=reporter.progress,
        measured_after={steps}
        if validation is None
        else _measurements(config.validate_every, steps, source.updates_an_epoch),
        patience=None if validation is None else config.patience,
        dynamic=True,  # texts of all lengths
        on_update=reporter.on_update,
    )
    run.train()
    run.restore_best()
    trainer.end_training()
    model.eval()
    assert run.state.best_step is not None
    curve = [_curve_entry(entry, metric, source.updates_an_epoch) for entry in run.state.curve]
    done = curve[-1]["step"] if curve else steps  # fewer than planned if it stopped early
    return Training(rate, reason, run.state.best_step, done, round(done / source.updates_an_epoch, 2), curve)


def build_trainer(
    config: FinetuneConfig, model: TaskModel, train: Encoded, labels: Labels, weights: Floats | None = None
) -> tuple[Trainer, ExampleSampler]:
    """Return the trainer of a resolved configuration, and the examples of every update."""
    device = model.head.weight.device
    trainer = Trainer(model, l3(config.lambda_lm), config, ranks=Ranks(device=device))
    source = ExampleSampler(
        train,
        labels.probabilities(train),
        batch_size=config.batch_size,
        seed=config.seed,
        micro_batch=config.micro_batch,
        most_tokens=CPU_TOKENS if device.type == "cpu" else DEVICE_TOKENS,
        weights=weights,
    )
    return trainer, source


def row_weights(
    config: FinetuneConfig,
    targets: npt.NDArray[np.float64],
    labels: Labels,
    sample: npt.NDArray[np.float64] | None,
) -> Floats:
    """Return the weight of each training example in the loss, 1 in the mean; sample: the user's own weights.

    Raises DataError if all of these are 0.
    """
    weights = np.ones(len(targets)) if sample is None else sample.astype(np.float64)
    if not weights.any():
        raise DataError(
            "every row to train on has the weight 0: the rows with other weights are held out or have no text",
            repair="Give more rows a weight, or choose another seed",
        )
    if config.class_weight is not None:
        classes = targets.astype(np.int64)
        counts = np.maximum(np.bincount(classes, minlength=labels.outputs), 1)
        weights = weights * (len(classes) / (labels.outputs * counts))[classes]
    return (weights / (weights.mean() or 1)).astype(np.float32)


def _curve_entry(entry: dict[str, Any], metric: str, updates_an_epoch: int) -> dict[str, Any]:
    """Return one measurement for metrics.json: training losses by name, and the epoch, from 1."""
    entry = {key: value for key, value in entry.items() if key != f"validation_{metric}"}
    training = entry.pop("training")
    for key, name in _TRAINING_LOSSES:
        if key in training:
            entry[name] = training[key]
    return entry | {"epoch": (entry["step"] - 1) // updates_an_epoch + 1}


def _measurements(every: int | None, steps: int, per_epoch: int) -> Container[int]:
    """Return the updates to validate after: every N, each epoch's last, or evenly spaced in a short training."""
    if every is not None or steps >= _FEWEST_MEASUREMENTS * per_epoch:
        return range(every or per_epoch, steps + 1, every or per_epoch)
    return {math.ceil(steps * part / _FEWEST_MEASUREMENTS) for part in range(1, _FEWEST_MEASUREMENTS + 1)}
