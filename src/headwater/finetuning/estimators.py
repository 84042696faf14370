"""The four inputs of GPT-1 as estimators, and a regressor: each defines its rows and labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from headwater.errors import DataError, counted
from headwater.finetuning.estimator import Estimator
from headwater.finetuning.rows import TaskName


class Classifier(Estimator):
    """Text to class: X is a column of texts."""

    task = "classify"

    def _segments(self, row: Any, number: int) -> tuple[str, ...]:
        if isinstance(row, list | tuple) and len(row) == 1:
            row = row[0]
        return (_text(row, number),)


class Regressor(Classifier):
    """Text to a score: X is a column of texts, y one of numbers."""

    fixed_target = "score"


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
