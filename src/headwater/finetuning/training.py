"""Fine-tuning: train the base with three more rows and a head on L3, and keep the best state.

GPT-1 (Radford et al. 2018), sections 3.2 and 4.1: λ 0.5, learning rate 6.25e-5 (`peak_rate` for other widths),
batch 32, 3 epochs, warm-up over 0.2 % of the updates, then linear to 0; Adam, decay and clipping as in the
authors' code. The ablations of section 5 are keys: `lambda_lm` 0, `from_scratch`, `transfer_layers`; the LSTM is
another base. `finetuning` reads and writes files.
"""

from __future__ import annotations

import math
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator, Field, model_validator

from headwater.config import MOST_ROWS
from headwater.errors import UsageError
from headwater.finetuning.batches import ExampleSampler
from headwater.finetuning.columns import Columns
from headwater.finetuning.features import FrozenTaskModel, with_outputs
from headwater.finetuning.fine_tuned import FineTuned, build_task_model, predict_and_measure
from headwater.finetuning.inputs import Encoded
from headwater.finetuning.labels import Labels, class_name, listed
from headwater.finetuning.metrics import measure_classes, measure_scores
from headwater.finetuning.objective import l3
from headwater.finetuning.rows import MetricName, Target, TaskName
from headwater.finetuning.task_models import TaskModelName
from headwater.model import Faithful, add_rows, build_model, require_rows
from headwater.storage import SILENT, Progress
from headwater.tokenizer import Tokenizer
from headwater.training import (
    AdamForm,
    Measurement,
    OnUpdate,
    Ranks,
    Run,
    Schedule,
    TrainConfig,
    Trainer,
    transfer_rate,
)

if TYPE_CHECKING:
    from headwater.model import Model

ClassName = Annotated[str, BeforeValidator(class_name)]
# The metrics of each kind of label; the first is the default.
_METRICS: dict[Target, tuple[MetricName, ...]] = {
    "class": ("accuracy", "f1", "macro_f1", "matthews"),
    "score": ("pearson", "spearman"),
    "answer": ("accuracy",),
}
# A training of fewer epochs is validated this many times instead of once an epoch.
_FEWEST_MEASUREMENTS = 3
# The paper's epochs. Few rows have up to SMALL_EPOCHS for SMALL_UPDATES updates; the fewest, FEWEST_UPDATES.
PAPER_EPOCHS, SMALL_EPOCHS, SMALL_UPDATES, FEWEST_UPDATES = 3, 8, 450, 60
# Tokens of a micro-batch: on a CPU more cost memory and are hardly faster, on a GPU they are.
CPU_TOKENS, DEVICE_TOKENS = 1_280, 16_384
# The run's folder for a frozen base's outputs, during training.
OUTPUTS = "base-outputs"
# Learning rate of a head over a frozen base, which has no trained weights to preserve. Decided here.
FROZEN_RATE = 1e-3


class FinetuneConfig(TrainConfig):
    """Configuration of fine-tuning, with the paper's defaults. Sizes in examples, `micro_batch` in sequences.

    `resolve` fills in keys that are None from the model and the data.
    """

    task: TaskName = "classify"
    """Which of the four inputs."""
    target: Target | None = None
    """What the labels are; by default inferred from the rows."""
    metric: MetricName | None = None
    """Metric that chooses the best state; by default accuracy, or Pearson's correlation for scores."""
    columns: Columns = Columns()
    faithful: Faithful = "code"
    """Whether dropout and the softmax of L1 follow the authors' code, for a base with GPT-1's norm."""
    class_weight: Literal["balanced"] | dict[ClassName, Annotated[float, Field(gt=0)]] | None = None
    """Weights of the classes in L2: balanced, which gives each class the same total, or a table by name."""
    lambda_lm: float = Field(default=0.5, ge=0)
    """λ, the weight of the auxiliary language-model loss L1."""
    classifier_dropout: float = Field(default=0.1, ge=0, lt=1)
    """Dropout before the head."""
    epochs: float | None = Field(default=None, gt=0)
    """Passes over the training rows; by default 3, and more for few rows."""
    warmup: float = Field(default=0.002, ge=0, le=1)
    """Share of all updates over which the learning rate rises, if warmup_steps is 0."""
    freeze: bool = False
    """Keep the base unchanged; learn a head over a mixture of its layers."""
    task_model: TaskModelName = "pooling"
    """What reads the mixture: pooling, or lstm, which is a bi-LSTM, or ESIM for two texts."""
    from_scratch: bool = False
    """Use only the base's shape and tokenizer."""
    transfer_layers: int | None = Field(default=None, ge=0)
    """Keep embeddings and the first N blocks of the base."""
    validation_share: float = Field(default=0.1, gt=0, lt=1)
    """Share of the training rows to validate on, if there is no validation file."""
    patience: int | None = Field(default=None, ge=1)
    """Stop after N measurements without a better one."""
    limit: int | None = Field(default=None, ge=1, le=MOST_ROWS)
    """Use only the first N rows of each file."""

    # Other defaults or meanings than TrainConfig's:
    batch_size: int = Field(default=32, ge=1, le=1 << 20)
    """Rows an update."""
    steps: int | None = Field(default=None, ge=1, le=1 << 40)  # type: ignore[assignment]
    """Updates; by default as many as the epochs have."""
    learning_rate: float | None = Field(default=None, gt=0)  # type: ignore[assignment]
    """The peak learning rate; by default 6.25e-5 at GPT-1's width, more for narrower models, 1e-3 with freeze."""
    validate_every: int | None = Field(default=None, ge=1)  # type: ignore[assignment]
    """Updates between measurements; by default each epoch's end, or three times in a shorter training."""
    schedule: Schedule = "gpt1-linear"
    weight_decay: float = Field(default=0.01, ge=0)
    beta2: float = Field(default=0.999, ge=0, lt=1)
    adam: AdamForm = "original"
    dropout: float | None = Field(default=0.1, ge=0, lt=1)
    """Dropout while training."""
    keep: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.target is not None and (self.target == "answer") != (self.task == "choice"):
            raise ValueError(f"target {self.target!r} is not a target of task {self.task!r}")
        if self.task_model != "pooling" and not self.freeze:
            raise ValueError(f"task_model = {self.task_model} reads a frozen base: it needs freeze")
        if self.freeze and (self.from_scratch or self.transfer_layers is not None):
            raise ValueError("freeze needs the whole pre-trained base: leave from_scratch and transfer_layers out")
        if self.freeze and self.lambda_lm not in (0, type(self).model_fields["lambda_lm"].default):
            raise ValueError(f"a frozen base has no language-model loss: leave out lambda_lm = {self.lambda_lm:g}")
        return self


