"""Train the base with three more rows and a head on L3, and keep the best state.

`stage` reads and writes files.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headwater.finetuning.learning.config import FinetuneConfig
from headwater.finetuning.learning.prepare import Prepared
from headwater.finetuning.learning.start import Start, choose_probe, fit_probe
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
# The probe is kept if it is better than tuning by more than this share of the interval, half a standard error:
# most differences are chance.
_MARGIN = 1 / 8
# With fewer validation rows, the loss chooses the best state of lp-ft.
FEW_TO_VALIDATE = 100


@dataclass
class TrainingOutcome:
    """The result of training: the state that is kept, its step, and the curve.

    probabilities: (validation rows, outputs), in float32 as every later prediction. start: of the recipes that
    begin with a probe; its measurement is the curve's first entry, of step 0.
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
        """Return the curve's entry of the state that is kept."""
        return next(entry for entry in self.curve if entry["step"] == self.best_step)


def train_task(
    prepared: Prepared,
    progress: Progress = SILENT,
    *,
    out: Path | None = None,
    outputs: Path | None = None,
    probe: Start | None = None,
    keep_last: bool = False,
    on_update: OnUpdate | None = None,
) -> TrainingOutcome:
    """Fine-tune what `prepare` returned, and keep the best state, or with `keep_last` the last one.

    With `out`, the run writes its journal and checkpoints there, and resumes from the newest one; `outputs` is the
    folder of a frozen base's outputs, by default `out`. probe: the one to begin with, if it was chosen before.
    on_update: called after every update with its line of metrics.jsonl. Raises what `Run.train` raises.
    """
    config, labels = prepared.config, prepared.parts.labels
    model = prepared.task_model()
    fine_tuned = FineTuned(model, prepared.tokenizer, config.task, labels)
    if isinstance(model, FrozenTaskModel):
        prepared.store_outputs(model, outputs or out, progress)
    start, training_loss = None, 0.0
    if isinstance(model, PooledModel) and prepared.start is None:
        start, training_loss = begin_head(prepared, model, probe, progress)
    metric, rows = config.checked_metric(labels), "training_rows" if prepared.learns_from_all else "validation"
    judge = _Judge(fine_tuned, prepared.encoded["validation"], metric, start is not None, rows)
    untuned = [] if start is None else [judge.entry(0, training_loss, intervals=not keep_last)]
    if config.recipe == "probe":
        return judge.outcome(config, 0, untuned, start and replace(start, kept=True))
    begun = {} if start is None or keep_last else {key: one.clone() for key, one in model.state_dict().items()}
    curve, best_step = _tune(prepared, judge, start, progress, out, keep_last, on_update)
    if start is not None and begun and is_better(untuned[0], judge.entry(best_step, 0.0, intervals=True), metric):
        best_step, start = 0, replace(start, kept=True)
        model.load_state_dict(begun)
    return judge.outcome(config, best_step, [*untuned, *curve], start)


def _tune(
    prepared: Prepared,
    judge: _Judge,
    start: Start | None,
    progress: Progress,
    out: Path | None,
    keep_last: bool,
    on_update: OnUpdate | None,
) -> tuple[list[dict[str, Any]], int]:
    """Train the judged model, and leave its best state in it; return the curve and the state's step.

    With a start, classes are tuned on cosines, and the head is then fitted again, on the tuned features.
    """
    config, labels, train, model = prepared.config, judge.fine_tuned.labels, prepared.encoded["train"], judge.model
    pooled = model if isinstance(model, PooledModel) and start and labels.target == "class" else None
    if pooled is not None:
        pooled.begin_cosines(train, labels)
    trainer, source = build_trainer(config, model, train, labels, prepared.weights)
    steps, per_epoch = config.training.steps, source.updates_an_epoch
    run = Run(
        trainer=trainer,
        config=config.training,
        source=source,
        validate=lambda: judge.measure(trainer.step, SILENT if keep_last else progress),
        out=out,
        name="fine-tuning" if out is None else f"fine-tuning {out.resolve().name}",
        progress=progress,
        measured_after={steps} if keep_last else _measurements(config.validate_every, steps, per_epoch),
        patience=None if keep_last else config.patience,
        dynamic=True,  # texts of all lengths
        on_update=on_update,
    )
    run.train()
    run.restore_best()
    trainer.end_training()
    assert run.best is not None
    if pooled is not None and start is not None:
        weights = _weights(config, train.targets, labels, prepared.weights)
        fit_probe(pooled, [pooled.with_features(train)], labels, weights, start)
    return [_curve_entry(entry, judge.metric, per_epoch) for entry in run.curve], int(run.best["step"])


def is_better(probe: Mapping[str, Any], tuned: Mapping[str, Any], metric: MetricName) -> bool:
    """Return whether the probe's entry of the curve is better than that of tuning by more than chance may be."""
    low, high = tuned[metric]["interval"]
    return bool(probe[metric]["value"] > tuned[metric]["value"] + _MARGIN * (high - low))


