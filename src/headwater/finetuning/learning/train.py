"""Train the base with three more rows and a head on L3, and keep the best state.

`stage` reads and writes files.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from headwater.errors import UsageError
from headwater.finetuning.learning.config import FinetuneConfig
from headwater.finetuning.model.batches import CPU_TOKENS, DEVICE_TOKENS, ExampleSampler
from headwater.finetuning.model.features import FrozenTaskModel
from headwater.finetuning.model.fine_tuned import FineTuned, build_task_model
from headwater.finetuning.model.head import TaskModel, l3
from headwater.finetuning.model.inputs import Encoded
from headwater.finetuning.results.metrics import measure_classes, measure_labels, measure_scores
from headwater.finetuning.rows.labels import Labels
from headwater.finetuning.rows.row import MetricName
from headwater.model import build_model
from headwater.storage import SILENT, Progress
from headwater.tokenizer import Tokenizer
from headwater.training import Measurement, OnUpdate, Ranks, Run, Trainer

if TYPE_CHECKING:
    from headwater.model import Model

# A training of fewer epochs is validated this many times instead of once an epoch.
_FEWEST_MEASUREMENTS = 3
# The run's folder for a frozen base's outputs, during training.
OUTPUTS = "base-outputs"


@dataclass
class TrainingOutcome:
    """The result of training: the best state, its step, and the curve.

    probabilities: (validation rows, outputs). The model computes as in training until `end_training`.
    """

    fine_tuned: FineTuned
    trainer: Trainer
    metric: MetricName
    best_step: int
    steps: int
    curve: list[dict[str, Any]]
    probabilities: npt.NDArray[np.float32]

    def end_training(self) -> None:
        """Make the model eager, with its float32 weights, and free the gradients."""
        self.trainer.end_training()

    def best_entry(self) -> dict[str, Any]:
        """Return the curve's entry of the best state."""
        return next(entry for entry in self.curve if entry["step"] == self.best_step)


def train_task(
    config: FinetuneConfig,
    base: Model,
    tokenizer: Tokenizer,
    train: Encoded,
    validation: Encoded,
    labels: Labels,
    progress: Progress = SILENT,
    *,
    out: Path | None = None,
    start: FineTuned | None = None,
    begins_with: dict[str, Any] | None = None,
    sample_weight: npt.NDArray[np.float64] | None = None,
    on_update: OnUpdate | None = None,
) -> TrainingOutcome:
    """Fine-tune `base` (as `prepare_base` returns it) on examples that `tokenizer` encoded.

    sample_weight: (training examples,) weights in L2, multiplied by `config.class_weight`; on_update: called after
    every update with its line of metrics.jsonl. start: a fine-tuned model whose weights and head are
    continued, with the first of the labels or all; begins_with: the record of its state in `Run`. With `out`, the
    run writes its journal and checkpoints there, and resumes from the newest one. Raises what
    `FinetuneConfig.checked_metric` and `Run.train` raise.
    """
    metric = config.checked_metric(labels)
    config = config.resolve(base.config, examples=len(train))
    training = config.training
    device = base.tokens.weight.device
    _, head_seed = _seeds(training.seed)
    model = build_task_model(
        base,
        tokenizer,
        config.task,
        labels.outputs,
        dropout=config.classifier_dropout,
        frozen=config.task_model if config.freeze else None,
        seed=head_seed,
    )
    if start is not None:
        model.continue_from(start.model)
    if config.lambda_lm and not base.config.is_causal:
        progress.note(
            "the auxiliary objective needs a model that reads from left to right: this model is trained without it"
        )
        config = config.model_copy(update={"lambda_lm": 0.0})
    fine_tuned = FineTuned(model, tokenizer, config.task, labels)
    if isinstance(model, FrozenTaskModel):
        progress.note("computing the frozen base's outputs, once for all epochs")
        train, validation = (
            model.with_outputs(part, out / OUTPUTS / f"{name}.npy" if out is not None else None)
            for name, part in (("train", train), ("validation", validation))
        )
    trainer, source = build_trainer(config, model.to(device), train, labels, sample_weight)
    probabilities: dict[int, npt.NDArray[np.float32]] = {}  # of the best state so far, by step

    def validate() -> Measurement:
        outputs, loss = model.predict(validation, labels)
        figures = measure_probabilities(fine_tuned, validation.targets, outputs)
        value = figures[metric]["value"]
        progress.note(f"update {trainer.step}: {metric} {value:.3f}, validation loss {loss:.4f}")
        shown = {"validation_loss": loss, f"validation_{metric}": value}
        measured = Measurement(shown, (value, -loss), figures)
        if run.best is None or measured.rank > tuple(run.best["rank"]):
            probabilities.clear()
            probabilities[trainer.step] = outputs
        return measured

    run = Run(
        trainer=trainer,
        config=training,
        source=source,
        validate=validate,
        out=out,
        name="fine-tuning" if out is None else f"fine-tuning {out.resolve().name}",
        progress=progress,
        measured_after=_measurements(config.validate_every, training.steps, source.updates_an_epoch),
        patience=config.patience,
        dynamic=True,  # texts of all lengths
        on_update=on_update,
        begins_with=begins_with,
    )
    run.train()
    run.restore_best()
    model.eval()
    assert run.best is not None
    best_step = run.best["step"]
    if best_step not in probabilities:  # measured before the run was resumed
        probabilities[best_step] = fine_tuned.probabilities(validation)
    curve = [_curve_entry(entry, metric, source.updates_an_epoch) for entry in run.curve]
    return TrainingOutcome(fine_tuned, trainer, metric, best_step, training.steps, curve, probabilities[best_step])


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
            of_class = np.array([config.class_weight.get(name, 1.0) for name in labels.names])
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


