"""Train the base with three more rows and a head on L3, and keep the best state.

`stage` reads and writes files.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from headwater.finetuning.learning.config import FinetuneConfig
from headwater.finetuning.learning.prepare import Prepared
from headwater.finetuning.learning.probe import Probe, choose_probe, fit_probe
from headwater.finetuning.model.batches import CPU_TOKENS, DEVICE_TOKENS, ExampleSampler
from headwater.finetuning.model.features import FrozenTaskModel
from headwater.finetuning.model.fine_tuned import FineTuned
from headwater.finetuning.model.head import TaskModel, l3
from headwater.finetuning.model.inputs import Encoded
from headwater.finetuning.model.ngrams import inverse_frequencies
from headwater.finetuning.model.pooled import PooledModel
from headwater.finetuning.results.metrics import measure_decisions
from headwater.finetuning.rows.labels import Labels
from headwater.finetuning.rows.row import MetricName, class_name
from headwater.training import Measurement, Ranks, Run, Trainer

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
    begin with a probe; its measurement is the curve's first entry, of step 0. Entries of a training whose head
    changes say which was measured: `head` is "cosines" during tuning, else "regression".
    """

    fine_tuned: FineTuned
    metric: MetricName
    learning_rate: float
    best_step: int
    steps: int
    curve: list[dict[str, Any]]
    probabilities: npt.NDArray[np.float32]
    start: Probe | None = None

    def best_entry(self) -> dict[str, Any]:
        """Return the curve's entry of the state that is kept."""
        return next(entry for entry in self.curve if entry["step"] == self.best_step)


def train_task(prepared: Prepared, *, probe: Probe | None = None, keep_last: bool = False) -> TrainingOutcome:
    """Fine-tune what `prepare` returned, and keep the best state, or with `keep_last` the last one.

    probe: the one to begin with, if it was chosen before. Raises what `Run.train` raises.
    """
    config, labels, model = prepared.config, prepared.parts.labels, prepared.task_model()
    tuned, metric = FineTuned(model, prepared.tokenizer, config.task, labels), config.checked_metric(labels)
    if isinstance(model, FrozenTaskModel):
        prepared.store_outputs(model)
    start, curve, best_step, steps = None, [], 0, 0
    if isinstance(model, PooledModel) and prepared.start is None:
        start, loss = set_probe(prepared, model, probe)
        if config.recipe == "probe" or not keep_last:
            untuned, shares = _measure(tuned, prepared.encoded["validation"])
            curve = [{"step": 0, "training_loss": loss, "epoch": 0, **untuned}]
    if config.recipe != "probe":
        before = {key: one.clone() for key, one in model.state_dict().items()} if curve else {}
        tuning, best_step, tuned_shares = _tune(prepared, tuned, metric, start, keep_last)
        last = next(entry for entry in tuning if entry["step"] == best_step)
        if before and is_better(curve[0], last, metric):
            best_step = 0
            model.load_state_dict(before)
        else:
            shares = tuned_shares
        for entry in curve if "head" in last else ():
            entry["head"] = "regression"
        assert config.steps is not None  # of a resolved configuration
        curve, steps = [*curve, *tuning], config.steps
    if start is not None and not best_step:
        start = replace(start, kept=True)
    model.eval()
    rate = config.peak_rate(prepared.shape)
    return TrainingOutcome(tuned, metric, rate, best_step, steps, curve, shares, start)


def _tune(
    prepared: Prepared, tuned: FineTuned, metric: MetricName, start: Probe | None, keep_last: bool
) -> tuple[list[dict[str, Any]], int, npt.NDArray[np.float32]]:
    """Train the model, and leave its best state in it; return the curve, the state's step and its probabilities.

    With a start, classes are tuned on cosines, and the head is then fitted again, on the tuned features. The curve
    has the final head's figures at the step that is kept.
    """
    config, labels, model = prepared.config, tuned.labels, tuned.model
    train, validation = prepared.encoded["train"], prepared.encoded["validation"]
    pooled = model if isinstance(model, PooledModel) and start and labels.target == "class" else None
    if pooled is not None:
        pooled.set_directions(train, labels)
    trainer, source = build_trainer(config, model, train, labels, prepared.weights)
    by_loss = start is not None and len(validation) < FEW_TO_VALIDATE  # the metric of few rows is mostly chance
    run = _run(prepared, tuned, metric, trainer, source, by_loss=by_loss, keep_last=keep_last)
    run.train()
    run.restore_best()
    trainer.end_training()
    best_step = run.state.best_step
    assert best_step is not None
    curve = [_curve_entry(entry, metric, source.updates_an_epoch) for entry in run.state.curve]
    kept = next(entry for entry in curve if entry["step"] == best_step)
    if pooled is not None and start is not None:
        for entry in curve:
            entry["head"] = "cosines"
        weights = row_weights(config, train.targets, labels, prepared.weights)
        kept["training_loss"] = fit_probe(pooled, [pooled.with_features(train)], labels, weights, start)
        kept["head"] = "regression"
    measured, shares = _measure(tuned, validation)
    kept |= measured
    return curve, best_step, shares