def default_epochs(examples: int, batch_size: int) -> int:
    """Return the paper's epochs, or more for few examples: better on average in docs/models.md."""
    updates = math.ceil(examples / batch_size)  # an epoch
    small = min(SMALL_EPOCHS, math.ceil(SMALL_UPDATES / updates))
    return max(PAPER_EPOCHS, small, math.ceil(FEWEST_UPDATES / updates))


def resolve(config: FinetuneConfig, *, width: int, examples: int) -> FinetuneConfig:
    """Return `config` with the updates, warm-up and learning rate for the model's width and the examples."""
    epochs = config.epochs or default_epochs(examples, config.batch_size)
    steps = config.steps or max(1, round(epochs * math.ceil(examples / config.batch_size)))
    return config.model_copy(
        update={
            "steps": steps,
            "warmup_steps": config.warmup_steps or config.warmup * steps,
            "learning_rate": peak_rate(config, width),
        }
        # A frozen base has no language-model loss, and the head is too small to gain from bfloat16.
        | ({"lambda_lm": 0.0, "precision": "fp32"} if config.freeze else {})
    )


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
    sample_weight: npt.NDArray[np.float64] | None = None,
    on_update: OnUpdate | None = None,
) -> TrainingOutcome:
    """Fine-tune `base` (as `prepare_base` returns it) on examples that `tokenizer` encoded.

    sample_weight: (training examples,) weights in L2, multiplied by `config.class_weight`; on_update: called after
    every update with its line of metrics.jsonl. With `out`, the run writes its journal and checkpoints there, and
    resumes from the newest one. Raises what `checked_metric` and `Run.train` raise.
    """
    metric = checked_metric(config, labels)
    config = resolve(config, width=base.config.width, examples=len(train))
    device = base.tokens.weight.device
    _, head_seed = _seeds(config.seed)
    model = build_task_model(
        base,
        tokenizer,
        config.task,
        labels.outputs,
        dropout=config.classifier_dropout,
        frozen=config.task_model if config.freeze else None,
        seed=head_seed,
    )
    if config.lambda_lm and not base.config.is_causal:
        progress.note(
            "the auxiliary objective needs a model that reads from left to right: this model is trained without it"
        )
        config = config.model_copy(update={"lambda_lm": 0.0})
    trainer = Trainer(model.to(device), l3(config.lambda_lm), config, ranks=Ranks(device=device))
    fine_tuned = FineTuned(model, tokenizer, config.task, labels)
    if isinstance(model, FrozenTaskModel):
        progress.note("computing the frozen base's outputs, once for all epochs")
        train, validation = (
            with_outputs(model, part, out / OUTPUTS / f"{name}.npy" if out is not None else None)
            for name, part in (("train", train), ("validation", validation))
        )
    source = ExampleSampler(
        train,
        labels.probabilities(train) * _weights(config, train, labels, sample_weight)[:, None],
        batch_size=config.batch_size,
        seed=config.seed,
        micro_batch=config.micro_batch,
        most_tokens=CPU_TOKENS if device.type == "cpu" else DEVICE_TOKENS,
    )
    probabilities: dict[int, npt.NDArray[np.float32]] = {}  # of the best state so far, by step

    def validate() -> Measurement:
        outputs, loss = predict_and_measure(model, validation, labels)
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
        config=config,
        source=source,
        validate=validate,
        out=out,
        name="fine-tuning" if out is None else f"fine-tuning {out.resolve().name}",
        progress=progress,
        measured_after=_measurements(config.validate_every, trainer.config.steps, source.updates_an_epoch),
        patience=config.patience,
        dynamic=True,  # texts of all lengths
        on_update=on_update,
    )
    run.train()
    run.restore_best()
    model.eval()
    assert run.best is not None
    best_step = run.best["step"]
    if best_step not in probabilities:  # measured before the run was resumed
        probabilities[best_step] = fine_tuned.probabilities(validation)
    curve = [_curve_entry(entry, metric, source.updates_an_epoch) for entry in run.curve]
    return TrainingOutcome(
        fine_tuned, trainer, metric, best_step, trainer.config.steps, curve, probabilities[best_step]
    )


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