def begin_head(
    prepared: Prepared, model: TaskModel, probe: Start | None, progress: Progress
) -> tuple[Start, float]:
    """Set the head by a probe of the base's features, chosen unless it is given; return it, and its loss."""
    assert isinstance(model, PooledModel)
    labels, train = prepared.parts.labels, prepared.encoded["train"]
    if train.features is None:
        progress.note("a regression on the base's features begins the head")
        train = prepared.encoded["train"] = model.with_features(train)
    weights = _weights(prepared.config, train.targets, labels, prepared.weights)
    probe = probe or choose_probe(train, labels, weights, prepared.fold)
    return probe, fit_probe(model, [train], labels, weights, probe)


def fit_all_rows(prepared: Prepared, outcome: TrainingOutcome, progress: Progress) -> None:
    """Fit a head that is a regression on the validation rows too, if they were split off the training rows.

    The validation figures remain those of the head before. Without effect if the training rows have weights of
    their own, since those of the validation rows are not known.
    """
    model, start, labels = outcome.fine_tuned.model, outcome.start, prepared.parts.labels
    if start is None or not (start.kept or labels.target == "class"):
        return
    if not prepared.parts.split_off or prepared.learns_from_all or prepared.weights is not None:
        return
    assert isinstance(model, PooledModel)
    parts = [model.with_features(prepared.encoded[part]) for part in ("train", "validation")]
    targets = np.concatenate([part.targets for part in parts])
    fit_probe(model, parts, labels, _weights(prepared.config, targets, labels, None), start)
    progress.note(f"the head is fitted again on all {len(targets):,} rows, validation rows included")


@dataclass
class _Judge:
    """Measures states on the validation rows, and ranks them.

    begun: whether the head began with a probe. rows: what the figures of metrics.jsonl are named after.
    """

    fine_tuned: FineTuned
    validation: Encoded
    metric: MetricName
    begun: bool
    rows: str = "validation"

    @property
    def model(self) -> TaskModel:
        return self.fine_tuned.model

    def rank_of(self, entry: Mapping[str, Any]) -> tuple[float, ...]:
        """Return what orders states; of few rows the loss, because their metric is mostly chance."""
        value, loss = entry[self.metric]["value"], entry["validation_loss"]
        few = self.begun and len(self.validation) < FEW_TO_VALIDATE
        return (-loss, value) if few else (value, -loss)

    def entry(self, step: int, training_loss: float, *, intervals: bool = False) -> dict[str, Any]:
        """Return the curve's entry of the present state."""
        values, loss = self.model.predict(self.validation, self.fine_tuned.labels)
        figures = measure_probabilities(self.fine_tuned, self.validation.targets, values, intervals=intervals)
        return {"step": step, "validation_loss": loss, **figures, "training_loss": training_loss, "epoch": 0}

    def measure(self, step: int, progress: Progress) -> Measurement:
        """Measure the state after an update."""
        entry = self.entry(step, 0.0)
        loss, value = entry["validation_loss"], entry[self.metric]["value"]
        progress.note(f"update {step}: {self.metric} {value:.3f}, validation loss {loss:.4f}")
        shown = {f"{self.rows}_loss": loss, f"{self.rows}_{self.metric}": value}
        figures = {name: figure for name, figure in entry.items() if isinstance(figure, dict)}
        return Measurement(shown, self.rank_of(entry), figures)

    def outcome(
        self, config: FinetuneConfig, step: int, curve: list[dict[str, Any]], start: Start | None
    ) -> TrainingOutcome:
        """Return the outcome of a training whose kept state is in the model."""
        self.model.eval()
        best, loss = self.model.predict(self.validation, self.fine_tuned.labels)
        for entry in curve:  # intervals, which cost more than values, of the state that is kept alone
            if entry["step"] == step:
                entry |= measure_probabilities(self.fine_tuned, self.validation.targets, best)
                entry["validation_loss"] = loss
        rate = config.training.learning_rate
        steps = 0 if config.recipe == "probe" else config.training.steps
        return TrainingOutcome(self.fine_tuned, self.metric, rate, step, steps, curve, best, start)


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
        labels.probabilities(train),
        batch_size=training.batch_size,
        seed=training.seed,
        micro_batch=training.micro_batch,
        most_tokens=CPU_TOKENS if device.type == "cpu" else DEVICE_TOKENS,
        weights=_weights(config, train.targets, labels, sample_weight),
    )
    return trainer, source


def _weights(
    config: FinetuneConfig,
    targets: npt.NDArray[np.float64],
    labels: Labels,
    given: npt.NDArray[np.float64] | None,
) -> npt.NDArray[np.float32]:
    """Return the weight of each training example in L2, 1 in the mean."""
    weights = np.ones(len(targets)) if given is None else given.astype(np.float64)
    if config.class_weight is not None:
        classes = targets.astype(np.int64)
        if config.class_weight == "balanced":
            of_class = len(classes) / (
                labels.outputs * np.maximum(np.bincount(classes, minlength=labels.outputs), 1)
            )
        else:
            of_class = np.array([config.class_weight.get(class_name(name), 1.0) for name in labels.names])
        weights = weights * of_class[classes]
    return (weights / (weights.mean() or 1)).astype(np.float32)


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
