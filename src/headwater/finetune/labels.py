"""A task's rows: which columns it reads, what its labels mean, and what is wrong with a row.

Columns are named by the user or found by name. Class names are kept unchanged; a score becomes soft labels over
integer levels (STS-B as GPT-1's code encodes it, after Tai et al. 2015, section 4.2). `storage.tables` reads the
files.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from headwater.config import Config
from headwater.datasets.rows import Raw, Target, Task
from headwater.errors import DataError, nearest
from headwater.storage.files import parse_json
from headwater.storage.tables import Row, open_table

if TYPE_CHECKING:
    from headwater.finetune.inputs import Encoded

# Common names of columns, the likeliest first.
_NAMES: dict[str, tuple[str, ...]] = {
    "text": ("text", "sentence", "document", "review", "content", "comment", "body", "message", "title"),
    "premise": ("premise", "sentence1", "text1", "text_a", "question1", "first", "source", "question"),
    "hypothesis": ("hypothesis", "sentence2", "text2", "text_b", "question2", "second", "target", "sentence"),
    "context": ("context", "article", "passage", "story"),
    "question": ("question", "query"),
    "answers": ("answers", "options", "choices", "endings"),
    "label": ("label", "labels", "class", "category", "gold_label", "sentiment", "score", "similarity", "answer"),
}
# Numbered or lettered columns of one answer each: answer1, ending0, choice_a.
_ANSWER_STEMS = ("answer", "option", "choice", "ending")
_ROLES: dict[Task, tuple[str, ...]] = {
    "classify": ("text",),
    "entail": ("premise", "hypothesis"),
    "similarity": ("premise", "hypothesis"),
    "choice": ("context", "question", "answers"),
}
# Scores that span more integer levels than this are spread over six, as STS-B's.
_MOST_LEVELS = 21
# Ratings are small: a larger number is a mistake, and float32 cannot distinguish integers above 2^24.
_LARGEST_SCORE = 1e6
_WHOLE = re.compile(r"^(-?(?:0|[1-9][0-9]*))\.0+$")
_NO_LABEL = {"", "-"}  # "-" marks rows without a majority label in SNLI


class Columns(Config):
    """Names of the columns to read; None to find them by name."""

    text: str | None = None
    """Column of the text to classify."""
    premise: str | None = None
    """Column of the first text."""
    hypothesis: str | None = None
    """Column of the second text."""
    context: str | None = None
    """Column of the text that the question is about."""
    question: str | None = None
    """Column of the question."""
    answers: list[str] | None = None
    """Columns of the answers, or one with a list."""
    label: str | None = None
    """Column of the label."""


class Labels(Config):
    """What a model's outputs mean.

    names: class names in order of output; levels: ascending scores; first_answer: the number of a choice's first
    answer in numeric labels.
    """

    target: Target
    names: list[str] = Field(default_factory=list)
    levels: list[float] = Field(default_factory=list)
    first_answer: int = 0

    @property
    def outputs(self) -> int:
        """The number of outputs of the head: one for a choice, whose softmax runs over the answers."""
        return {"class": len(self.names), "score": len(self.levels), "answer": 1}[self.target]

    @property
    def output_names(self) -> list[str]:
        """The names of the head's outputs: classes, or levels of a score; none for a choice."""
        return self.names or [f"{level:g}" for level in self.levels]

    def probabilities(self, encoded: Encoded) -> npt.NDArray[np.float32]:
        """Return (examples, outputs or most answers): 1 at the label, or shared by the two levels around a score.

        A row is 0 if its label is unknown.
        """
        known = np.isfinite(encoded.targets)
        targets = np.where(known, encoded.targets, 0)
        columns = int(np.diff(encoded.first).max(initial=1)) if self.target == "answer" else self.outputs
        result = np.zeros((len(targets), columns), dtype=np.float32)
        rows = np.arange(len(targets))
        if self.target != "score":
            result[rows, targets.astype(np.int64)] = known
            return result
        levels = np.array(self.levels)
        below = np.clip(np.searchsorted(levels, targets, side="right") - 1, 0, len(levels) - 2)
        share = (targets - levels[below]) / (levels[below + 1] - levels[below])
        result[rows, below] = (1 - share) * known
        result[rows, below + 1] = share * known
        return result

    def target_of(self, row: Raw, name: str) -> float | None:
        """Return a row's target: the index of its class or answer, or its score; None if it has no label.

        Raises DataError naming the row, of the table `name`, if training did not have the label.
        """
        if row.label is None:
            return None
        where = f"{name} row {row.row:,}"
        if self.target == "answer":
            return float(self._answer_index(row, where))
        if self.target == "score":
            score = number_of(row.label)
            if score is None:
                raise DataError(f"{where} has the score {row.label!r}", expected="a number")
            if not self.levels[0] <= score <= self.levels[-1]:
                raise DataError(
                    f"{where} has the score {score:g}",
                    expected=f"one from {self.levels[0]:g} to {self.levels[-1]:g}, as in training",
                )
            return score
        label = class_name(row.label)
        if label in self.names:
            return float(self.names.index(label))
        numeric = number_of(row.label) is not None
        if numeric != all(number_of(n) is not None for n in self.names):
            kinds = ("a number", "words") if numeric else ("a word", "numbers")
            raise DataError(
                f"{where} has the label {label!r}, {kinds[0]}, but the training labels are {kinds[1]}: "
                f"{_listed(self.names[:8])}",
                repair="Write the labels of both files in the same way",
            )
        raise DataError(
            f"{where} has the label {label!r}, which training did not have; it had {_listed(self.names[:20])}",
            repair="Correct it, or add rows with that label to the training file",
        )

    def matches(self, row: Raw, answer: str | int | float) -> bool:
        """Return whether a row's label is a model's answer: a class, or an answer's number, letter or text."""
        if self.target != "answer":
            return class_name(row.label) == class_name(answer)
        try:
            return self._answer_index(row, "") + self.first_answer == answer
        except DataError:  # the label is none of the answers
            return False

    def _answer_index(self, row: Raw, where: str) -> int:
        answers, label = row.segments[2:], str(row.label)
        number = number_of(row.label)
        if number is not None and number.is_integer():
            index = int(number) - self.first_answer
        elif label in answers:
            index = answers.index(label)
        else:
            index = ord(label.upper()) - ord("A") if len(label) == 1 and label.isalpha() else -1
        if not 0 <= index < len(answers):
            raise DataError(
                f"{where}: the label {row.label!r} is none of the {len(answers)} answers",
                expected=f"{self.first_answer} to {self.first_answer + len(answers) - 1}, a letter, or the answer "
                "itself",
            )
        return index