def _run(
    prepared: Prepared,
    tuned: FineTuned,
    metric: MetricName,
    trainer: Trainer,
    source: ExampleSampler,
    *,
    by_loss: bool,
    keep_last: bool,
) -> Run:
    """Return the run, whose best state has the best metric, with `by_loss` the lowest loss, or is the last one."""
    config, steps, out = prepared.config, trainer.config.steps, prepared.out

    def measurement() -> Measurement:
        if keep_last:
            return Measurement({}, ())
        entry, _ = _measure(tuned, prepared.encoded["validation"], intervals=False)
        loss, value = entry.pop("validation_loss"), entry[metric]["value"]
        prepared.progress.note(f"update {trainer.step}: {metric} {value:.3f}, validation loss {loss:.4f}")
        rank = (-loss, value) if by_loss else (value, -loss)
        return Measurement({"validation_loss": loss, f"validation_{metric}": value}, rank, entry)

    measured_after = _measurements(config.validate_every, steps, source.updates_an_epoch)
    return Run(
        trainer=trainer,
        config=config,
        source=source,
        validate=measurement,
        out=out,
        name="fine-tuning" if out is None else f"fine-tuning {out.resolve().name}",
        progress=prepared.progress,
        measured_after={steps} if keep_last else measured_after,
        patience=None if keep_last else config.patience,
        dynamic=True,  # texts of all lengths
        on_update=prepared.on_update,
    )


def is_better(probe: Mapping[str, Any], tuned: Mapping[str, Any], metric: MetricName) -> bool:
    """Return whether the probe's entry of the curve is better than that of tuning by more than chance may be."""
    low, high = tuned[metric]["interval"]
    return bool(probe[metric]["value"] > tuned[metric]["value"] + _MARGIN * (high - low))


def set_probe(prepared: Prepared, model: PooledModel, probe: Probe | None = None) -> tuple[Probe, float]:
    """Set the head by a probe of the base's features, chosen unless it is given; return it, and its loss."""
    labels, train = prepared.parts.labels, prepared.encoded["train"]
    if model.lexical:
        model.head.get_buffer("idf").copy_(torch.from_numpy(inverse_frequencies(train.ngrams)))
    if train.features is None:
        prepared.progress.note("a regression on the base's features begins the head")
        train = prepared.encoded["train"] = model.with_features(train)
    weights = row_weights(prepared.config, train.targets, labels, prepared.weights)
    probe = probe or replace(choose_probe(train, labels, weights, prepared.parts.fold), lexical=model.lexical)
    return probe, fit_probe(model, [train], labels, weights, probe)


def fit_all_rows(prepared: Prepared, outcome: TrainingOutcome) -> bool:
    """Fit a head that is a regression on the validation rows too, if they were split off; return whether it was.

    The validation figures remain those of the head before. Without effect if the training rows have weights of
    their own, since those of the validation rows are not known.
    """
    model, start, labels = outcome.fine_tuned.model, outcome.start, prepared.parts.labels
    if start is None or not (start.kept or labels.target == "class"):
        return False
    if not prepared.parts.split_off or prepared.weights is not None:
        return False
    assert isinstance(model, PooledModel)
    encoded = [model.with_features(prepared.encoded[part]) for part in ("train", "validation")]
    targets = np.concatenate([one.targets for one in encoded])
    fit_probe(model, encoded, labels, row_weights(prepared.config, targets, labels, None), start)
    prepared.progress.note(f"the head is fitted again on all {len(targets):,} rows, validation rows included")
    return True


def _measure(
    tuned: FineTuned, rows: Encoded, *, intervals: bool = True
) -> tuple[dict[str, Any], npt.NDArray[np.float32]]:
    """Return the loss and the metrics of the present state on labelled rows, and (rows, outputs) probabilities.

    Without a row there is neither loss nor metric.
    """
    if not len(rows):
        return {}, np.empty((0, tuned.labels.outputs), np.float32)
    shares, loss = tuned.model.predict(rows, tuned.labels)
    figures = measure_probabilities(tuned, rows.targets, shares, intervals=intervals)
    return {"validation_loss": loss, **figures}, shares


def build_trainer(
    config: FinetuneConfig,
    model: TaskModel,
    train: Encoded,
    labels: Labels,
    sample_weight: npt.NDArray[np.float64] | None = None,
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
        weights=row_weights(config, train.targets, labels, sample_weight),
    )
    return trainer, source


def row_weights(
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
