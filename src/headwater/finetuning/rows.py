"""Rows of labelled tables: their types and cells, and the checks before a training: empty, duplicates, balance.

An error about a cell names its row, as `where` does. Rows without any text, pairs that lack one and rows without a
label are skipped and counted. A text in both training and validation makes the validation metrics too good: it is
reported, and the split keeps equal texts on one side.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from headwater.errors import DataError, counted
from headwater.reading import compose, parse_json

if TYPE_CHECKING:
    from headwater.finetuning.labels import Labels

TaskName = Literal["classify", "entail", "similarity", "choice"]
# The names of the tasks.
TASK_NAMES: tuple[TaskName, ...] = ("classify", "entail", "similarity", "choice")
Target = Literal["class", "labels", "score", "answer"]
# A label as a table has it; a tuple has the names of several.
Label: TypeAlias = str | int | float | tuple[str, ...] | None
MetricName = Literal["accuracy", "f1", "macro_f1", "micro_f1", "matthews", "pearson", "spearman"]
_WHOLE = re.compile(r"^(-?(?:0|[1-9][0-9]*))\.0+$")
# A label's column in a row, as `class_name` spells its value.
_YES, _EMPTY = {"1", "true"}, {"", "None", "nan"}
_NO = {"0", "false", *_EMPTY}


@dataclass(frozen=True, slots=True)
class Raw:
    """One row with its label as in the file; `columns` is the whole row of the table, if that is kept."""

    segments: tuple[str, ...]
    label: Label = None
    row: int = 0
    columns: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)

    def composed(self) -> Raw:
        """Return the row with its texts and label in Unicode's composed form, NFC."""
        label = self.label
        if isinstance(label, str | tuple):
            label = compose(label) if isinstance(label, str) else tuple(map(compose, label))
        return replace(self, segments=tuple(map(compose, self.segments)), label=label)

    def is_empty(self, task: TaskName) -> bool:
        """Return whether the row has no text at all, or only one text of a pair."""
        texts = self.segments[:2] if task == "choice" else self.segments
        missing = [not text.strip() for text in texts]
        return any(missing) if task in {"entail", "similarity"} else all(missing)


def class_name(label: Label) -> str:
    """Return the name of a label's class: 1, 1.0, "1" and "1.0" are all "1"; "01" is unchanged.

    True, which CSV has as "True" or "TRUE", is "true".
    """
    name = _WHOLE.sub(r"\1", str(label))
    return name.lower() if name.lower() in {"true", "false"} else name


def label_set(label: Label) -> tuple[str, ...]:
    """Return the names of the labels of a row that may have several; the text of a list is read as that list."""
    if isinstance(label, str) and label.startswith("[") and label.endswith("]"):
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            label = tuple(map(class_name, ast.literal_eval(label)))
    return tuple(dict.fromkeys(map(class_name, label if isinstance(label, tuple) else (label,))))


def text_of(row: Mapping[str, Any], column: str, where: str) -> str:
    """Return a cell as a text; "" if it is empty."""
    value = row.get(column)
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "" if isinstance(value, float) and not math.isfinite(value) else str(value)
    raise DataError(f"{where}: column {column!r} has a {type(value).__name__}", expected="text")


def answers_of(row: Mapping[str, Any], columns: Sequence[str], where: str) -> list[str]:
    """Return the answers of a choice, from one column each or a list in one."""
    if len(columns) > 1:
        answers: Any = [row.get(column) for column in columns]
    else:
        answers = row.get(columns[0])
        if isinstance(answers, str):
            try:
                answers = parse_json(answers)
            except json.JSONDecodeError:
                answers = None
    if not isinstance(answers, list) or len(answers) < 2:
        raise DataError(
            f"{where}: {columns[0]!r} is not a list of two or more answers",
            expected='a list, as ["first", "second"], or one column an answer',
        )
    for number, answer in enumerate(answers, 1):
        if answer is None or not str(answer).strip():
            raise DataError(
                f"{where}: answer {number} of {len(answers)} is missing", repair="Fill it in, or remove that row"
            )
    return [str(answer) for answer in answers]


def label_of(row: Mapping[str, Any], column: str | list[str] | None, separator: str | None, where: str) -> Label:
    """Return the label of a row: a value, several names, or None."""
    if isinstance(column, list):
        return _labels_of_columns(row, column, where)
    value = row.get(column) if column else None
    if isinstance(value, list):
        if all(isinstance(one, str | int | float) for one in value):
            return tuple(map(class_name, value))
        value = next(one for one in value if not isinstance(one, str | int | float))
    if isinstance(value, str):
        value = value.strip()
        if separator and value and not (value[0] == "[" and value[-1] == "]"):  # a list, as predict writes
            return tuple(part.strip() for part in value.split(separator) if part.strip())
        return value or None
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if isinstance(value, bool):
        return class_name(value)
    if isinstance(value, int | float):
        return value
    raise DataError(f"{where}: the label is a {type(value).__name__}", expected="a name or a number")


def _labels_of_columns(row: Mapping[str, Any], columns: Sequence[str], where: str) -> Label:
    """Return the names of the columns that have 1 in a row; None if all are empty."""
    values = [class_name(row.get(column)).strip() for column in columns]
    for column, value in zip(columns, values, strict=True):
        if value not in _YES and value not in _NO:
            raise DataError(f"{where}: column {column!r} has {value!r}", expected="0 or 1 for each label")
    if all(value in _EMPTY for value in values):
        return None
    return tuple(compose(column) for column, value in zip(columns, values, strict=True) if value in _YES)


