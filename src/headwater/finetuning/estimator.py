"""The base of the estimators, with scikit-learn's conventions.

    clf = hw.Classifier(base="runs/small/model").fit(texts, labels)
    clf.predict(texts); clf.predict_proba(texts); clf.save(folder); hw.Classifier.load(folder)

Parameters are stored unchanged and learned attributes end in an underscore, so `clone`, `cross_val_score`,
`GridSearchCV` and `Pipeline` work. Texts are lists, NumPy arrays, pandas or polars columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils import ClassifierTags, RegressorTags

from headwater import shipped
from headwater.config import Config
from headwater.device import choose_device
from headwater.errors import DataError, FolderError, MismatchError, UsageError
from headwater.finetuning.learning.choose import Learned, learn
from headwater.finetuning.learning.config import FinetuneConfig, Recipe
from headwater.finetuning.learning.prepare import check_start, load_tokenizer, prepare
from headwater.finetuning.model.fine_tuned import FineTuned, fingerprint, parse_part
from headwater.finetuning.results.baseline import ClassWeight
from headwater.finetuning.results.calibration import calibrate
from headwater.finetuning.results.explanation import explain
from headwater.finetuning.results.metrics import pearson
from headwater.finetuning.rows.arrays import (
    as_labels,
    as_list,
    checked_labels,
    checked_weights,
    require_one_each,
    training_weights,
)
from headwater.finetuning.rows.labels import Labels, learn_labels
from headwater.finetuning.rows.row import Raw, Seen, Target, TaskName, class_name, original_base
from headwater.model import load_model
from headwater.reading import compose, expand_home, read_json
from headwater.storage import SILENT, PlainProgress, Stage, write_json
from headwater.training import OnUpdate, TrainingPrecision

ESTIMATOR_FILE = "estimator.json"
_OWN = {"base", "verbose", "warm_start", "multi_label"}  # parameters that are not keys of FinetuneConfig


class _Saved(Config):
    """The content of ESTIMATOR_FILE."""

    parameters: dict[str, Any] = Field(default_factory=dict)
    classes: list[str | bool | int | float] = Field(default_factory=list)
    comparison: Any = None  # of earlier versions
    indicator: bool = False
    label_type: str = "str"  # 0.1.0 writes only the type of the classes


class NotFitted(UsageError, NotFittedError):  # type: ignore[misc]
    """An estimator was used before `fit`."""


@dataclass(eq=False, repr=False)
class Estimator(BaseEstimator):  # type: ignore[misc]
    """What the five estimators have in common. Use one of them.

    base: a model folder, a model that ships, the encoder "minilm", or what `hw.load` returned. recipe:
    "gpt1", the paper's; "probe", logistic regression on the base's features; "lp-ft", which begins with the
    probe and tunes all weights; or "auto", the best of those that suit the number of rows, see `recipe_`.
    features: what a probe of one text reads; "tfidf+base" adds TF-IDF of n-grams to the base's features. The
    other parameters are those of `headwater finetune`, with the recipe's defaults for None. learning_rate:
    None is the recipe's or the base's own; "search" tries a series on the validation rows, see
    `learning_rates_`; what was used, and why, is in `learning_rate_` and `learning_rate_reason_`.
    validation_share: the share of the rows that choose the best state; at the default, "auto" trains on all of
    few rows and cross-validates. freeze: keep the base unchanged, and learn a head over a mixture of its layers.
    task_model: what reads that mixture: "pooling" or, with headwater-papers, "lstm"; it needs `freeze`.
    class_weight: "balanced", or weights by class. compose: bring texts and labels into Unicode's composed
    form, so that both forms of 각 or é are the same. warm_start: `fit` continues from a fitted or loaded model
    and its head; new classes come last in `classes_`. verbose: print the progress on stderr.
    """

    task: ClassVar[TaskName]
    fixed_target: ClassVar[Target | None] = "class"  # None: a parameter decides it

    base: Any = shipped.DEFAULT
    _: KW_ONLY
    recipe: Recipe = "auto"
    features: Literal["base", "tfidf+base"] = "base"
    epochs: float | None = None
    learning_rate: float | Literal["search"] | None = None
    batch_size: int = 32
    lambda_lm: float = 0.5
    dropout: float = 0.1
    validation_share: float = 0.1
    patience: int | None = None
    freeze: bool = False
    task_model: str = "pooling"
    from_scratch: bool = False
    class_weight: ClassWeight = None
    compose: bool = True
    precision: TrainingPrecision = "auto"
    device: str = "auto"
    warm_start: bool = False
    verbose: bool = False
    seed: int = 1

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, on_update: OnUpdate | None = None) -> Self:
        """Fine-tune the base on rows X with labels y; return self.

        sample_weight: the weight of each row in the loss of the labels. on_update: called after every update with
        its step, loss, learning rate and other figures, as a dictionary.

        Raises DataError, naming the row, for rows that cannot be learned from.
        """
        config, y = self._config(), self._labels_of(y)
        progress = PlainProgress() if self.verbose else SILENT
        names, rows = checked_labels(y, self._target()), self._rows(X)
        require_one_each(len(rows), len(names))
        if len(rows) == 1:
            raise DataError("there is only one sample", expected="rows to train on and rows to measure on")
        labelled = [replace(row, label=name) for row, name in zip(rows, names, strict=True)]
        start: FineTuned | None = getattr(self, "fine_tuned_", None) if self.warm_start else None
        if start is not None:
            check_start(start, config, f"this {type(self).__name__}")
        seen = start.seen if start else None
        if start is None and not self.from_scratch and isinstance(self.base, str | Path):
            seen = Seen.load(shipped.find(self.base))
        classes: npt.NDArray[Any] | None = None

        def learn_labels_of(kept: list[Raw]) -> Labels:
            nonlocal classes
            labels, classes = self._learn_labels(kept, y, start)
            return labels

        prepared = prepare(
            config,
            {"train": ("X", map(Raw.composed, labelled) if self.compose else labelled)},
            lambda: (start.model.model, start.tokenizer) if start else self._base(),
            start=start,
            seen=seen,
            learn=learn_labels_of,
            progress=progress,
        )
        prepared.on_update = on_update
        prepared.weights = training_weights(sample_weight, len(rows), prepared.parts.train.rows)
        self._keep(learn(prepared), config)
        self.classes_ = classes
        return self

    def _keep(self, learned: Learned, config: FinetuneConfig) -> None:
        """Set the learned attributes but the classes; calibrate the model."""
        prepared, outcome = learned.prepared, learned.outcome
        self.learning_rates_ = learned.rates
        self.calibration_ = calibrate(outcome, prepared.encoded["validation"])
        self.n_without_text_ = prepared.parts.train.empty
        self.fine_tuned_ = outcome.fine_tuned
        self.fine_tuned_.compose = self.compose
        self.fine_tuned_.seen = learned.seen
        self.learning_rate_ = outcome.learning_rate
        self.recipe_, used = learned.recipe, config.model_copy(update={"recipe": prepared.config.recipe})
        self.learning_rate_reason_ = used.rate_reason(prepared.shape)
        self.curve_ = outcome.curve
        self.n_features_in_ = 1

    def explain(self, X: Any) -> list[list[dict[str, Any]] | None]:
        """Return for each row which words changed its prediction, as the server's /classify with `explain`.

        Of each part of a text, in order: {"segment": the number of the text in the row, "text", "change": the
        probability (or score) of the prediction with it minus that without it}. None for a row without text.
        """
        fine_tuned, rows = self._fitted(), self._rows(X)
        return [
            None
            if prediction.label is None
            else [piece.to_dict() for piece in explain(fine_tuned, row.segments, prediction.output)]
            for row, prediction in zip(rows, fine_tuned.predict(rows), strict=True)
        ]

    def predict_proba(self, X: Any) -> npt.NDArray[np.float32]:
        """Return (rows, classes), as `classes_`; for scores (rows, levels); for choices (rows, most answers).

        They are NaN for a row without text. A linear score of transformers is returned itself, (rows, 1).
        """
        rows, fine_tuned = self._rows(X), self._fitted()
        if not rows:
            return np.zeros((0, fine_tuned.labels.outputs), dtype=np.float32)
        probabilities = fine_tuned.probabilities(fine_tuned.encode(rows))
        probabilities[[row.is_empty(self.task) for row in rows]] = np.nan
        return probabilities

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return (rows,): the most probable class, as in y; the expected score; or the answer's number, from 0.

        A row without text has no prediction: None, or NaN for scores.
        """
        fine_tuned, probabilities = self._fitted(), self.predict_proba(X)
        decided = fine_tuned.decide(probabilities)
        if fine_tuned.labels.target == "score":
            return decided
        chosen = decided.astype(np.int64)
        by_class = self.classes_ is not None and fine_tuned.labels.target != "answer"
        predicted: npt.NDArray[Any] = np.asarray(self.classes_)[chosen] if by_class else chosen
        if (missing := np.isnan(probabilities).all(axis=1)).any():
            predicted = predicted.astype(object)
            predicted[missing] = None
        return predicted

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy on labelled rows; Pearson's correlation for scores. sample_weight: of each row.

        Rows without text, which have no prediction, are not measured. Of several labels all must be right.
        """
        fine_tuned, rows = self._fitted(), self._rows(X)
        truth = checked_labels(self._labels_of(y, self.classes_), self._target())
        require_one_each(len(rows), len(truth))
        weights = np.ones(len(truth)) if sample_weight is None else checked_weights(sample_weight, len(truth))
        kept = [place for place, row in enumerate(rows) if not row.is_empty(self.task)]
        if not kept:
            raise DataError("no row of X has a text", expected="rows to measure on")
        labelled = list(fine_tuned.as_read(replace(rows[place], label=truth[place]) for place in kept))
        if self._target() == "score":
            decided = fine_tuned.decide(fine_tuned.probabilities(fine_tuned.encode(labelled)))
            return float(pearson(np.array([row.label for row in labelled]), decided, weights[kept]))
        pairs = zip(labelled, fine_tuned.predict(labelled), strict=True)
        if self._target() == "answer":
            right = [row.label == one.output for row, one in pairs]
        else:
            right = [one.label is not None and fine_tuned.labels.matches(row, one.label) for row, one in pairs]
        return float(np.average(right, weights=weights[kept]))

    def save(self, folder: str | Path) -> None:
        """Write a fine-tuned model folder, which `load` and `headwater predict` open on any machine.

        Raises FolderError if the folder has other content.
        """
        fine_tuned = self._fitted()
        plain = self._config().to_dict()  # with NumPy's numbers inside tables as Python's
        values = zip(self.get_params(deep=False), as_list(self.get_params(deep=False).values()), strict=True)
        parameters = {name: plain.get(name, value) for name, value in values if name != "base"}
        base = shipped.find(self.base) if isinstance(self.base, str | Path) else None
        learned: dict[str, Any] = {"classes": [] if self.classes_ is None else self.classes_.tolist()}
        learned |= {"indicator": True} if getattr(self, "indicator_", False) else {}
        stage = Stage(
            Path(expand_home(folder)),
            kind="model",
            config={
                "task": self.task,
                **parameters,
                **learned,
                "meaning": fine_tuned.describe(),
                "weights": fingerprint(fine_tuned.model),
            },
            inputs={"base": base} if base is not None and base.is_dir() else {},
            seed=self.seed,
        )
        if stage.is_complete():
            return
        with stage.write() as work:
            fine_tuned.save(work)
            write_json(work / ESTIMATOR_FILE, {"parameters": parameters, **learned})

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Return the estimator that `save` wrote, or one around a folder of `headwater finetune` or transformers.

        Its `base` is the model that the folder was fine-tuned from, so that `clone` and `cross_val_score` do not
        start from weights that saw the rows; None if that is not recorded. Raises MismatchError if the folder was
        fine-tuned for another task.
        """
        folder = Path(folder)
        fine_tuned = FineTuned.load(folder, device=choose_device("auto", training=False)).for_task(cls.task)
        labels = fine_tuned.labels
        parameters = cls._parameters_for(labels.target)
        if parameters is None or (fine_tuned.task != cls.task and not fine_tuned.templates):
            regress = fine_tuned.task == "classify" and labels.target == "score"
            task = "regress" if regress else fine_tuned.task
            raise MismatchError(f"{folder} was fine-tuned for task {task}", expected=f"that of {cls.__name__}")
        path = folder / ESTIMATOR_FILE
        saved = parse_part(_Saved, read_json(path), path) if path.is_file() else _Saved()
        known = {"compose": fine_tuned.compose} | parameters
        shared = {k: v for k, v in saved.parameters.items() if k not in {"multi_label", "target"}}
        try:
            estimator = cls(original_base(folder)).set_params(**shared | known)
        except ValueError as error:  # of a later version
            raise FolderError(f"{path} is damaged: {error}") from None
        estimator.fine_tuned_ = fine_tuned
        classes = saved.classes or [*map(_TYPES.get(saved.label_type, str), labels.names)]
        estimator.classes_ = np.array(classes) if classes else None
        estimator.n_features_in_, estimator.indicator_ = 1, saved.indicator
        return estimator

    def __sklearn_clone__(self) -> Self:
        """Return an unfitted estimator that shares the parameters: a loaded base is never changed."""
        return type(self)(**self.get_params(deep=False))

    def __sklearn_tags__(self) -> Any:
        tags, scores = super().__sklearn_tags__(), self._target() == "score"
        tags.estimator_type = "regressor" if scores else "classifier"
        tags.classifier_tags = None if scores else ClassifierTags(multi_label=self._target() == "labels")
        tags.regressor_tags = RegressorTags() if scores else None
        tags.target_tags.required = True
        tags.input_tags.two_d_array, tags.input_tags.string = False, True
        return tags

    def _segments(self, row: Any, number: int) -> tuple[str, ...]:
        raise NotImplementedError

    @classmethod
    def _parameters_for(cls, target: Target) -> dict[str, Any] | None:
        """Return the parameters of an estimator of this class for these labels; None if it does not have them."""
        return {} if target == cls.fixed_target else None

    def _target(self) -> Target:
        assert self.fixed_target is not None
        return self.fixed_target

    def _labels_of(self, y: Any, known: npt.NDArray[Any] | None = None) -> list[Any]:
        """Return labels as a list; `known`: the classes of the columns of an indicator matrix."""
        return as_labels(y)

    def _learn_labels(
        self, rows: list[Raw], y: list[Any], start: FineTuned | None
    ) -> tuple[Labels, npt.NDArray[Any] | None]:
        """Return what the outputs mean, and the classes as in y; answers' numbers from 0; None for scores.

        Classes have the order of `np.unique`, which scikit-learn's metrics assume; with `start` its order, and new
        ones last.
        """
        target = self._target()
        if target == "answer":
            return Labels(target="answer"), np.arange(max(y) + 1)  # y counts from 0, whatever `start` read
        labels = start.labels.extended(rows, "y") if start else learn_labels(rows, self.task, target, "y")
        if target == "score":
            return labels, None
        whole = [compose(label) if self.compose and isinstance(label, str) else label for label in y]
        by_name = {class_name(label): label for label in whole}
        if start is not None:
            new = [by_name[class_name(name)] for name in labels.names[len(start.labels.names) :]]
            return labels, np.array([*as_list(self.classes_), *new])
        classes, order = np.unique([by_name[class_name(name)] for name in labels.names], return_index=True)
        return replace(labels, names=[labels.names[at] for at in order]), classes

    def _name(self, label: Any) -> str:
        """Return the name of a label's class, in composed form unless `compose` is off."""
        return compose(class_name(label)) if self.compose else class_name(label)

    def _rows(self, X: Any) -> list[Raw]:
        return [Raw(self._segments(row, number), None, number) for number, row in enumerate(as_list(X), 1)]

    def _base(self) -> tuple[Any, Any]:
        if self.base is None:
            raise UsageError(
                f"{type(self).__name__} has no base model",
                repair=f'Give a model folder: {type(self).__name__}(base="runs/small/model")',
            )
        if isinstance(self.base, str | Path):
            folder = shipped.resolve(self.base)
            return load_model(folder, device=choose_device(self.device)), load_tokenizer(folder)
        if not hasattr(self.base, "tokenizer"):
            raise UsageError(
                f"base is of the type {type(self.base).__name__}",
                expected="a model folder, a model that ships, or what hw.load returned",
            )
        return self.base.model, self.base.tokenizer

    def _config(self) -> FinetuneConfig:
        parameters = {k: v for k, v in self.get_params(deep=False).items() if k not in _OWN and v is not None}
        return FinetuneConfig.build(
            parameters | {"task": self.task, "target": self._target()}, source=type(self).__name__
        )

    def _fitted(self) -> FineTuned:
        if not hasattr(self, "fine_tuned_"):
            raise NotFitted(f"this {type(self).__name__} is not fitted", repair="Call fit(X, y) first")
        return self.fine_tuned_


_TYPES: dict[str, Callable[[str], Any]] = {"int": int, "float": float, "bool": "true".__eq__}
