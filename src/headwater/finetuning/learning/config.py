"""Configuration of fine-tuning, with the paper's values, and what follows from the model and the rows.

GPT-1 (Radford et al. 2018), sections 3.2 and 4.1: λ 0.5, learning rate 6.25e-5 (`peak_rate` for other widths),
batch 32, 3 epochs, warm-up over 0.2 % of the updates, then linear to 0; Adam, decay and clipping as in the
authors' code. A base's own record replaces rate and epochs (`ModelConfig.transfer_rate`). The recipe lp-ft
(`probe`) has values of its own, decided here.
The ablations of section 5 are keys: `lambda_lm` 0, `from_scratch`, `transfer_layers`; the LSTM is
another base.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from headwater.config import MOST_ROWS
from headwater.errors import UsageError
from headwater.finetuning.rows.columns import Columns
from headwater.finetuning.rows.labels import Labels, listed
from headwater.finetuning.rows.row import POOLED_RECIPES, POOLING, MetricName, Target, TaskName, class_name
from headwater.finetuning.rows.split import FOLDED
from headwater.model import Faithful, ModelConfig
from headwater.plugins import task_model_class
from headwater.reading import text_encoding
from headwater.training import AdamForm, Schedule, TrainConfig, transfer_rate

Recipe = Literal["auto", "gpt1", "lp-ft", "probe"]
ClassName = Annotated[str, BeforeValidator(class_name)]
# The metrics of each kind of label; the first is the default.
_METRICS: dict[Target, tuple[MetricName, ...]] = {
    "class": ("accuracy", "f1", "macro_f1", "matthews"),
    "labels": ("micro_f1", "macro_f1", "accuracy"),
    "score": ("pearson", "spearman"),
    "answer": ("accuracy",),
}
# The paper's epochs. Few rows have up to SMALL_EPOCHS for SMALL_UPDATES updates; the fewest, FEWEST_UPDATES.
PAPER_EPOCHS, SMALL_EPOCHS, SMALL_UPDATES, FEWEST_UPDATES = 3, 8, 450, 60
# Learning rate of a head over a frozen base, which has no trained weights to preserve. Decided here.
FROZEN_RATE = 1e-3
_LAMBDA_LM = 0.5
# Of the recipe lp-ft: the rate, the warm-up, the epochs and the rows above which they are fewer; up to FEW_ROWS
# rows as many as give LP_FT_UPDATES updates, at least half and at most all of them: measured on SST-2 and SNLI.
LP_FT_RATE, LP_FT_WARMUP, LP_FT_EPOCHS, LP_FT_ROWS, LP_FT_UPDATES = 1e-4, 0.1, 10, 1_500, 40
# Of the recipe auto. Up to FEW_OF_A_CLASS rows per output gpt1 is not tried, and from MANY_ROWS on lp-ft, which
# would double the time. Up to FEW_ROWS rows, or so many per output, cross-validation chooses. A regression with
# more outputs than MOST_OUTPUTS takes longer than a training.
FEW_OF_A_CLASS, MANY_ROWS, FEW_ROWS, FEW_PER_OUTPUT, MOST_OUTPUTS = 250, 5_000, 500, 5, 1_000
PATIENCE = 2
_VALIDATION_SHARE = 0.1


class FinetuneConfig(TrainConfig):
    """Configuration of fine-tuning, with the paper's defaults. Sizes in examples, `micro_batch` in sequences.

    `resolve` fills in keys that are None from the model and the data.
    """

    recipe: Recipe = "gpt1"
    """gpt1: the paper's. probe: logistic regression on the base's features. lp-ft: begin with it, then tune all
    weights. auto: the best of them; the default of `headwater finetune` and of the estimators."""
    task: TaskName = "classify"
    """Which of the four inputs."""
    target: Target | None = None
    """What the labels are; by default inferred from the rows. labels: any number of labels a row."""
    metric: MetricName | None = None
    """Metric that chooses the best state; by default accuracy, micro_f1 for several labels, pearson for scores."""
    features: Literal["base", "tfidf+base"] = "base"
    """What a probe of one text reads: the base's features, or TF-IDF of n-grams next to them."""
    columns: Columns = Columns()
    compose: bool = True
    """Bring texts and labels of tables into Unicode's composed form, NFC, here and in predictions."""
    faithful: Faithful = "code"
    """Whether dropout and the softmax of L1 follow the authors' code, for a base with GPT-1's norm."""
    class_weight: Literal["balanced"] | dict[ClassName, Annotated[float, Field(gt=0)]] | None = None
    """Weights of the classes in L2: balanced, which gives each class the same total, or a table by name."""
    lambda_lm: float = Field(default=_LAMBDA_LM, ge=0)
    """λ, the weight of the auxiliary language-model loss L1."""
    classifier_dropout: float = Field(default=0.1, ge=0, lt=1)
    """Dropout before the head; not while lp-ft tunes classes, which reads cosines."""
    epochs: float | None = Field(default=None, gt=0)
    """Passes over the training rows; by default the recipe's: of gpt1 3, and more for few rows."""
    warmup: float = Field(default=0.002, ge=0, le=1)
    """Share of all updates over which the learning rate rises, if warmup_steps is 0."""
    freeze: bool = False
    """Keep the base unchanged; learn a head over a mixture of its layers."""
    task_model: str = POOLING
    """What reads the mixture: pooling, or, with headwater-papers, lstm: a bi-LSTM, or ESIM for two texts."""
    from_scratch: bool = False
    """Use only the base's shape and tokenizer."""
    keep_head: bool = False
    """Keep head and labels of a base that is fine-tuned already, as with --from; new labels are added."""
    transfer_layers: int | None = Field(default=None, ge=0)
    """Keep embeddings and the first N blocks of the base."""
    validation_share: float = Field(default=_VALIDATION_SHARE, gt=0, lt=1)
    """Share of the training rows to validate on without a file; at the default all of few rows are trained on."""
    patience: int | None = Field(default=None, ge=1)
    """Stop after N measurements without a better one; by default never, and after 2 with the recipe auto."""
    baseline: bool = True
    """Measure a linear baseline on the same rows, and look for wrong labels, after the model is written."""
    limit: int | None = Field(default=None, ge=1, le=MOST_ROWS)
    """Use only the first N rows of each file."""
    encoding: str = ""
    """The encoding of the files, if it is not UTF-8 and not clear from their bytes."""

    steps: int | None = Field(default=None, ge=1, le=1 << 40)  # type: ignore[assignment]
    """Updates; by default as many as the epochs have."""
    learning_rate: float | Literal["search"] | None = None  # type: ignore[assignment]
    """The peak learning rate; by default the base's own, lp-ft 1e-4, freeze 1e-3; search: the best of a series."""
    validate_every: int | None = Field(default=None, ge=1)  # type: ignore[assignment]
    """Updates between measurements; by default each epoch's end, or three times in a shorter training."""
    schedule: Schedule = "gpt1-linear"
    weight_decay: float = Field(default=0.01, ge=0)
    beta2: float = Field(default=0.999, ge=0, lt=1)
    adam: AdamForm = "original"
    dropout: float | None = Field(default=0.1, ge=0, lt=1)
    keep: int = Field(default=1, ge=1)

    @field_validator("learning_rate")
    @classmethod
    def _positive(cls, value: float | str | None) -> float | str | None:
        if isinstance(value, float) and not value > 0:
            raise PydanticCustomError("greater_than", "Input should be greater than 0")
        return value

    @field_validator("encoding")
    @classmethod
    def _is_an_encoding(cls, value: str) -> str:
        return text_encoding(value) if value else ""

    @field_validator("task_model")
    @classmethod
    def _is_a_task_model(cls, value: str) -> str:
        if value != POOLING:
            task_model_class(value)
        return value

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.target is not None and (self.target == "answer") != (self.task == "choice"):
            raise ValueError(f"target {self.target!r} is not a target of task {self.task!r}")
        if self.is_lexical and (self.task != "classify" or self.recipe not in ("auto", "probe") or self.freeze):
            raise ValueError(
                "features = tfidf+base is for a probe of one text: task classify, recipe auto or probe"
            )
        if self.recipe in POOLED_RECIPES:
            others = {
                "freeze": self.freeze,
                "from_scratch": self.from_scratch,
                "choices": self.task == "choice",
            }
            if unfit := [name for name, given in others.items() if given]:
                raise ValueError(f"recipe = {self.recipe} does not fit {unfit[0]}: leave one of them out")
        if self.task_model != POOLING and not self.freeze:
            raise ValueError(f"task_model = {self.task_model} reads a frozen base: it needs freeze")
        if self.freeze and (self.from_scratch or self.transfer_layers is not None):
            raise ValueError("freeze needs the whole pre-trained base: leave from_scratch and transfer_layers out")
        if self.keep_head and (self.from_scratch or self.transfer_layers is not None):
            raise ValueError("keep_head needs the fine-tuned weights: leave from_scratch and transfer_layers out")
        if self.freeze and self.lambda_lm not in (0, _LAMBDA_LM):
            raise ValueError(f"a frozen base has no language-model loss: leave out lambda_lm = {self.lambda_lm:g}")
        return self

    @property
    def is_lexical(self) -> bool:
        """Whether the head reads n-grams next to the base's features."""
        return self.features == "tfidf+base"

    def candidates(self, examples: int, outputs: int, base: ModelConfig) -> tuple[Recipe, ...]:
        """Return the recipes to compare in place of `auto`, for so many training rows and outputs of the head.

        lp-ft includes its start, the probe. Keys that only GPT-1's recipe has choose it.
        """
        if self.recipe != "auto":
            return (self.recipe,)
        if self.is_lexical:
            return ("probe",)
        needs_gpt1 = (
            self.task == "choice"
            or self.freeze
            or self.from_scratch
            or self.transfer_layers is not None
            or self.lambda_lm != _LAMBDA_LM
            or base.architecture != "transformer"
            or outputs > MOST_OUTPUTS
        )
        if not needs_gpt1 and examples <= FEW_OF_A_CLASS * outputs:
            return ("lp-ft",)
        if needs_gpt1 or self.learning_rate == "search":
            return ("gpt1",)
        return ("lp-ft" if examples <= MANY_ROWS else "probe", "gpt1")

    def cross_validates(self, examples: int, outputs: int, base: ModelConfig) -> bool:
        """Return whether few rows are all trained on, and cross-validation compares the candidates.

        A search and a share to validate on hold rows out.
        """
        few = examples <= min(FOLDED, max(FEW_ROWS, FEW_PER_OUTPUT * outputs))
        holds_out = self.learning_rate == "search" or self.validation_share != _VALIDATION_SHARE
        is_few = self.candidates(examples, outputs, base) == ("lp-ft",)
        return self.recipe == "auto" and few and is_few and not holds_out

    def with_keys(self, **keys: Any) -> FinetuneConfig:
        """Return this with other values of some keys, spelled as in TOML."""
        return FinetuneConfig.build({k: v for k, v in (self.to_dict() | keys).items() if v is not None})

    def deciding(self) -> dict[str, Any]:
        """Return the keys that decide the result, without `baseline`, which is measured afterwards."""
        return {key: value for key, value in super().deciding().items() if key != "baseline"}

    def epochs_for(self, examples: int, base: ModelConfig | None = None) -> float:
        """Return the epochs for a number of training examples: the base's, else the paper's or more for few."""
        if self.recipe in POOLED_RECIPES:
            few = LP_FT_EPOCHS * LP_FT_ROWS / max(examples, LP_FT_ROWS)
            if examples <= FEW_ROWS:
                updates_per_epoch = math.ceil(examples / self.batch_size)
                few = max(LP_FT_EPOCHS / 2, min(few, LP_FT_UPDATES / updates_per_epoch))
            return self.epochs or max(PAPER_EPOCHS, round(few))
        own = None if base is None else base.transfer_epochs
        updates = math.ceil(examples / self.batch_size)  # an epoch
        more = max(min(SMALL_EPOCHS, math.ceil(SMALL_UPDATES / updates)), math.ceil(FEWEST_UPDATES / updates))
        return self.epochs or own or max(PAPER_EPOCHS, more)

    def resolve(self, base: ModelConfig, *, examples: int) -> FinetuneConfig:
        """Return this with the updates, warm-up and learning rate for the base and the number of examples."""
        batch = self.batch_size
        steps = self.steps or max(1, round(self.epochs_for(examples, base) * math.ceil(examples / batch)))
        rate, least = self.peak_rate(base), LP_FT_WARMUP if self.recipe == "lp-ft" else 0.0
        changes: dict[str, Any] = {
            "steps": steps,
            "learning_rate": rate,
            "warmup_steps": self.warmup_steps or max(self.warmup, least) * steps,
        }
        if self.freeze:  # the head is too small to gain from bfloat16
            changes["precision"] = "fp32"
        if self.freeze or self.recipe in POOLED_RECIPES or not base.is_causal:
            changes["lambda_lm"] = 0.0  # there is no language-model loss
        return self.model_copy(update=changes)

    def peak_rate(self, base: ModelConfig) -> float:
        """Return the user's learning rate, else the default of the base."""
        return self.learning_rate if isinstance(self.learning_rate, float) else self.default_rate(base)

    def default_rate(self, base: ModelConfig) -> float:
        """Return LP_FT_RATE for lp-ft, FROZEN_RATE for a frozen base, else the base's rate, else its width's."""
        if self.recipe == "lp-ft":
            return LP_FT_RATE
        return FROZEN_RATE if self.freeze else (base.transfer_rate or transfer_rate(base.width))

    def rate_reason(self, base: ModelConfig) -> str:
        """Return why `peak_rate` is what it is."""
        if self.learning_rate == "search":
            return "the best of the search on the validation rows"
        if self.learning_rate is not None:
            return "as configured"
        if self.recipe == "lp-ft":
            return "of the recipe lp-ft"
        if self.freeze:
            return "for a frozen base"
        if base.transfer_rate is None:
            return "of a model of this width that Headwater trained"
        return "the paper's, for a base without a record" if base.is_foreign else "measured for this base"

    def checked_metric(self, labels: Labels) -> MetricName:
        """Check metric and class weights against the labels; return the metric that chooses the best state.

        Raises UsageError for a metric that the labels do not have, and for a weight of an unknown class.
        """
        if self.class_weight is not None:
            if labels.target != "class":
                raise UsageError(f"class_weight does not fit labels of kind {labels.target}", expected="classes")
            for name in self.class_weight if self.class_weight != "balanced" else ():
                if name not in map(class_name, labels.names):
                    raise UsageError(f"class_weight names the class {name!r}", expected=listed(labels.names))
        fitting = _METRICS[labels.target]
        if self.metric is not None and self.metric not in fitting:
            raise UsageError(
                f"metric = {self.metric!r} does not fit labels of kind {labels.target}",
                expected=" or ".join(fitting),
                repair="For classes: --set target=class" if labels.target == "score" else "",
            )
        return self.metric or fitting[0]
