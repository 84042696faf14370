"""Train the base with three more rows and a head on L3, and keep the best state.

`stage` reads and writes files.
"""

from __future__ import annotations

import math
from collections.abc import Container
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from headwater.finetuning.learning.config import FinetuneConfig
from headwater.finetuning.learning.prepare import Prepared
from headwater.finetuning.learning.start import Start, fit_probe
from headwater.finetuning.model.batches import CPU_TOKENS, DEVICE_TOKENS, ExampleSampler
from headwater.finetuning.model.features import FrozenTaskModel
from headwater.finetuning.model.fine_tuned import FineTuned
from headwater.finetuning.model.head import TaskModel, l3
from headwater.finetuning.model.inputs import Encoded
from headwater.finetuning.model.pooled import PooledModel
from headwater.finetuning.results.metrics import measure_decisions
from headwater.finetuning.rows.labels import Labels
from headwater.finetuning.rows.row import MetricName, class_name
from headwater.storage import SILENT, Progress
from headwater.training import Measurement, OnUpdate, Ranks, Run, Trainer

# A training of fewer epochs is validated this many times instead of once an epoch.
_FEWEST_MEASUREMENTS = 3
# With fewer validation rows, the loss chooses the best state of lp-ft.
FEW_TO_VALIDATE = 100


@dataclass
class TrainingOutcome:
    """The result of training: the best state, its step, and the curve.

    probabilities: (validation rows, outputs), in float32 as every later prediction. start: of the recipe lp-ft.
    """

    fine_tuned: FineTuned
    metric: MetricName
    learning_rate: float
    best_step: int
    steps: int
    curve: list[dict[str, Any]]
    probabilities: npt.NDArray[np.float32]
    start: Start | None = None

    def best_entry(self) -> dict[str, Any]:
        """Return the curve's entry of the best state."""
        return next(entry for entry in self.curve if entry["step"] == self.best_step)


def train_task(
    prepared: Prepared,
    progress: Progress = SILENT,
    *,
    out: Path | None = None,
    outputs: Path | None = None,
    on_update: OnUpdate | None = None,
) -> TrainingOutcome:
    """Fine-tune what `prepare` returned, and keep the best state.

    With `out`, the run writes its journal and checkpoints there, and resumes from the newest one; `outputs` is the
    folder of a frozen base's outputs, by default `out`. on_update: called after every update with its line of
    metrics.jsonl. Raises what `Run.train` raises.
    """
    config, labels = prepared.config, prepared.parts.labels
    metric = config.checked_metric(labels)
    model = prepared.task_model()
    fine_tuned = FineTuned(model, prepared.tokenizer, config.task, labels)
    if config.lambda_lm and not prepared.base.config.is_causal:
        progress.note(
            "the auxiliary objective needs a model that reads from left to right: this model is trained without it"
        )
        config = config.model_copy(update={"lambda_lm": 0.0})
    if isinstance(model, FrozenTaskModel):
        prepared.store_outputs(model, outputs or out, progress)
    train, validation = prepared.encoded["train"], prepared.encoded["validation"]
    probe: Start | None = None
    if isinstance(model, PooledModel) and prepared.start is None:
        progress.note("logistic regression on the base's features begins the head")
        weights = _weights(config, train, labels, prepared.weights)
        probe = fit_probe(model, train, labels, weights, config.training.seed)
    untuned = None if probe is None else _measure_start(fine_tuned, train, validation)
    trainer, source = build_trainer(config, model, train, labels, prepared.weights)
    masters = trainer.optimizer.masters
    kept = [] if probe is None else [weight.detach().clone() for weight in masters]

    def rank(value: float, loss: float) -> tuple[float, ...]:
        """Return what orders states; of few rows the loss, because their metric is mostly chance."""
        by_loss = probe is not None and len(validation) < FEW_TO_VALIDATE
        return (-loss, value) if by_loss else (value, -loss)

    def validate() -> Measurement:
        values, loss = model.predict(validation, labels)
        figures = measure_probabilities(fine_tuned, validation.targets, values, intervals=False)
        value = figures[metric]["value"]
        progress.note(f"update {trainer.step}: {metric} {value:.3f}, validation loss {loss:.4f}")
        shown = {"validation_loss": loss, f"validation_{metric}": value}
        return Measurement(shown, rank(value, loss), figures)

    run = Run(
        trainer=trainer,
        config=config.training,
        source=source,
        validate=validate,
        out=out,
        name="fine-tuning" if out is None else f"fine-tuning {out.resolve().name}",
        progress=progress,
        measured_after=_measurements(config.validate_every, config.training.steps, source.updates_an_epoch),
        patience=config.patience,
        dynamic=True,  # texts of all lengths
        on_update=on_update,
    )
    run.train()
    run.restore_best()
    model.eval()
    assert run.best is not None
    best_step = int(run.best["step"])
    curve = [_curve_entry(entry, metric, source.updates_an_epoch) for entry in run.curve]
    if probe is not None and untuned is not None:
        value, loss = untuned[metric]["value"], untuned["validation_loss"]
        probe = replace(probe, kept=rank(value, loss) >= tuple(run.best["rank"]))
        if probe.kept:
            best_step = 0
            with torch.no_grad():
                torch._foreach_copy_(masters, kept)
            trainer.optimizer.copy_to_model()
        tuned = next(entry for entry in curve if entry["step"] == int(run.best["step"]))[metric]["value"]
        then = "no epoch improves on it" if probe.kept else f"then all weights tuned: {metric} {tuned:.3f}"
        progress.note(f"start: {probe}, {metric} {value:.3f}; {then}, on the validation rows")
        curve = [untuned, *curve]
    trainer.end_training()
    best = fine_tuned.probabilities(validation)
    for entry in curve:  # intervals, which cost more than values, of the best state alone
        if entry["step"] == best_step:
            entry |= measure_probabilities(fine_tuned, validation.targets, best)
    rate = config.training.learning_rate
    return TrainingOutcome(fine_tuned, metric, rate, best_step, config.training.steps, curve, best, probe)


