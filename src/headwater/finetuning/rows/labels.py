"""The meaning of a task's labels.

Class names are kept unchanged; a score becomes soft labels over integer levels (STS-B as GPT-1's code encodes it,
after Tai et al. 2015, section 4.2).
"""

from __future__ import annotations

import math
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from headwater.display import counted
from headwater.errors import DataError
from headwater.finetuning.rows.row import Raw, Target, TaskName, class_name, label_set

if TYPE_CHECKING:
    from headwater.finetuning.model.inputs import Encoded

# Scores that span more integer levels than this are spread over six, as STS-B's.
_MOST_LEVELS = 21
# Prices in won or yen are scores too; float64 distinguishes integers to 2^53.
_LARGEST_SCORE = 1e15
_ALL_DIFFERENT = 10  # rows from which labels that are all different are an identifier
# Names in a message, and characters of each; rows.
_LISTED, _SHOWN, _LISTED_ROWS = 20, 60, 8


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Labels:
    """The class names, scores or answers that the outputs of a fine-tuned model mean.

    names: class names in order of output; levels: ascending scores; first_answer: the number of a choice's first
    answer in numeric labels; answer_texts: whether a choice's labels are the texts of its answers.
    """

    target: Target
    names: list[str] = Field(default_factory=list)
    levels: list[float] = Field(default_factory=list)
    first_answer: int = 0
    answer_texts: bool = False

    @property
    def outputs(self) -> int:
        """The number of outputs of the head: one for a choice, whose softmax runs over the answers."""
        if self.target == "score":
            return len(self.levels)
        return 1 if self.target == "answer" else len(self.names)

    @property
    def output_names(self) -> list[str]:
        """The names of the head's outputs: classes, labels, or levels of a score; none for a choice."""
        return self.names or [f"{level:.12g}" for level in self.levels]

    @cached_property
    def _indices(self) -> dict[str, int]:
        return {class_name(name): index for index, name in enumerate(self.names)}

    def probabilities(self, encoded: Encoded) -> npt.NDArray[np.float32]:
        """Return (examples, outputs or most answers): 1 at the label, or shared by the two levels around a score.

        For several labels (examples, 2 · outputs): 1 for each label of a row, then 1 for each that it lacks.
        A row is 0 if its label is unknown.
        """
        known = encoded.known
        if self.target == "labels":
            has = np.zeros((len(known), self.outputs))
            if known.any():
                has[known] = encoded.targets[known]
            return np.hstack([has, known[:, None] - has]).astype(np.float32)
        targets = np.where(known, encoded.targets, 0)
        columns = int(np.diff(encoded.first).max(initial=1)) if self.target == "answer" else self.outputs
        result = np.zeros((len(targets), columns), dtype=np.float32)
        rows = np.arange(len(targets))
        if self.target != "score":
            result[rows, targets.astype(np.int64)] = known
            return result
        levels = np.array(self.levels)
        targets = np.clip(targets, levels[0], levels[-1])  # of rows that were not trained on
        below = np.clip(np.searchsorted(levels, targets, side="right") - 1, 0, len(levels) - 2)
        share = (targets - levels[below]) / (levels[below + 1] - levels[below])
        result[rows, below] = (1 - share) * known
        result[rows, below + 1] = share * known
        return result

    def targets(self, rows: Sequence[Raw], name: str) -> npt.NDArray[np.float64]:
        """Return `target_of` each row: (rows,), or (rows, outputs) of several labels; NaN without a label."""
        if self.target == "labels":
            targets = np.full((len(rows), self.outputs), np.nan)
            for row, target in zip(rows, targets, strict=True):
                if row.label is not None:
                    target[:] = 0
                    target[[self._index(label, row, name) for label in label_set(row.label)]] = 1
            return targets
        return np.array([self.target_of(row, name) for row in rows], dtype=np.float64)

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
            return score
        if _has_several(row):
            raise _several(row, where)
        return float(self._index(class_name(row.label), row, name))

    def _index(self, label: str, row: Raw, name: str) -> int:
        if (index := self._indices.get(label)) is not None:
            return index
        where, numeric = f"{name} row {row.row:,}", number_of(label) is not None
        if numeric not in {number_of(known) is not None for known in self.names}:
            kinds = ("a number", "words") if numeric else ("a word", "numbers")
            raise DataError(
                f"{where} has the label {label!r}, {kinds[0]}, but the training labels are {kinds[1]}: "
                f"{listed(self.names)}",
                repair="Write the labels of both files in the same way",
            )
        raise DataError(
            f"{where} has the label {label!r}, which training did not have; it had {listed(self.names)}",
            repair="Correct it, or add rows with that label to the training file",
        )

    def as_named(self, label: Any) -> str:
        """Return a row's label in the spelling of the model's names; several are joined."""
        if isinstance(label, list | tuple):
            return ", ".join(map(self.as_named, label)) or "none"
        index = self._indices.get(class_name(label))
        return str(label) if index is None else self.names[index]

    def matches(self, row: Raw, answer: str | int | float | list[str]) -> bool:
        """Return whether a row's label is a model's answer: a class, or an answer's number, letter or text.

        Several labels match in any order, if all are equal.
        """
        if isinstance(answer, list):
            return {*label_set(row.label)} == {*answer}
        if self.target != "answer":
            return class_name(row.label) == class_name(answer)
        try:
            return self._answer_index(row, "") + self.first_answer == answer
        except DataError:  # the label is not one of the answers
            return False

    def _answer_index(self, row: Raw, where: str) -> int:
        answers, label = row.segments[2:], class_name(row.label)
        index = _numbered(row, self.first_answer)
        if label in answers and (self.answer_texts or number_of(row.label) is None):
            return answers.index(label)
        is_letter = len(label) == 1 and label.isascii() and label.isalpha()
        if is_letter and (letter := ord(label.upper()) - ord("A")) < len(answers):
            return letter
        if index is None:
            raise DataError(
                f"{where}: the label {row.label!r} is not one of the {len(answers)} answers",
                expected=f"{self.first_answer} to {self.first_answer + len(answers) - 1}, a letter, or the answer "
                "itself",
            )
        return index


