"""The four inputs of GPT-1 as estimators, and a regressor: each says what its rows and labels are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from headwater import shipped
from headwater.datasets.rows import Raw
from headwater.errors import DataError
from headwater.finetune.baseline import ClassWeight
from headwater.finetune.estimator import Estimator
from headwater.finetune.examples import Labels, number_of
from headwater.train.loop import Precision


class Classifier(Estimator):
    """Text to class: X is a column of texts."""

    task = "classify"

    def _segments(self, row: Any, number: int) -> tuple[str, ...]:
        if isinstance(row, list | tuple) and len(row) == 1:
            row = row[0]
        return (_text(row, number),)


class Regressor(Classifier):
    """Text to a score: X is a column of texts, y one of numbers."""

    scores = True

    def _target(self) -> Literal["class", "score"] | None:
        return "score"

    def _names(self, y: list[Any]) -> list[str | int | float]:
        return _scores(y)

    def _classes(self, labels: Labels, y: list[Any]) -> npt.NDArray[Any] | None:
        return None

    def _restored(self, labels: Labels, label_type: str) -> npt.NDArray[Any] | None:
        return None


class Entailment(Estimator):
    """Premise and hypothesis to class: X is a column of pairs, or a table of two columns."""

    task = "entail"

    def _segments(self, row: Any, number: int) -> tuple[str, ...]:
        return _pair(row, number)


class Similarity(Estimator):
    """Two texts in no order to a score: X is a column of pairs. `target="class"` for paraphrase or not."""

    task = "similarity"

    def __init__(
        self,
        base: Any = shipped.DEFAULT,
        *,
        target: Literal["score", "class"] = "score",
        epochs: float = 3,
        learning_rate: float | None = None,
        batch_size: int = 32,
        lambda_lm: float = 0.5,
        dropout: float = 0.1,
        validation_share: float = 0.1,
        patience: int | None = None,
        freeze: bool = False,
        from_scratch: bool = False,
        class_weight: ClassWeight = None,
        precision: Precision = "auto",
        device: str = "auto",
        verbose: bool = False,
        seed: int = 1,
    ) -> None:
        super().__init__(
            base,
            epochs=epochs,
            learning_rate=learning_rate,
            batch_size=batch_size,
            lambda_lm=lambda_lm,
            dropout=dropout,
            validation_share=validation_share,
            patience=patience,
            freeze=freeze,
            from_scratch=from_scratch,
            class_weight=class_weight,
            precision=precision,
            device=device,
            verbose=verbose,
            seed=seed,
        )
        self.target = target

    def _segments(self, row: Any, number: int) -> tuple[str, ...]:
        return _pair(row, number)

    def _target(self) -> Literal["class", "score"] | None:
        return self.target

    def _names(self, y: list[Any]) -> list[str | int | float]:
        if self.target == "class":
            return super()._names(y)
        return _scores(y)

    def _classes(self, labels: Labels, y: list[Any]) -> npt.NDArray[Any] | None:
        return None if labels.target == "score" else super()._classes(labels, y)

    def _restored(self, labels: Labels, label_type: str) -> npt.NDArray[Any] | None:
        return None if labels.target == "score" else super()._restored(labels, label_type)


class MultipleChoice(Estimator):
    """Context, question and answers to the number of the right answer, from 0.

    A row of X is a dictionary with these keys, or (context, question, answers).
    """

    task = "choice"

    def _segments(self, row: Any, number: int) -> tuple[str, ...]:
        if isinstance(row, Mapping):
            row = (row.get("context", ""), row.get("question", ""), row.get("answers"))
        if not isinstance(row, list | tuple) or len(row) != 3 or isinstance(row[2], str):
            raise DataError(f"X row {number} is no choice", expected="(context, question, [answers])")
        answers = list(row[2]) if row[2] is not None else []
        if len(answers) < 2:
            raise DataError(f"X row {number} has {len(answers)} answers", expected="two or more")
        if any(not isinstance(answer, str) or not answer.strip() for answer in answers):
            raise DataError(f"X row {number} has a missing answer", repair="Fill it in, or remove that row")
        return (_text(row[0], number), _text(row[1], number), *answers)

    def _target(self) -> Literal["class", "score"] | None:
        return None

    def _names(self, y: list[Any]) -> list[str | int | float]:
        for number, label in enumerate(y, 1):
            if not isinstance(label, int) or label < 0:
                raise DataError(f"y has {label!r} in row {number}", expected="the right answer's number, from 0")
        return list(y)

    def _classes(self, labels: Labels, y: list[Any]) -> npt.NDArray[Any] | None:
        return np.arange(max(y) + 1)

    def _labels(self, rows: list[Raw]) -> Labels:
        return Labels(target="answer")

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """(rows,) int64: the number of the likeliest answer."""
        return self._fitted().decide(self.predict_proba(X)).astype(np.int64)

    def _restored(self, labels: Labels, label_type: str) -> npt.NDArray[Any] | None:
        return None


def _scores(y: list[Any]) -> list[str | int | float]:
    for number, label in enumerate(y, 1):
        if number_of(label) is None:
            raise DataError(f"y has {label!r} in row {number}", expected="a number")
    return [float(label) for label in y]


def _text(value: Any, number: int) -> str:
    if not isinstance(value, str):
        seen = "None" if value is None else f"a {type(value).__name__}"
        raise DataError(f"X has {seen} in row {number}", expected="text", repair="Leave that row out")
    return value


def _pair(row: Any, number: int) -> tuple[str, ...]:
    if isinstance(row, str) or not hasattr(row, "__len__") or len(row) != 2:
        raise DataError(f"X row {number} is no pair of texts", expected="(first, second)")
    return (_text(row[0], number), _text(row[1], number))