def _curve_entry(entry: dict[str, Any], metric: MetricName, updates_an_epoch: int) -> dict[str, Any]:
    """Return one measurement for metrics.json: training losses by name, and the epoch, from 1."""
    entry = {key: value for key, value in entry.items() if key != f"validation_{metric}"}
    training = entry.pop("training")
    for key, name in (("l2", "training_loss"), ("l1", "training_language_model_loss")):
        if key in training:
            entry[name] = training[key]
    return entry | {"epoch": (entry["step"] - 1) // updates_an_epoch + 1}


def prepare_base(config: FinetuneConfig, base: Model, tokenizer: Tokenizer) -> tuple[Model, Tokenizer]:
    """Return the base with the three task rows and this training's dropout, and the tokenizer with their ids.

    `from_scratch` and `transfer_layers` draw new weights for the rest. Raises MismatchError if the tokenizer has
    more ids than the model has rows, UsageError for more layers than the base has, or layers of an LSTM.
    """
    require_rows(tokenizer, base.config.vocabulary)
    extended = tokenizer.with_task_tokens()
    device = base.tokens.weight.device
    shape = base.config.faithful_to(config.faithful)
    if config.dropout is not None:
        shape = shape.model_copy(update={"dropout": config.dropout})
    partial = config.transfer_layers is not None
    if partial and config.from_scratch:
        raise UsageError("from_scratch and transfer_layers exclude each other", repair="Give one of them")
    model = build_model(shape, seed=config.seed if partial or config.from_scratch else None).to(device)
    state = base.state_dict()
    if config.transfer_layers is not None:
        state = _first_layers(state, config.transfer_layers, base)
    if not config.from_scratch:
        model.load_state_dict(state, strict=not partial)
    row_seed, _ = _seeds(config.seed)
    add_rows(model, max(0, extended.vocabulary_size - model.config.vocabulary), seed=row_seed)
    return model.train(), extended


def measure_probabilities(
    fine_tuned: FineTuned, targets: npt.NDArray[np.float64], probabilities: npt.NDArray[np.float32]
) -> dict[str, Any]:
    """Return every metric that fits the labels, with its interval, over examples that all have a target."""
    decided = fine_tuned.decide(probabilities)
    if fine_tuned.labels.target == "score":
        return measure_scores(targets, decided)
    truth, chosen = targets.astype("int64"), decided.astype("int64")
    measured = measure_classes(truth, chosen, probabilities.shape[1])
    return measured if fine_tuned.labels.target == "class" else {"accuracy": measured["accuracy"]}


def checked_metric(config: FinetuneConfig, labels: Labels) -> MetricName:
    """Check metric and class weights against the labels; return the metric that chooses the best state.

    Raises UsageError for a metric that the labels do not have, and for a weight of an unknown class.
    """
    if config.class_weight is not None:
        if labels.target != "class":
            raise UsageError(f"class_weight does not fit labels of kind {labels.target}", expected="classes")
        for name in config.class_weight if config.class_weight != "balanced" else ():
            if name not in labels.names:
                raise UsageError(f"class_weight names the class {name!r}", expected=listed(labels.names))
    fitting = _METRICS[labels.target]
    if config.metric is not None and config.metric not in fitting:
        raise UsageError(
            f"metric = {config.metric!r} does not fit labels of kind {labels.target}",
            expected=" or ".join(fitting),
            repair="For classes: --set target=class" if labels.target == "score" else "",
        )
    return config.metric or fitting[0]


def peak_rate(config: FinetuneConfig, width: int) -> float:
    """Return the user's learning rate, else `FROZEN_RATE` for a frozen base, else `transfer_rate` of the width."""
    if config.learning_rate is not None:
        return config.learning_rate
    return FROZEN_RATE if config.freeze else transfer_rate(width)


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
