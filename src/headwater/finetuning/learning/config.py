"""Configuration of fine-tuning, with GPT-1's values; the recipe of many members and its thresholds.

GPT-1 (Radford et al. 2018), sections 3.2 and 4.1: λ 0.5, learning rate 6.25e-5 (a base's own where it records
one), batch 32, 3 epochs, warm-up over 0.2 % of the updates, then linear to 0; Adam, decay and clipping as in the
authors' code. The ablations of section 5 are keys: `lambda_lm` 0, `from_scratch`, `transfer_layers`; the LSTM is
another base. `Policy` has every number that depends on how many rows there are, or bounds time and memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from headwater.config import MOST_ROWS
from headwater.errors import UsageError
from headwater.finetuning.rows.labels import Labels
from headwater.finetuning.rows.read import Columns
from headwater.finetuning.rows.row import MemberName, MetricName, Target, TaskName
from headwater.model import Faithful, ModelConfig
from headwater.reading import text_encoding
from headwater.training import AdamForm, Schedule, TrainConfig, transfer_rate

Recipe = Literal["auto", "gpt1", "tfidf", "probe", "lp-ft"]
# The metrics of each kind of label; the first is the default.
_METRICS: dict[Target, tuple[MetricName, ...]] = {
    "class": ("accuracy", "f1", "macro_f1", "matthews"),
    "labels": ("micro_f1", "macro_f1", "accuracy"),
    "score": ("pearson", "spearman"),
    "answer": ("accuracy",),
}
_LAMBDA_LM = 0.5


@dataclass(frozen=True)
class Policy:
    """Decisions that depend on the number of rows, and limits on time and memory.

    few_rows, few_per_output: up to so many rows in all, or for each output, cross-validation in `folds` chooses,
    and all rows are learned from; never of more than `most_folded` rows. validation_share, most_validation: of
    more rows, the share that is held out, and the most rows of it.
    least_weight: a member of less weight in the mixture is dropped. least_gain: LP-FT is left out unless
    the mixture of the first fold's rows, with the prior of equal weights, gains more nats by it.
    prior_rows: as many rows for each member speak for equal weights, so that a few rows do not decide alone.
    least_rows: a temperature needs so many, and so does the first fold to leave LP-FT out.
    linear_rows: a linear model learns from at most so many rows. characters: what TF-IDF reads of a text.
    terms, most_weights: of TF-IDF's vocabulary, words and character n-grams each; and the most numbers of its
    linear model.
    base_rows: rows on which bases are compared. doubted_rows: rows that are searched for wrong labels.
    small_epochs, small_updates, fewest_updates: GPT-1's recipe has more than the paper's `paper_epochs` for few
    rows: up to `small_epochs` for `small_updates`, or as many as give `fewest_updates`.
    lp_ft_rate, lp_ft_width, lp_ft_warmup: LP-FT's rate up to this width, and inversely as the width beyond; its
    warm-up. lp_ft_epochs, lp_ft_rows, lp_ft_updates: its epochs up to `lp_ft_rows` rows, fewer beyond; up to
    `few_rows` rows as many as give `lp_ft_updates` updates, at least half and at most all of them. Measured on
    SST-2 and Korean reviews with bases of the widths 384 and 320.
    """

    few_rows: int = 500
    few_per_output: int = 5
    most_folded: int = 3_000
    folds: int = 3
    validation_share: float = 0.1
    most_validation: int = 10_000
    least_weight: float = 0.05
    least_gain: float = 0.0
    prior_rows: float = 5.0
    least_rows: int = 40
    linear_rows: int = 20_000
    characters: int = 5_000
    terms: int = 50_000
    most_weights: int = 10_000_000
    base_rows: int = 300
    doubted_rows: int = 5_000
    paper_epochs: int = 3
    small_epochs: int = 8
    small_updates: int = 450
    fewest_updates: int = 60
    lp_ft_rate: float = 2e-4
    lp_ft_width: int = 384
    lp_ft_warmup: float = 0.1
    lp_ft_epochs: int = 10
    lp_ft_rows: int = 1_500
    lp_ft_updates: int = 15
    patience: int = 2

    def is_few(self, rows: int, outputs: int) -> bool:
        """Return whether cross-validation chooses, and all rows are learned from."""
        return rows <= min(self.most_folded, max(self.few_rows, self.few_per_output * outputs))

    def held_out_share(self, rows: int) -> float:
        """Return the share of many rows that is held out."""
        return min(self.validation_share, self.most_validation / max(1, rows))

    def lp_ft_epochs_for(self, rows: int, batch_size: int) -> int:
        """Return the epochs of LP-FT."""
        epochs = self.lp_ft_epochs * self.lp_ft_rows / max(rows, self.lp_ft_rows)
        if rows <= self.few_rows:
            updates = math.ceil(rows / batch_size)  # an epoch
            epochs = max(self.lp_ft_epochs / 2, min(epochs, self.lp_ft_updates / updates))
        return max(self.paper_epochs, round(epochs))

    def paper_epochs_for(self, rows: int, batch_size: int) -> int:
        """Return the epochs of GPT-1's recipe: the paper's, or more for few rows."""
        updates = math.ceil(rows / batch_size)  # an epoch
        few = max(
            min(self.small_epochs, math.ceil(self.small_updates / updates)),
            math.ceil(self.fewest_updates / updates),
        )
        return max(self.paper_epochs, few)


POLICY = Policy()


class FinetuneConfig(TrainConfig):
    """Configuration of fine-tuning, with the paper's defaults. Sizes in examples, `micro_batch` in sequences.

    `resolve` fills in keys that are None from the model and the data.
    """

    recipe: Recipe = "gpt1"
    """gpt1: the paper's. tfidf: a linear model on TF-IDF of words and characters. probe: one on the base's
    features. lp-ft: begin with the probe, then tune all but the token embeddings. auto, the default of `headwater
    finetune` and of the estimators: the mixture of the last three, or of tfidf and gpt1 for choices."""
    task: TaskName = "classify"
    """Which of the four inputs."""
    target: Target | None = None
    """What the labels are; by default inferred from the rows. labels: any number of labels per row."""
    metric: MetricName | None = None
    """Reported metric, which also chooses gpt1's best state; default: accuracy, micro_f1 or pearson, by target."""
    columns: Columns = Columns()
    faithful: Faithful = "code"
    """Whether dropout and the softmax of L1 follow the authors' code, for a base with GPT-1's norm."""
    class_weight: Literal["balanced"] | None = None
    """balanced: each class has the same total weight in the loss."""
    lambda_lm: float = Field(default=_LAMBDA_LM, ge=0)
    """λ, the weight of the auxiliary language-model loss L1, of gpt1."""
    classifier_dropout: float = Field(default=0.1, ge=0, lt=1)
    """Dropout before the head; not while lp-ft tunes classes, which reads cosines."""
    epochs: float | None = Field(default=None, gt=0)
    """Passes over the training rows; by default the recipe's: of gpt1 3, and more for few rows."""
    warmup: float = Field(default=0.002, ge=0, le=1)
    """Share of all updates over which the learning rate rises, if warmup_steps is 0."""
    from_scratch: bool = False
    """Use only the base's shape and tokenizer."""
    transfer_layers: int | None = Field(default=None, ge=0)
    """Keep embeddings and the first N blocks of the base."""
    validation_share: float | None = Field(default=None, gt=0, lt=1)
    """Share of the training rows to hold out without a validation file; default: none of few, a tenth of many."""
    patience: int | None = Field(default=None, ge=1)
    """Stop after N measurements without a better one; by default never, and after 2 in the recipe auto."""
    baseline: bool = True
    """Compare with TF-IDF where it is not a member."""
    doubtful: int = Field(default=50, ge=0)
    """The most rows to list whose label looks wrong; 0 for no search."""
    limit: int | None = Field(default=None, ge=1, le=MOST_ROWS)
    """Use only the first N rows of each file."""
    encoding: str = ""
    """The encoding of the files, if it is not UTF-8 and not clear from their bytes."""

    steps: int | None = Field(default=None, ge=1, le=1 << 40)  # type: ignore[assignment]
    """Updates; by default as many as the epochs have."""
    learning_rate: float | None = Field(default=None, gt=0)  # type: ignore[assignment]
    """The peak learning rate; by default the base's own, and of lp-ft 2e-4, less for a base
    wider than 384."""
    validate_every: int | None = Field(default=None, ge=1)  # type: ignore[assignment]
    """Updates between measurements; by default each epoch's end, or three times in a shorter training."""
    schedule: Schedule = "gpt1-linear"
    weight_decay: float = Field(default=0.01, ge=0)
    beta2: float = Field(default=0.999, ge=0, lt=1)
    adam: AdamForm = "original"
    dropout: float | None = Field(default=0.1, ge=0, lt=1)
    """Of the base's training in gpt1; lp-ft has none."""
    keep: int = Field(default=1, ge=1)

    @field_validator("encoding")
    @classmethod
    def _is_an_encoding(cls, value: str) -> str:
        return text_encoding(value) if value else ""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.target is not None and (self.target == "answer") != (self.task == "choice"):
            raise ValueError(f"target {self.target!r} is not a target of task {self.task!r}")
        if self.recipe in ("probe", "lp-ft"):
            if self.task == "choice":
                raise ValueError(f"recipe = {self.recipe} does not fit choices: use gpt1, tfidf or auto")
            if self.from_scratch:
                raise ValueError(f"recipe = {self.recipe} does not fit from_scratch: leave one of them out")
        if self.epochs is not None and self.steps is not None:
            raise ValueError("epochs and steps both set the length of the training: leave one of them out")
        if self.transfer_layers is not None and self.from_scratch:
            raise ValueError("from_scratch and transfer_layers exclude each other: leave one of them out")
        return self

    def members(self, base: ModelConfig) -> tuple[MemberName, ...]:
        """Return the members that are learned; keys that only GPT-1's recipe has choose it."""
        if self.recipe != "auto":
            return (self.recipe,)
        if (
            self.from_scratch
            or self.transfer_layers is not None
            or self.lambda_lm != _LAMBDA_LM
            or base.architecture != "transformer"
        ):
            return ("gpt1",)
        return ("tfidf", "gpt1") if self.task == "choice" else ("tfidf", "probe", "lp-ft")

    def deciding(self) -> dict[str, Any]:
        """Return the keys that decide the model, without the keys of its analyses."""
        return {key: value for key, value in super().deciding().items() if key not in ("baseline", "doubtful")}

    def for_member(self, member: MemberName) -> FinetuneConfig:
        """Return the configuration of a member's training; in a mixture it stops early."""
        patience = self.patience or (POLICY.patience if self.recipe == "auto" else None)
        return self.model_copy(update={"recipe": member, "patience": patience})

    def with_keys(self, **keys: Any) -> FinetuneConfig:
        """Return this with other values of some keys, spelled as in TOML."""
        return FinetuneConfig.build({k: v for k, v in (self.to_dict() | keys).items() if v is not None})

    def epochs_for(self, examples: int, base: ModelConfig | None = None) -> float:
        """Return the epochs of the recipe for a number of training examples: the base's own, if it has any."""
        if self.epochs is not None:
            return self.epochs
        if self.recipe == "lp-ft":
            return POLICY.lp_ft_epochs_for(examples, self.batch_size)
        own = None if base is None else base.transfer_epochs
        return own or POLICY.paper_epochs_for(examples, self.batch_size)

    def resolve(self, base: ModelConfig, *, examples: int) -> FinetuneConfig:
        """Return this with the updates, warm-up and learning rate of `gpt1` or `lp-ft` for so many examples."""
        updates = math.ceil(examples / self.batch_size)  # an epoch
        steps = self.steps or max(1, round(self.epochs_for(examples, base) * updates))
        warmup = max(self.warmup, POLICY.lp_ft_warmup) if self.recipe == "lp-ft" else self.warmup
        changes: dict[str, Any] = {
            "steps": steps,
            "learning_rate": self.peak_rate(base)[0],
            "warmup_steps": self.warmup_steps or warmup * steps,
        }
        if self.recipe == "lp-ft" or not base.is_causal:
            changes["lambda_lm"] = 0.0  # there is no language-model loss
        return self.model_copy(update=changes)

    def peak_rate(self, base: ModelConfig) -> tuple[float, str]:
        """Return the peak learning rate, and why it is that."""
        if self.learning_rate is not None:
            return self.learning_rate, "as configured"
        if self.recipe == "lp-ft":
            return POLICY.lp_ft_rate * min(1.0, POLICY.lp_ft_width / base.width), "of the recipe lp-ft"
        if base.transfer_rate is None:
            return transfer_rate(base.width), "of a model of this width that Headwater trained"
        foreign = "the paper's, for a base without a record"
        return base.transfer_rate, foreign if base.is_foreign else "measured for this base"

    def checked_metric(self, labels: Labels) -> MetricName:
        """Return the metric; raise UsageError for one, or class weights, that the labels do not have."""
        if self.class_weight is not None and labels.target != "class":
            raise UsageError(f"class_weight does not fit labels of kind {labels.target}", expected="classes")
        fitting = _METRICS[labels.target]
        if self.metric is not None and self.metric not in fitting:
            raise UsageError(
                f"metric = {self.metric!r} does not fit labels of kind {labels.target}",
                expected=" or ".join(fitting),
                repair="For classes: --set target=class" if labels.target == "score" else "",
            )
        return self.metric or fitting[0]