def _numbered(row: Raw, first_answer: int) -> int | None:
    """Return the index of the answer whose number is the row's label; None if no answer has that number."""
    number = number_of(row.label)
    if number is None or not number.is_integer():
        return None
    index = int(number) - first_answer
    return index if 0 <= index < len(row.segments) - 2 else None


def listed(names: Iterable[str]) -> str:
    """Return names in quotes, for messages; at most 20, each cut."""
    names = list(names)
    shown = [repr(name[:_SHOWN]) for name in names[:_LISTED]] + (["…"] if len(names) > _LISTED else [])
    return ", ".join(shown) or "none"


def learn_labels(rows: Sequence[Raw], task: TaskName, target: Target | None, name: str) -> Labels:
    """Return the meaning of the training rows' labels; raise DataError if all are one class or one score.

    Rows with lists have several labels, if `target` does not say otherwise, unless each list has one.
    """
    known = [row for row in rows if row.label is not None]
    if not known:
        raise DataError(f"{name} has no labelled row", expected="a label for each row")
    if task == "choice":
        return _answer_labels(known, name)
    if target is None and any(_has_several(row) for row in known):
        target = "labels"
    if target == "labels":
        return _several_labels(known, name)
    numbers = [number_of(row.label) for row in known]
    if target is None:
        graded = len(set(numbers)) > 2 or any(n is not None and not n.is_integer() for n in numbers)
        target = "score" if task == "similarity" and None not in numbers and graded else "class"
    if target == "score":
        return Labels(target="score", levels=_levels(known, name))
    if listing := next(filter(_has_several, known), None):
        raise _several(listing, f"{name} row {listing.row:,}")
    spellings: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row in known:
        written = row.label if isinstance(row.label, str) else class_name(row.label)
        spellings[class_name(row.label)][written] += 1
    if len(spellings) < 2:
        only = next(iter(spellings))
        raise DataError(
            f"{name} has only one class: {only!r} in {counted(len(known), 'labelled row')}",
            expected="rows of at least two classes",
        )
    if len(spellings) == len(known) >= _ALL_DIFFERENT:
        raise DataError(
            f"{name} has another label in each of its {len(known):,} labelled rows, as {known[0].label!r}",
            expected="classes that several rows have",
            repair="Name the column of the class with --label; for scores use --task regress",
        )
    # In order, each spelled as most of its rows have it: TRUE, 1.0.
    names = [spellings[key].most_common(1)[0][0] for key in sorted(spellings, key=class_order)]
    return Labels(target="class", names=names)


