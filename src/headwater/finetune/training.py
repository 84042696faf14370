"""Fine-tuning itself: the base with three more rows and a head, trained by L3, its best state kept.

GPT-1 (Radford et al. 2018), sections 3.2 and 4.1: λ 0.5, learning rate 6.25e-5 (`peak_rate` for other widths),
batch 32, 3 epochs, warm-up over 0.2 % of the updates, then linear to 0; Adam, decay and clipping as in the
authors' code (papers/gpt1.md, sections 4 and 5). The ablations of section 5 are keys: `lambda_lm` 0,
`from_scratch`, `transfer_layers`; the LSTM is another base. Files and folders are left to `run`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
import torch
from pydantic import ConfigDict, Field, model_validator

from headwater.config import Config
from headwater.errors import MismatchError, UsageError
from headwater.finetune.batches import updates
from headwater.finetune.examples import Columns, Labels, Target
from headwater.finetune.fine_tuned import FineTuned, predict_and_measure
from headwater.finetune.head import TaskModel
from headwater.finetune.inputs import Encoded, Task
from headwater.finetune.metrics import Metric, measure_classes, measure_scores
from headwater.finetune.objective import l3
from headwater.model import build_model
from headwater.model.config import Faithful
from headwater.model.rows import add_rows
from headwater.progress import SILENT, Progress
from headwater.tokenizer import Tokenizer
from headwater.train.loop import RETIRED, Precision, TrainConfig, Trainer
from headwater.train.optimizer import Optimizer
from headwater.train.parallel import Ranks
from headwater.train.schedule import Schedule

if TYPE_CHECKING:
    from headwater.model import Model

# The metrics of each kind of label, first the one that is taken where none is named.
_METRICS: dict[Target, tuple[Metric, ...]] = {
    "class": ("accuracy", "f1", "matthews"),
    "score": ("pearson", "spearman"),
    "answer": ("accuracy",),
}
# In a training of fewer epochs than this, validation is measured this many times instead of once an epoch.
_FEWEST_MEASUREMENTS = 3
# Tokens of a micro-batch: on a processor more gain no speed and cost memory, on a device they gain.
CPU_TOKENS, DEVICE_TOKENS = 640, 16_384
# The paper's rate, the width of its model, and how the rate rises for narrower ones.
PAPER_RATE, PAPER_WIDTH, RATE_POWER = 6.25e-5, 768, 1.5


class FinetuneConfig(Config):
    """What fine-tuning needs to know; the defaults are the paper's. Sizes in examples."""

    retired = RETIRED
    model_config = ConfigDict(allow_inf_nan=False)

    task: Task = "classify"
    target: Target | None = None
    metric: Metric | None = None
    columns: Columns = Columns()
    # Of a base with GPT-1's norm: whether dropout and the softmax of L1 are those of the authors' code.
    faithful: Faithful = "code"
    lambda_lm: float = Field(default=0.5, ge=0)
    dropout: float = Field(default=0.1, ge=0, lt=1)
    classifier_dropout: float = Field(default=0.1, ge=0, lt=1)
    learning_rate: float | None = Field(default=None, gt=0)  # None: `peak_rate`
    schedule: Schedule = "gpt1-linear"
    warmup: float = Field(default=0.002, ge=0, le=1)  # share of all updates
    batch_size: int = Field(default=32, ge=1)
    micro_batch: int | None = Field(default=None, ge=1)  # sequences at most
    epochs: float = Field(default=3, gt=0)
    steps: int | None = Field(default=None, ge=1)  # in place of epochs
    weight_decay: float = Field(default=0.01, ge=0)
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.999, ge=0, lt=1)
    epsilon: float = Field(default=1e-8, gt=0)
    clip: float = Field(default=1.0, ge=0)
    precision: Precision = "auto"
    from_scratch: bool = False
    transfer_layers: int | None = Field(default=None, ge=0)
    validation_share: float = Field(default=0.1, gt=0, lt=1)
    patience: int | None = Field(default=None, ge=1)  # measurements without a better one
    limit: int | None = Field(default=None, ge=1)  # rows of each file
    seed: int = Field(default=1, ge=0, lt=1 << 63)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.target is not None and (self.target == "answer") != (self.task == "choice"):
            raise ValueError(f"target {self.target!r} is none of task {self.task!r}")
        return self


