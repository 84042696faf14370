"""The four inputs of GPT-1 as estimators, and a regressor, with scikit-learn's conventions.

    clf = hw.Classifier().fit(texts, labels)
    clf.predict(texts); clf.predict_proba(texts); clf.save(folder); hw.Classifier.load(folder)

Parameters are stored unchanged and learned attributes end in an underscore, so `clone`, `cross_val_score`,
`GridSearchCV` and `Pipeline` work. Texts are lists, NumPy arrays, pandas or polars columns.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
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
from headwater.display import counted
from headwater.errors import DataError, FolderError, MismatchError, UsageError
from headwater.finetuning.learning.bases import choose_base, open_base
from headwater.finetuning.learning.config import FinetuneConfig, Recipe
from headwater.finetuning.learning.examples import encode
from headwater.finetuning.learning.fit import fit
from headwater.finetuning.learning.parts import arrange_rows
from headwater.finetuning.learning.train import Reporter
from headwater.finetuning.model.fine_tuned import FineTuned, original_base, parse_part
from headwater.finetuning.model.inputs import Encoded
from headwater.finetuning.results.explanation import explain
from headwater.finetuning.results.metrics import pearson
from headwater.finetuning.rows.arrays import (
    as_label_sets,
    as_labels,
    as_list,
    checked_labels,
    checked_weights,
    is_missing,
    require_one_each,
)
from headwater.finetuning.rows.labels import Labels, learn_labels
from headwater.finetuning.rows.row import Raw, Target, TaskName, class_name
from headwater.reading import compose, read_json
from headwater.storage import SILENT, PlainProgress, Stage, require_absent, write_json
from headwater.training import OnUpdate, TrainingPrecision

ESTIMATOR_FILE = "estimator.json"
_OWN = {"base", "verbose", "multi_label"}  # parameters that are not keys of FinetuneConfig


class _Saved(Config):
    """The content of ESTIMATOR_FILE."""

    parameters: dict[str, Any] = Field(default_factory=dict)
    classes: list[str | bool | int | float] = Field(default_factory=list)
    indicator: bool = False


class NotFitted(UsageError, NotFittedError):  # type: ignore[misc]
    """An estimator was used before `fit`."""


@dataclass(eq=False, repr=False)
class Estimator(BaseEstimator):  # type: ignore[misc]
    """Base class of the five estimators.

    base: a model folder, a model that ships, the encoder "minilm", or what `hw.load` returned; None for the best
    of those of this machine, see `base_`. recipe: "auto", the mixture of TF-IDF, the base's features and the tuned
    base, see `weights_`; "tfidf", "probe", "lp-ft" or "gpt1", the paper's, for one of them. The other parameters
    are those of `headwater finetune`, with the recipe's defaults for None. validation_share: the share of the
    rows that is held out; by default none of few rows, and a tenth of many. class_weight: "balanced". verbose:
    print the progress on stderr.
    """

    task: ClassVar[TaskName] = "classify"
    # The kinds of labels, and the parameters that choose each.
    targets: ClassVar[Mapping[Target, Mapping[str, Any]]] = {"class": {}}

    base: Any = None
    _: KW_ONLY
    recipe: Recipe = "auto"
    epochs: float | None = None
    learning_rate: float | None = None
    batch_size: int = 32
    lambda_lm: float = 0.5
    dropout: float = 0.1
    validation_share: float | None = None
    patience: int | None = None
    from_scratch: bool = False
    class_weight: Literal["balanced"] | None = None
    precision: TrainingPrecision = "auto"
    device: str = "auto"
    verbose: bool = False
    seed: int = 1

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, on_update: OnUpdate | None = None) -> Self:
        """Learn rows X with labels y; return self.

        sample_weight: the weight of each row in the loss. on_update: called after every update of a training with
        its step, loss, learning rate and other figures, as a dictionary.

        Raises DataError, naming the row, for rows that cannot be learned from.
        """
        config, target = self._config(), self._target()
        y, columns = as_label_sets(y) if target == "labels" else (as_labels(y), None)
        progress = PlainProgress() if self.verbose else SILENT
        names, rows = checked_labels(y, target), self._rows(X)
        require_one_each(len(rows), len(names))
        if len(rows) == 1:
            raise DataError("there is only one sample", expected="rows to train on and rows to measure on")
        labelled = [replace(row, label=name) for row, name in zip(rows, names, strict=True)]
        classes: npt.NDArray[Any] | None = None

        def learn(usable: list[Raw]) -> Labels:
            nonlocal classes
            labels, classes = self._learn_labels(usable, y, columns)
            return labels

        parts = arrange_rows(config, {"train": ("X", labelled)}, learn)
        base = choose_base(config, parts, progress) if self.base is None else open_base(config, self.base)
        weights = None if sample_weight is None else checked_weights(sample_weight, len(rows))
        examples = encode(parts, base, config, weights)
        fitted = fit(examples, config, Reporter(progress, on_update=on_update))
        self.fine_tuned_, self.classes_ = fitted.model, classes
        self.recipe_, self.weights_, self.base_ = fitted.recipe, fitted.weights, base.name
        self.learning_rate_ = fitted.training.learning_rate if fitted.training else None
        self.curve_ = fitted.training.curve if fitted.training else []
        self.n_features_in_, self.indicator_ = 1, columns is not None
        self._warn_of(examples.rows_seen, examples.seen, len(rows) - len(parts.train.rows))
        return self

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

        Warns of rows without text, whose probabilities mean nothing, and of rows that were cut (`n_cut_`).
        """
        rows, fine_tuned = self._rows(X), self._fitted()
        if not rows:
            return np.zeros((0, fine_tuned.labels.outputs), dtype=np.float32)
        encoded = fine_tuned.encode(rows)
        self._warn_of(rows, encoded, 0)
        return fine_tuned.probabilities(encoded)

    def _warn_of(self, rows: list[Raw], encoded: Encoded, left_out: int) -> None:
        """Set `n_cut_` and `n_without_text_`, and warn if they are not 0."""
        self.n_cut_ = int(np.count_nonzero(encoded.cut))
        self.n_without_text_ = left_out or sum(row.is_empty(self.task) for row in rows)
        if self.n_cut_ and {*self.weights_} - {"tfidf"}:
            first = rows[int(np.flatnonzero(encoded.cut)[0])].row
            warnings.warn(
                f"{counted(self.n_cut_, 'text')} did not fit the base's context and lost their ends, the first of "
                f"them row {first:,}",
                stacklevel=3,
            )
        if self.n_without_text_:
            use = "left out" if left_out else "predicted as an empty text"
            warnings.warn(f"{counted(self.n_without_text_, 'row')} without text: {use}", stacklevel=3)

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return (rows,): the most probable class, as in y; the expected score; or the answer's number, from 0.

        Of several labels (rows,) tuples, or (rows, labels) of 0 and 1 if y was such a matrix.
        """
        probabilities = self.predict_proba(X)
        decided, target = self._fitted().decide(probabilities), self._fitted().labels.target
        if target == "score":
            return decided
        chosen = decided.astype(np.int64)
        if target == "answer" or self.classes_ is None or self.indicator_:
            return chosen
        classes = np.asarray(self.classes_)
        if target == "class":
            predicted: npt.NDArray[Any] = classes[chosen]
            return predicted
        sets = np.empty(len(chosen), dtype=object)
        for row, has in enumerate(chosen):
            sets[row] = tuple(classes[has == 1].tolist())
        return sets

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy on labelled rows; Pearson's correlation for scores. sample_weight: of each row.

        Rows without text are not measured. Of several labels, all must be right.
        """
        fine_tuned, rows, target = self._fitted(), self._rows(X), self._target()
        labels = as_label_sets(y, self.classes_)[0] if target == "labels" else as_labels(y)
        truth = checked_labels(labels, target)
        require_one_each(len(rows), len(truth))
        weights = np.ones(len(truth)) if sample_weight is None else checked_weights(sample_weight, len(truth))
        indices = [index for index, row in enumerate(rows) if not row.is_empty(self.task)]
        if not indices:
            raise DataError("no row of X has a text", expected="rows to measure on")
        labelled = [replace(rows[index], label=truth[index]).composed() for index in indices]
        if target == "score":
            decided = fine_tuned.decide(fine_tuned.probabilities(fine_tuned.encode(labelled)))
            return float(pearson(np.array([row.label for row in labelled]), decided, weights[indices]))
        pairs = zip(labelled, fine_tuned.predict(labelled), strict=True)
        if target == "answer":
            right = [row.label == prediction.output for row, prediction in pairs]
        else:
            answers = ((row, prediction.label) for row, prediction in pairs)
            right = [label is not None and fine_tuned.labels.matches(row, label) for row, label in answers]
        return float(np.average(right, weights=weights[indices]))

    def save(self, folder: str | Path) -> None:
        """Write a new fine-tuned model folder, which `load` and `headwater predict` open on any machine.

        Raises FolderError if the folder exists.
        """
        fine_tuned, folder = self._fitted(), Path(folder).expanduser()
        require_absent(folder)
        plain = self._config().to_dict()  # with NumPy's numbers inside tables as Python's
        values = zip(self.get_params(deep=False), as_list(self.get_params(deep=False).values()), strict=True)
        parameters = {name: plain.get(name, value) for name, value in values if name != "base"}
        named = self.base if self.base is not None else getattr(self, "base_", None)
        base = shipped.find(named) if isinstance(named, str | Path) else None
        learned: dict[str, Any] = {"classes": [] if self.classes_ is None else self.classes_.tolist()}
        learned |= {"indicator": True} if self.indicator_ else {}
        stage = Stage(
            folder,
            kind="model",
            config={"task": self.task, **parameters, **learned},
            inputs={"base": base} if base is not None and base.is_dir() else {},
        )
        with stage.write() as work:
            fine_tuned.save(work)
            write_json(work / ESTIMATOR_FILE, {"parameters": parameters, **learned})

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Return the estimator that `save` wrote, or one around a folder of `headwater finetune`.

        Its `base` is the model that the folder was fine-tuned from, so that `clone` and `cross_val_score` do not
        start from weights that saw the rows; None if that is not recorded. Raises MismatchError if the folder was
        fine-tuned for another task.
        """
        folder = Path(folder).expanduser()
        fine_tuned = FineTuned.load(folder, device=choose_device("auto", training=False))
        labels = fine_tuned.labels
        parameters = cls.targets.get(labels.target)
        if parameters is None or fine_tuned.task != cls.task:
            regress = fine_tuned.task == "classify" and labels.target == "score"
            task = "regress" if regress else fine_tuned.task
            raise MismatchError(f"{folder} was fine-tuned for task {task}", expected=f"a model of {cls.__name__}")
        path = folder / ESTIMATOR_FILE
        saved = parse_part(_Saved, read_json(path), path) if path.is_file() else _Saved()
        shared = {k: v for k, v in saved.parameters.items() if k not in {"multi_label", "target"}}
        try:
            estimator = cls(original_base(folder)).set_params(**{**shared, **parameters})
        except ValueError as error:
            raise FolderError(f"{path} is damaged: {error}") from None
        estimator.fine_tuned_ = fine_tuned
        classes = saved.classes or labels.names
        estimator.classes_ = np.array(classes) if classes else None
        estimator.weights_ = fine_tuned.description.weights
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
        """Return the texts of a row of X."""
        if isinstance(row, list | tuple) and len(row) == 1:
            row = row[0]
        return (_text(row, number),)

    def _target(self) -> Target:
        """Return the kind of label that the parameters choose."""
        own = vars(self)
        chosen = (target for target, parameters in self.targets.items() if parameters.items() <= own.items())
        return next(chosen, own.get("target", "class"))  # the configuration refuses an invalid target

    def _learn_labels(
        self, rows: list[Raw], y: list[Any], columns: list[Any] | None
    ) -> tuple[Labels, npt.NDArray[Any] | None]:
        """Return what the outputs mean, and the classes as in y; answers' numbers from 0; None for scores.

        columns: those of an indicator matrix. Classes have the order of `np.unique`, as scikit-learn expects.
        """
        target = self._target()
        if target == "answer":
            return Labels(target="answer"), np.arange(max(y) + 1)
        if target == "labels":
            values = [label for row_labels in y for label in row_labels] if columns is None else columns
            by_name = {compose(class_name(label)): label for label in values}
            labels = Labels(target="labels", names=[*by_name])
            if columns is None:
                labels = learn_labels(rows, self.task, "labels", "y")
            return labels, np.array([by_name[name] for name in labels.names])
        labels = learn_labels(rows, self.task, target, "y")
        if target == "score":
            return labels, None
        whole = [compose(label) if isinstance(label, str) else label for label in y]
        by_name = {class_name(label): label for label in whole}
        classes, order = np.unique(
            _as_array([by_name[class_name(name)] for name in labels.names]), return_index=True
        )
        return replace(labels, names=[labels.names[at] for at in order]), classes

    def _rows(self, X: Any) -> list[Raw]:
        return [Raw(self._segments(row, number), None, number) for number, row in enumerate(as_list(X), 1)]

    def _config(self) -> FinetuneConfig:
        parameters = {k: v for k, v in self.get_params(deep=False).items() if k not in _OWN and v is not None}
        return FinetuneConfig.build(
            parameters | {"task": self.task, "target": self._target()}, source=type(self).__name__
        )

    def _fitted(self) -> FineTuned:
        if not hasattr(self, "fine_tuned_"):
            raise NotFitted(f"this {type(self).__name__} is not fitted", repair="Call fit(X, y) first")
        return self.fine_tuned_


def _as_array(labels: list[Any]) -> npt.NDArray[Any]:
    """Return labels as an array that keeps their values: integers beyond int64 as unsigned ones."""
    whole = all(isinstance(label, int) and not isinstance(label, bool) for label in labels)
    return np.array(labels, np.uint64 if whole and max(labels) >= 1 << 63 and min(labels) >= 0 else None)


class Regressor(Estimator):
    """Text to a score: X is a column of texts, y one of numbers."""

    targets: ClassVar[Mapping[Target, Mapping[str, Any]]] = {"score": {}}


@dataclass(eq=False, repr=False)
class Classifier(Estimator):
    """Text to class: X is a column of texts.

    With `multi_label=True` a row has any number of labels: y is a list of lists, or an indicator matrix (rows,
    labels) of 0 and 1, as scikit-learn's MultiLabelBinarizer returns it, whose columns `classes_` names. `predict`
    returns the form that `fit` was given: tuples, or such a matrix. A label is predicted if its probability is at
    least one half.
    """

    targets: ClassVar[Mapping[Target, Mapping[str, Any]]] = {
        "class": {"multi_label": False},
        "labels": {"multi_label": True},
    }
    multi_label: bool = False


class Entailment(Estimator):
    """Premise and hypothesis to class: X is a column of pairs, or a table of two columns."""

    task: ClassVar[TaskName] = "entail"

    def _segments(self, row: Any, number: int) -> tuple[str, ...]:
        if not isinstance(row, list | tuple | np.ndarray) or len(row) != 2:
            raise DataError(f"X row {number} is not a pair of texts", expected="(first, second)")
        return (_text(row[0], number), _text(row[1], number))


@dataclass(eq=False, repr=False)
class Similarity(Entailment):
    """Two texts in no order to a score: X is a column of pairs. `target="class"` for paraphrase or not."""

    task = "similarity"
    targets: ClassVar[Mapping[Target, Mapping[str, Any]]] = {
        "score": {"target": "score"},
        "class": {"target": "class"},
    }
    target: Literal["score", "class"] = "score"


class MultipleChoice(Estimator):
    """Context, question and answers to the number of the right answer, from 0.

    A row of X is a dictionary with these keys, or (context, question, answers).
    """

    task = "choice"
    targets: ClassVar[Mapping[Target, Mapping[str, Any]]] = {"answer": {}}

    def _segments(self, row: Any, number: int) -> tuple[str, ...]:
        if isinstance(row, Mapping):
            row = (row.get("context", ""), row.get("question", ""), row.get("answers"))
        if not isinstance(row, list | tuple) or len(row) != 3 or isinstance(row[2], str):
            raise DataError(f"X row {number} is not a choice", expected="(context, question, [answers])")
        answers = list(row[2]) if hasattr(row[2], "__iter__") else []
        if len(answers) < 2:
            raise DataError(f"X row {number} has {len(answers)} answers", expected="two or more")
        if any(not isinstance(answer, str) or not answer.strip() for answer in answers):
            raise DataError(f"X row {number} has a missing answer", repair="Fill it in, or remove that row")
        return (_text(row[0], number), _text(row[1], number), *answers)


def _text(value: Any, number: int) -> str:
    """Return a text; empty for a missing value: None, or NaN as in pandas."""
    if is_missing(value):
        return ""
    if isinstance(value, list | tuple):
        raise DataError(
            f"X has {counted(len(value), 'column')}, as row {number} shows",
            expected="one column of texts",
            repair="Give one, as X['text'], or join their texts",
        )
    if not isinstance(value, str):
        raise DataError(f"X has a value of type {type(value).__name__} in row {number}", expected="text")
    return value