@dataclass(frozen=True)
class Usable:
    """Rows to learn from, and the number of rows skipped because they have no text or no label."""

    rows: list[Raw]
    empty: int = 0
    unlabelled: int = 0


def usable(rows: Iterable[Raw], task: TaskName, name: str) -> Usable:
    """Skip rows without text or label; raise DataError if none is left."""
    kept, empty, unlabelled = [], 0, 0
    for row in rows:
        if row.is_empty(task):
            empty += 1
        elif row.label is None:
            unlabelled += 1
        else:
            kept.append(row)
    if not kept:
        why = f": {empty:,} without text, {unlabelled:,} without a label" if empty or unlabelled else ""
        raise DataError(
            f"{name} has no {'usable ' * bool(why)}row{why}",
            expected="rows with a text and a label",
        )
    return Usable(kept, empty, unlabelled)


def balance(rows: Sequence[Raw], targets: npt.NDArray[np.float64], labels: Labels) -> dict[str, int]:
    """Return the number of rows of each class or label, with each answer, or nearest to each level of a score."""
    if labels.target == "answer":
        return dict(sorted(Counter(class_name(row.label) for row in rows).items()))
    if labels.target == "labels":
        return dict(zip(labels.names, targets.sum(axis=0).astype(int).tolist(), strict=True))
    outputs = targets
    if labels.target == "score":
        outputs = np.abs(np.array(labels.levels)[:, None] - targets).argmin(axis=0)
    counts = np.bincount(outputs.astype(np.int64), minlength=labels.outputs)
    return dict(zip(labels.output_names, counts.tolist(), strict=True))


def split(
    rows: Sequence[Raw],
    targets: npt.NDArray[np.float64],
    labels: Labels,
    *,
    share: float,
    seed: int,
    name: str,
    kept: Mapping[int, bool] | None = None,
) -> tuple[list[int], list[int]]:
    """Return the places of training and validation rows: the same share of each class, one text or more.

    Equal texts stay together; a class with a single text is in training only. `kept`: the places of rows that an
    earlier training had, and whether in validation; the others are divided. Raises DataError if a side is empty.
    """
    kept = kept or {}
    groups: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        groups[row.segments].append(index)
    strata: defaultdict[str, list[list[int]]] = defaultdict(list)
    train: list[int] = []
    validation: list[int] = []
    for group in groups.values():
        if group[0] in kept:
            (validation if kept[group[0]] else train).extend(group)
            continue
        strata[labels.names[int(targets[group[0]])] if labels.target == "class" else ""].append(group)
    random = np.random.default_rng([seed, len(rows) - len(kept)])
    for key in sorted(strata):
        members = strata[key]
        wanted = max(1, round(len(members) * share))
        held = min(wanted, len(members) - 1)
        chosen = set(random.permutation(len(members))[:held].tolist())
        for number, group in enumerate(members):
            (validation if number in chosen else train).extend(group)
    if not train or not validation:
        raise DataError(
            f"{name} has {len(rows):,} usable rows, too few to split off a validation part",
            expected="at least two rows of each class, with different texts",
        )
    return sorted(train), sorted(validation)


def report(train: Usable, validation: Usable, classes: Mapping[str, int]) -> tuple[dict[str, Any], list[str]]:
    """Return what to tell the user before training: figures for metrics.json, and sentences."""
    texts = {row.segments for row in train.rows}
    repeated = [row.row for row in validation.rows if row.segments in texts]
    within = len(train.rows) - len(texts)
    total = max(1, sum(classes.values()))
    shown = ", ".join(f"{name}: {count:,} ({count / total:.0%})" for name, count in list(classes.items())[:12])
    notes = [f"{len(train.rows):,} training rows: {shown}{', …' if len(classes) > 12 else ''}"]
    if repeated:
        notes.append(
            f"{len(repeated):,} of {len(validation.rows):,} validation rows are also in training (the first is "
            f"row {repeated[0]:,}): metrics on them are too good"
        )
    if within:
        notes.append(f"{within:,} training rows repeat the text of another")
    cases = Counter(name.casefold() for name in classes)
    if same := [name for name in classes if cases[name.casefold()] > 1]:
        notes.append(f"labels that differ only in case are different classes: {', '.join(map(repr, same[:6]))}")
    if single := [name for name, count in classes.items() if count == 1]:
        few = ", ".join(map(repr, single[:5])) + (", …" if len(single) > 5 else "")
        notes.append(
            f"only one training row: {few}; such a class is hardly learned, and a part split off lacks it"
        )
    for part, name in ((train, "training"), (validation, "validation")):
        if part.empty or part.unlabelled:
            notes.append(
                f"skipped in {name}: {counted(part.empty, 'row')} without text, "
                f"{part.unlabelled:,} without a label"
            )
        if replaced := sum("\ufffd" in "".join((*row.segments, str(row.label))) for row in part.rows):
            notes.append(f"{counted(replaced, 'row')} in {name} with U+FFFD, in place of lost characters")
    figures = {
        "classes": dict(classes),
        "duplicates_with_validation": len(repeated),
        "duplicates_within_training": within,
        "empty": {"train": train.empty, "validation": validation.empty},
        "unlabelled": {"train": train.unlabelled, "validation": validation.unlabelled},
    }
    return figures, notes