@dataclass
class Outcome:
    """What training made: the best state, where it was found, and the curve that led there."""

    fine_tuned: FineTuned
    metric: Metric
    best_step: int
    steps: int
    curve: list[dict[str, Any]] = field(default_factory=list)
    # (validation rows, outputs) that the best state gave, and that state's float32 weights.
    probabilities: npt.NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 0), dtype=np.float32))
    weights: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)

    def keep(self, step: int, probabilities: npt.NDArray[np.float32], optimizer: Optimizer) -> None:
        """Take this state for the best, in the memory of the one that was it before."""
        self.best_step, self.probabilities = step, probabilities
        if not self.weights:
            self.weights = [
                (p, torch.empty_like(m, requires_grad=False))
                for p, m in zip(optimizer.parameters, optimizer.masters, strict=True)
            ]
        for (_, weight), master in zip(self.weights, optimizer.masters, strict=True):
            weight.copy_(master.detach())

    def settle(self) -> None:
        """Give the model its best state in float32; until then its matrices are as training computed with them."""
        for parameter, weight in self.weights:
            parameter.data = weight
        self.weights = []


def train_task(
    config: FinetuneConfig,
    base: Model,
    tokenizer: Tokenizer,
    train: Encoded,
    validation: Encoded,
    labels: Labels,
    progress: Progress = SILENT,
) -> Outcome:
    """Fine-tune `base` (as `prepare_base` gives it) on examples that `tokenizer` encoded.

    Raises UsageError, before the first update, for a metric that the labels do not have.
    """
    metric = choose_metric(config, labels)
    device = base.output_matrix().device
    _, head_seed = _seeds(config.seed)
    model = TaskModel(base, config.task, labels.outputs, dropout=config.classifier_dropout, seed=head_seed)
    model.to(device)
    per_epoch = math.ceil(len(train) / config.batch_size)
    steps = config.steps or max(1, round(config.epochs * per_epoch))
    trainer = Trainer(
        model, l3(config.lambda_lm), train_config(config, steps, base.config.width), ranks=Ranks(device=device)
    )
    fine_tuned = FineTuned(model, tokenizer, config.task, labels, config.columns)
    outcome = Outcome(fine_tuned, metric, 0, steps)
    measure_at = _measurements(steps, per_epoch)
    best: tuple[float, float] | None = None
    unimproved = 0
    logged: list[dict[str, float]] = []  # since validation was measured last
    progress.start("Fine-tuning", total=steps, unit="updates")
    batches = updates(
        train,
        labels.probabilities(train),
        batch_size=config.batch_size,
        seed=config.seed,
        micro_batch=config.micro_batch,
        most_tokens=CPU_TOKENS if device.type == "cpu" else DEVICE_TOKENS,
    )
    for step in range(1, steps + 1):
        epoch, parts = next(batches)
        result = trainer.update([part.to(device) for part in parts])
        logged.append(result.logged)
        progress.advance(step, loss=result.logged["l2"], learning_rate=result.learning_rate)
        if step not in measure_at:
            continue
        probabilities, figures = _measure(fine_tuned, validation, logged)
        outcome.curve.append(figures | {"step": step, "epoch": epoch + 1})
        logged = []
        value, loss = figures[metric]["value"], figures["validation_loss"]
        progress.note(f"update {step}: {metric} {value:.3f}, validation loss {loss:.4f}")
        rank = (value, -loss)
        if best is None or rank > best:
            best, unimproved = rank, 0
            outcome.keep(step, probabilities, trainer.optimizer)
        else:
            unimproved += 1
            if config.patience is not None and unimproved >= config.patience:
                break
    for parameter, weight in outcome.weights:
        parameter.data = weight.to(parameter.dtype)
        parameter.grad = None
    model.eval()
    progress.finish(f"{metric} {best[0]:.3f} at update {outcome.best_step}" if best else "")
    return outcome


def prepare_base(config: FinetuneConfig, base: Model, tokenizer: Tokenizer) -> tuple[Model, Tokenizer]:
    """The base with the three task rows and this training's dropout, and the tokenizer that has their ids.

    `from_scratch` and `transfer_layers` draw the rest anew. Raises MismatchError when the tokenizer has more ids
    than the model has rows, UsageError for more layers than there are, or layers of an LSTM.
    """
    if tokenizer.vocabulary_size > base.config.vocabulary:
        raise MismatchError(
            f"the tokenizer has {tokenizer.vocabulary_size:,} ids and the model {base.config.vocabulary:,} rows",
            expected="the tokenizer that the model was trained with",
        )
    extended = tokenizer.with_task_tokens()
    device = base.output_matrix().device
    shape = base.config.faithful_to(config.faithful).model_copy(update={"dropout": config.dropout})
    anew = config.from_scratch or config.transfer_layers is not None
    model = build_model(shape, seed=config.seed if anew else None).to(device)
    state = base.state_dict()
    if config.transfer_layers is not None:
        if config.from_scratch:
            raise UsageError("from_scratch and transfer_layers exclude each other", repair="Give one of them")
        state = _first_layers(state, config.transfer_layers, base)
    if not config.from_scratch:
        model.load_state_dict(state, strict=config.transfer_layers is None)
    row_seed, _ = _seeds(config.seed)
    add_rows(model, max(0, extended.vocabulary_size - model.config.vocabulary), seed=row_seed)
    return model.train(), extended