def _measure_start(fine_tuned: FineTuned, train: Encoded, validation: Encoded) -> dict[str, Any]:
    """Return the curve's entry of the state before the first update."""
    model, labels = fine_tuned.model, fine_tuned.labels
    outputs, loss = model.predict(validation, labels)
    figures = measure_probabilities(fine_tuned, validation.targets, outputs, intervals=False)
    return {
        "step": 0,
        "validation_loss": loss,
        **figures,
        "training_loss": model.predict(train, labels)[1],
        "epoch": 0,
    }


def build_trainer(
    config: FinetuneConfig,
    model: TaskModel,
    train: Encoded,
    labels: Labels,
    sample_weight: npt.NDArray[np.float64] | None = None,
) -> tuple[Trainer, ExampleSampler]:
    """Return the trainer of a resolved configuration, and the examples of every update."""
    training, device = config.training, model.head.weight.device
    trainer = Trainer(model, l3(config.lambda_lm), training, ranks=Ranks(device=device))
    source = ExampleSampler(
        train,
        labels.probabilities(train) * _weights(config, train, labels, sample_weight)[:, None],
        batch_size=training.batch_size,
        seed=training.seed,
        micro_batch=training.micro_batch,
        most_tokens=CPU_TOKENS if device.type == "cpu" else DEVICE_TOKENS,
    )
    return trainer, source


def _weights(
    config: FinetuneConfig, train: Encoded, labels: Labels, given: npt.NDArray[np.float64] | None
) -> npt.NDArray[np.float32]:
    """Return the weight of each training example in L2, 1 in the mean."""
    weights = np.ones(len(train)) if given is None else given.astype(np.float64)
    if config.class_weight is not None:
        classes = train.targets.astype(np.int64)
        if config.class_weight == "balanced":
            of_class = len(classes) / (
                labels.outputs * np.maximum(np.bincount(classes, minlength=labels.outputs), 1)
            )
        else:
            of_class = np.array([config.class_weight.get(class_name(name), 1.0) for name in labels.names])
        weights = weights * of_class[classes]
    return (weights / weights.mean()).astype(np.float32)


_TRAINING_LOSSES = (("l2", "training_loss"), ("l1", "training_language_model_loss"))


def _curve_entry(entry: dict[str, Any], metric: MetricName, updates_an_epoch: int) -> dict[str, Any]:
    """Return one measurement for metrics.json: training losses by name, and the epoch, from 1."""
    entry = {key: value for key, value in entry.items() if key != f"validation_{metric}"}
    training = entry.pop("training")
    for key, name in _TRAINING_LOSSES:
        if key in training:
            entry[name] = training[key]
    return entry | {"epoch": (entry["step"] - 1) // updates_an_epoch + 1}


def measure_probabilities(
    fine_tuned: FineTuned,
    targets: npt.NDArray[np.float64],
    probabilities: npt.NDArray[np.float32],
    *,
    intervals: bool = True,
) -> dict[str, Any]:
    """Return every metric that fits the labels over examples that all have a target; `intervals` cost the most."""
    labels, decided = fine_tuned.labels, fine_tuned.decide(probabilities)
    measured = measure_decisions(labels.target, targets, decided, labels.outputs, intervals=intervals)
    return {"accuracy": measured["accuracy"]} if labels.target == "answer" else measured


def _measurements(every: int | None, steps: int, per_epoch: int) -> Container[int]:
    """Return the updates to validate after: every N, each epoch's last, or evenly spaced in a short training."""
    if every is not None or steps >= _FEWEST_MEASUREMENTS * per_epoch:
        return range(every or per_epoch, steps + 1, every or per_epoch)
    return {math.ceil(steps * part / _FEWEST_MEASUREMENTS) for part in range(1, _FEWEST_MEASUREMENTS + 1)}