def _several_labels(rows: Sequence[Raw], name: str) -> Labels:
    """Return the labels of rows that may have several; raise DataError if none has more than one."""
    sets = [label_set(row.label) for row in rows]
    names = sorted({label for row_labels in sets for label in row_labels}, key=class_order)
    if len(names) < 2:
        raise DataError(f"{name} has only the label {listed(names)}", expected="two or more labels")
    if all(len(row_labels) == 1 for row_labels in sets):
        lists = [row for row in rows if isinstance(row.label, tuple)]
        if 0 < len(lists) < len(rows):
            raise DataError(
                f"{name} row {lists[0].row:,} has a list with one label, and other rows have the label alone",
                repair="Write all labels in the same way",
            )
        mark = next((mark for mark in ";|/," if any(mark in label for label in names)), "")
        raise DataError(
            f"{name} has one label in each of its {len(rows):,} rows, as {sets[0][0]!r}",
            expected='lists in a cell, as ["a", "b"], or a column of 0 and 1 for each label: --label a,b',
            repair=f"If {mark!r} separates labels: --set columns.separator={shlex.quote(mark)}"
            if mark
            else "For one label per row, leave out target=labels",
        )
    return Labels(target="labels", names=names)


def _has_several(row: Raw) -> bool:
    return isinstance(row.label, tuple) and len(row.label) != 1


def _several(row: Raw, where: str) -> DataError:
    return DataError(
        f"{where} has several labels: {str(row.label)[:_SHOWN]}",
        expected="one",
        repair="For several labels per row: --set target=labels, or hw.Classifier(multi_label=True)",
    )


def _levels(rows: Sequence[Raw], name: str) -> list[float]:
    """Return the levels of the rows' scores; raise DataError, listing the first, for rows without a score."""
    scores, wrong = [], []
    for row in rows:
        score = number_of(row.label)
        if score is None or abs(score) > _LARGEST_SCORE:
            wrong.append(row)
        else:
            scores.append(score)
    if wrong:
        first = ", ".join(f"{row.row:,} ({str(row.label)[:40]!r})" for row in wrong[:_LISTED_ROWS])
        more = ", …" if len(wrong) > _LISTED_ROWS else ""
        raise DataError(
            f"{name} has {counted(len(wrong), 'row')} of {len(rows):,} without a score: {first}{more}",
            expected=f"a number of at most {_LARGEST_SCORE:,.0f}",
            repair="Write it with a decimal point, without commas and a unit, as in 10000.5",
        )
    if len(set(scores)) == 1:
        raise DataError(f"{name} has only one score: {scores[0]:g}", expected="scores that differ")
    low, high = math.floor(min(scores)), math.ceil(max(scores))
    if high - low == 1:  # fractions
        return np.linspace(low, high, 6).round(6).tolist()
    if high - low + 1 > _MOST_LEVELS:
        return np.linspace(low, high, 6).tolist()
    return [float(x) for x in range(low, high + 1)]


def _answer_labels(rows: Sequence[Raw], name: str) -> Labels:
    """Return the meaning of a choice's labels: texts of answers if all are, else numbers and letters.

    Numbers count from 1 if none is 0 and one is the number of answers, else from 0.
    """
    numbers = [(number_of(row.label), len(row.segments) - 2) for row in rows]
    from_one = all(number != 0 for number, _ in numbers) and any(number == count for number, count in numbers)
    by_number = Labels(target="answer", first_answer=int(from_one))
    texts = [(row, class_name(row.label)) for row in rows]
    if not all(text in row.segments[2:] for row, text in texts):
        return by_number
    indices = [
        (row, _numbered(row, by_number.first_answer), row.segments.index(text, 2) - 2) for row, text in texts
    ]
    if any(number is None for _, number, _ in indices):
        return Labels(target="answer", answer_texts=True)
    if unclear := next((row for row, number, text in indices if number != text), None):
        raise DataError(
            f"{name} row {unclear.row:,} has the label {unclear.label!r}, which is the text of one answer "
            "and the number of another",
            repair="Label with letters: A is the first answer",
        )
    return by_number


def number_of(label: Any) -> float | None:
    """Return a label as a finite number; None for one that is not, as True and False are not."""
    try:
        number = math.nan if isinstance(label, bool) else float(label)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def class_order(name: str) -> tuple[float, str]:
    """Return a sort key: numbers first, by value, then words."""
    number = number_of(name)
    return (math.inf if number is None else number, name)