def read_rows(
    path: Path, task: Task, columns: Columns, *, need_label: bool = True, keep: bool = False
) -> Iterator[Raw]:
    """Yield the rows of a table as a task's texts and label; with `keep` also all their columns.

    Raises DataError naming the row for a missing column, a value that is not text, or a choice without its
    answers. Rows without any text are included, with empty segments.
    """
    table, name = open_table(path), str(path)
    if not any(table.columns):
        raise DataError(f"{path} is empty", expected="a table with a name for each column")
    found = {role: _find(role, task, columns, table.columns, name) for role in _ROLES[task]}
    label = _find("label", task, columns, [c for c in table.columns if c not in _flat(found)], name, need_label)
    for number, row in table.rows:
        where = f"{name} row {number:,}"
        segments: list[str] = []
        for role in _ROLES[task]:
            if role == "answers":
                segments += _answers(row, found[role], where)
            else:
                segments += [_text(row, column, where) for column in found[role]] or [""]
        kept = row if keep else None
        yield Raw(segments=tuple(segments), label=_label(row, label, where), row=number, columns=kept)


def _flat(found: Mapping[str, list[str]]) -> set[str]:
    return {column for names in found.values() for column in names}


def _find(
    role: str, task: Task, columns: Columns, there: Sequence[str], name: str, needed: bool = True
) -> list[str]:
    """Return the columns of a role: one, several for separate answers, none if it may be absent."""
    given = getattr(columns, role)
    if given is not None:
        wanted = given if isinstance(given, list) else [given]
        for column in wanted:
            if column not in there and role == "label" and not needed:
                return []
            if column not in there:
                raise DataError(
                    f"{name} has no column {column!r}; it has {_listed(there)}",
                    repair=nearest(column, there),
                )
        return wanted
    lowered = {column.strip().lower(): column for column in there}
    for candidate in _NAMES[role]:
        if candidate in lowered and not (
            role == "premise" and candidate == "question" and "sentence" not in lowered
        ):
            return [lowered[candidate]]
    if role == "answers":
        for stem in _ANSWER_STEMS:
            numbered = [
                c for c in there if c.lower().startswith(stem) and len(c) <= len(stem) + 2 and c.lower() != stem
            ]
            if len(numbered) >= 2:
                return sorted(numbered, key=lambda column: (len(column), column.lower()))  # 10 after 9
    if role in {"context", "question"}:
        return []  # a story without a question, or a question without a story
    if role == "label" and not needed:
        return []
    raise DataError(
        f"{name} has no column for the {role} of task {task}; it has {_listed(there)}",
        expected=f"a column with a name like {', '.join(_NAMES[role][:3])}",
        repair=f"Name it, as with: --{role} {there[0] if there else 'COLUMN'}",
    )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names) or "none"