def journal_entry(entry: Mapping[str, Any], metric: MetricName) -> dict[str, Any]:
    """Return the measurement of `Run` that `_curve_entry` made an entry of metrics.json from."""
    losses = {key: entry[name] for key, name in _TRAINING_LOSSES if name in entry}
    kept = {k: v for k, v in entry.items() if k not in {"epoch", *(name for _, name in _TRAINING_LOSSES)}}
    return kept | {f"validation_{metric}": entry[metric]["value"], "training": losses}


def prepare_base(config: FinetuneConfig, base: Model, tokenizer: Tokenizer) -> tuple[Model, Tokenizer]:
    """Return the base with the three task rows and this training's dropout, and the tokenizer with their ids.

    `from_scratch` and `transfer_layers` draw new weights for the rest. Raises MismatchError if the tokenizer has
    more ids than the model has rows, UsageError for more layers than the base has, or layers of an LSTM.
    """
    tokenizer.require_rows(base.config.vocabulary)
    extended = tokenizer.with_task_tokens()
    device = base.tokens.weight.device
    shape = base.config.faithful_to(config.faithful)
    if config.training.dropout is not None:
        shape = shape.with_dropout(config.training.dropout)
    partial = config.transfer_layers is not None
    if partial and config.from_scratch:
        raise UsageError("from_scratch and transfer_layers exclude each other", repair="Give one of them")
    model = build_model(shape, seed=config.training.seed if partial or config.from_scratch else None).to(device)
    state = base.state_dict()
    if config.transfer_layers is not None:
        state = _first_layers(state, config.transfer_layers, base)
    if not config.from_scratch:
        model.load_state_dict(state, strict=not partial)
    row_seed, _ = _seeds(config.training.seed)
    model.add_rows(max(0, extended.vocabulary_size - model.config.vocabulary), seed=row_seed)
    return model.train(), extended


def measure_probabilities(
    fine_tuned: FineTuned, targets: npt.NDArray[np.float64], probabilities: npt.NDArray[np.float32]
) -> dict[str, Any]:
    """Return every metric that fits the labels, with its interval, over examples that all have a target."""
    decided = fine_tuned.decide(probabilities)
    if fine_tuned.labels.target == "score":
        return measure_scores(targets, decided)
    if fine_tuned.labels.target == "labels":
        return measure_labels(targets, decided)
    truth, chosen = targets.astype("int64"), decided.astype("int64")
    measured = measure_classes(truth, chosen, probabilities.shape[1])
    return measured if fine_tuned.labels.target == "class" else {"accuracy": measured["accuracy"]}


def _seeds(seed: int) -> tuple[int, int]:
    """Return seeds for the task rows and the head; `seed` itself would repeat a new base's first draws."""
    rows, head = np.random.SeedSequence(seed).generate_state(2)
    return int(rows), int(head)


def _measurements(every: int | None, steps: int, per_epoch: int) -> Container[int]:
    """Return the updates to validate after: every N, each epoch's last, or evenly spaced in a short training."""
    if every is not None or steps >= _FEWEST_MEASUREMENTS * per_epoch:
        return range(every or per_epoch, steps + 1, every or per_epoch)
    return {math.ceil(steps * part / _FEWEST_MEASUREMENTS) for part in range(1, _FEWEST_MEASUREMENTS + 1)}


def _first_layers(state: dict[str, Any], layers: int, base: Model) -> dict[str, Any]:
    """Return the embeddings and the first blocks, as `n_transfer` does in the authors' code (figure 2, left).

    All layers are the whole model, with its final norm.
    """
    if base.config.architecture != "transformer":
        raise UsageError("transfer_layers counts blocks of a Transformer", expected="a base that is one")
    if layers > base.config.layers:
        raise UsageError(
            f"{layers} layers cannot be transferred from a model of {base.config.layers}",
            expected=f"0 to {base.config.layers}",
        )
    if layers == base.config.layers:
        return state
    embeddings = ("tokens.", "positions.", "segments.", "embedding_norm.")
    blocks = tuple(f"blocks.{layer}." for layer in range(layers))
    return {k: v for k, v in state.items() if k.startswith((*embeddings, *blocks))}