def _measure(
    fine_tuned: FineTuned, validation: Encoded, logged: list[dict[str, float]]
) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
    """Probabilities of the validation rows, and figures: of those rows, and the mean losses of training."""
    probabilities, loss = predict_and_measure(fine_tuned.model, validation, fine_tuned.labels)
    figures = {"validation_loss": loss} | measure_probabilities(fine_tuned, validation, probabilities)
    for key, name in (("l2", "training_loss"), ("l1", "training_language_model_loss")):
        if key in logged[0]:
            figures[name] = sum(update[key] for update in logged) / len(logged)
    return probabilities, figures


def measure_probabilities(
    fine_tuned: FineTuned, encoded: Encoded, probabilities: npt.NDArray[np.float32]
) -> dict[str, Any]:
    """Every metric that fits the labels, with its interval, over labelled examples and their probabilities."""
    decided = fine_tuned.decide(probabilities)
    if fine_tuned.labels.target == "score":
        return measure_scores(encoded.targets, decided)
    truth, chosen = encoded.targets.astype("int64"), decided.astype("int64")
    measured = measure_classes(truth, chosen, probabilities.shape[1])
    return measured if fine_tuned.labels.target == "class" else {"accuracy": measured["accuracy"]}


def choose_metric(config: FinetuneConfig, labels: Labels) -> Metric:
    """What the best state is chosen by: as given, else accuracy, or Pearson's correlation for scores.

    Raises UsageError for a metric that such labels do not have.
    """
    fitting = _METRICS[labels.target]
    if config.metric is not None and config.metric not in fitting:
        raise UsageError(
            f"metric = {config.metric!r} does not fit labels of kind {labels.target}",
            expected=" or ".join(fitting),
        )
    return config.metric or fitting[0]


def peak_rate(config: FinetuneConfig, width: int) -> float:
    """The learning rate for a model of this width: as given, else 6.25e-5 · (768 / width)^1.5.

    At GPT-1's width that is the paper's, at which a narrow model hardly moves in three epochs. With 1,500
    sentences of SST-2 a model 192 wide came to a training loss of 0.67 and 62 % of the validation part right at
    the paper's rate, to 0.38 and 68 % at this one. Rates of pre-training (recipes) rise down the ladder about so.
    """
    if config.learning_rate is not None:
        return config.learning_rate
    return float(f"{PAPER_RATE * (PAPER_WIDTH / width) ** RATE_POWER:.3g}")


def train_config(config: FinetuneConfig, steps: int, width: int) -> TrainConfig:
    """The loop's configuration of `steps` updates of a model this wide: Adam and schedule as in GPT-1's code."""
    return TrainConfig(
        steps=steps,
        batch_size=config.batch_size,
        learning_rate=peak_rate(config, width),
        warmup_steps=config.warmup * steps,
        schedule=config.schedule,
        weight_decay=config.weight_decay,
        beta1=config.beta1,
        beta2=config.beta2,
        epsilon=config.epsilon,
        adam="original",
        clip=config.clip,
        precision=config.precision,
        seed=config.seed,
    )


def _seeds(seed: int) -> tuple[int, int]:
    """For the task rows and for the head: from one seed, they and a fresh base would begin with the same draws."""
    rows, head = np.random.SeedSequence(seed).generate_state(2)
    return int(rows), int(head)


def _measurements(steps: int, per_epoch: int) -> set[int]:
    """The updates after which validation is measured: each epoch's end, or evenly in a short training."""
    if steps >= _FEWEST_MEASUREMENTS * per_epoch:
        return {*range(per_epoch, steps + 1, per_epoch), steps}
    return {math.ceil(steps * part / _FEWEST_MEASUREMENTS) for part in range(1, _FEWEST_MEASUREMENTS + 1)}


def _first_layers(state: dict[str, Any], layers: int, base: Model) -> dict[str, Any]:
    """Embeddings and the first blocks, as n_transfer in the authors' code (figure 2, left).

    With the last block comes the norm behind it, where there is one: all layers are the whole model.
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
    blocks = tuple(f"blocks.{layer}." for layer in range(layers))
    return {k: v for k, v in state.items() if k.startswith(("tokens.", "positions.", *blocks))}