def _text(row: Row, column: str, where: str) -> str:
    value = row.get(column)
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "" if isinstance(value, float) and math.isnan(value) else str(value)
    raise DataError(f"{where}: column {column!r} has a {type(value).__name__}", expected="text")


def _answers(row: Row, found: Sequence[str], where: str) -> list[str]:
    if len(found) > 1:
        answers: Any = [row.get(column) for column in found]
    else:
        answers = row.get(found[0])
        if isinstance(answers, str):
            try:
                answers = parse_json(answers)
            except json.JSONDecodeError:
                answers = None
    if not isinstance(answers, list) or len(answers) < 2:
        raise DataError(
            f"{where}: {found[0]!r} is not a list of two or more answers",
            expected='a list, as ["first", "second"], or one column an answer',
        )
    for place, answer in enumerate(answers, 1):
        if answer is None or not str(answer).strip():
            raise DataError(
                f"{where}: answer {place} of {len(answers)} is missing", repair="Fill it in, or remove that row"
            )
    return [str(answer) for answer in answers]


def _label(row: Row, found: Sequence[str], where: str) -> str | int | float | None:
    if not found:
        return None
    value = row.get(found[0])
    if isinstance(value, str):
        value = value.strip()
        return None if value in _NO_LABEL else value
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bool):
        return class_name(value)
    if isinstance(value, int | float):
        return value
    raise DataError(f"{where}: the label is a {type(value).__name__}", expected="a name or a number")


def learn_labels(rows: Sequence[Raw], task: Task, target: Target | None, name: str) -> Labels:
    """Return what the labels of the training rows mean; raise DataError if all are one class or one score."""
    known = [row for row in rows if row.label is not None]
    if not known:
        raise DataError(f"{name} has no labelled row", expected="a label for each row")
    if task == "choice":
        return Labels(target="answer", first_answer=_first_answer(known))
    numbers = [number_of(row.label) for row in known]
    if target is None:
        fractional = any(n is not None and not n.is_integer() for n in numbers)
        target = "score" if task == "similarity" and None not in numbers and fractional else "class"
    if target == "score":
        return Labels(target="score", levels=_levels(known, name))
    names = {class_name(row.label): row for row in known}
    if len(names) < 2:
        only = next(iter(names))
        raise DataError(
            f"{name} has only one class: all {len(known):,} labelled rows are {only!r}",
            expected="rows of at least two classes",
        )
    return Labels(target="class", names=sorted(names, key=class_order))


def _levels(rows: Sequence[Raw], name: str) -> list[float]:
    scores = []
    for row in rows:
        score = number_of(row.label)
        if score is None or abs(score) > _LARGEST_SCORE:
            raise DataError(
                f"{name} row {row.row:,} has the score {str(row.label)[:40]!r}",
                expected=f"a number of at most {_LARGEST_SCORE:,.0f}",
            )
        scores.append(score)
    low, high = math.floor(min(scores)), math.ceil(max(scores))
    if low == high:
        raise DataError(f"{name} has only one score: {scores[0]}", expected="scores that differ")
    if high - low == 1:  # fractions
        return np.linspace(low, high, 6).round(6).tolist()
    if high - low + 1 > _MOST_LEVELS:
        return np.linspace(low, high, 6).tolist()
    return [float(x) for x in range(low, high + 1)]


def _first_answer(rows: Sequence[Raw]) -> int:
    """Return 1 if numeric labels count answers from 1 (none is 0, and one is the number of answers), else 0."""
    numbers = [(number_of(row.label), len(row.segments) - 2) for row in rows]
    return int(all(number != 0 for number, _ in numbers) and any(number == count for number, count in numbers))


def class_name(label: str | int | float | None) -> str:
    """Return the name of a label's class: 1, 1.0, "1" and "1.0" are all "1"; "01" is unchanged; True is "true"."""
    if isinstance(label, bool):
        return str(label).lower()
    return _WHOLE.sub(r"\1", str(label))


def number_of(label: Any) -> float | None:
    """Return a label as a finite number, or None if it is not one."""
    try:
        number = float(label)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def class_order(name: str) -> tuple[float, str]:
    """Return a sort key: numbers first, by value, then words."""
    number = number_of(name)
    return (math.inf if number is None else number, name)
