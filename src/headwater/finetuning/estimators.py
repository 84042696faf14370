"""The four inputs of GPT-1 as estimators, and a regressor: each defines its rows and labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from headwater.display import counted
from headwater.errors import DataError
from headwater.finetuning.estimator import Estimator
from headwater.finetuning.model.fine_tuned import FineTuned
from headwater.finetuning.rows.arrays import as_label_sets, as_list
from headwater.finetuning.rows.labels import Labels, learn_labels
from headwater.finetuning.rows.row import Raw, Target, TaskName
from headwater.training import OnUpdate


class _OneText(Estimator):
    task: ClassVar[TaskName] = "classify"

    def _segments(self, row: Any, number: int) -> tuple[str, ...]:
        if isinstance(row, list | tuple) and len(row) == 1:
            row = row[0]
        return (_text(row, number),)


class Regressor(_OneText):
    """Text to a score: X is a column of texts, y one of numbers."""

    fixed_target = "score"


@dataclass(eq=False, repr=False)
class Classifier(_OneText):
    """Text to class: X is a column of texts.

    With `multi_label=True` a row has any number of labels: y is a list of lists, or an indicator matrix (rows,
    labels) of 0 and 1, as scikit-learn's MultiLabelBinarizer returns it, whose columns `classes_` names. `predict`
    returns the form that `fit` was given: tuples, or such a matrix. A label is predicted if its probability is at
    least one half.
    """

    multi_label: bool = False

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, on_update: OnUpdate | None = None) -> Self:
        """Fine-tune the base on texts X with labels y; see `Estimator.fit`."""
        self._columns = as_label_sets(y)[1] if self.multi_label else None
        super().fit(X, y, sample_weight, on_update=on_update)
        self.indicator_ = self._columns is not None
        return self

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return (rows,) classes, as in y; of several labels (rows,) tuples or (rows, labels) of 0 and 1.

        A row without text has no prediction: None, or NaN in a matrix.
        """
        if not self.multi_label:
            return super().predict(X)
        probabilities = self.predict_proba(X)
        decided = self._fitted().decide(probabilities)
        missing = np.asarray(np.isnan(probabilities).all(axis=1))
        if self.indicator_:
            decided[missing] = np.nan
            return decided if missing.any() else decided.astype(np.int64)
        sets = np.empty(len(decided), dtype=object)
        for row, has in enumerate(decided):
            sets[row] = None if missing[row] else tuple(np.asarray(self.classes_)[has == 1].tolist())
        return sets

    @classmethod
    def _parameters_for(cls, target: Target) -> dict[str, Any] | None:
        return {"multi_label": target == "labels"} if target in ("class", "labels") else None

    def _target(self) -> Target:
        return "labels" if self.multi_label else "class"

    def _labels_of(self, y: Any, known: npt.NDArray[Any] | None = None) -> list[Any]:
        return (
            as_label_sets(y, () if known is None else known.tolist())[0]
            if self.multi_label
            else super()._labels_of(y)
        )

    def _learn_labels(
        self, rows: list[Raw], y: list[Any], start: FineTuned | None
    ) -> tuple[Labels, npt.NDArray[Any] | None]:
        if not self.multi_label:
            return super()._learn_labels(rows, y, start)
        given = [label for one in y for label in one] if self._columns is None else self._columns
        by_name = {self._name(label): label for label in given}
        if start is not None:
            labels = start.labels.extended(rows, "y")
            new = [by_name[name] for name in labels.names[len(start.labels.names) :]]
            return labels, np.array([*as_list(self.classes_), *new])
        if self._columns is None:
            labels = learn_labels(rows, self.task, "labels", "y")
        else:
            labels = Labels(target="labels", names=[*by_name])
        return labels, np.array([by_name[name] for name in labels.names])


class Entailment(Estimator):
    """Premise and hypothesis to class: X is a column of pairs, or a table of two columns.

    `load` opens a classifier of transformers for pairs too, and `Similarity.load` its regression of pairs.
    """

    task: ClassVar[TaskName] = "entail"

    def _segments(self, row: Any, number: int) -> tuple[str, ...]:
        if not isinstance(row, list | tuple | np.ndarray) or len(row) != 2:
            raise DataError(f"X row {number} is not a pair of texts", expected="(first, second)")
        return (_text(row[0], number), _text(row[1], number))


@dataclass(eq=False, repr=False)
class Similarity(Entailment):
    """Two texts in no order to a score: X is a column of pairs. `target="class"` for paraphrase or not."""

    task = "similarity"
    fixed_target = None
    target: Literal["score", "class"] = "score"

    @classmethod
    def _parameters_for(cls, target: Target) -> dict[str, Any] | None:
        return {"target": target} if target in ("score", "class") else None

    def _target(self) -> Target:
        return self.target


class MultipleChoice(Estimator):
    """Context, question and answers to the number of the right answer, from 0.

    A row of X is a dictionary with these keys, or (context, question, answers).
    """

    task = "choice"
    fixed_target = "answer"

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
    if value is None or value != value or type(value).__name__ == "NAType":
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
