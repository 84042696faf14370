"""The texts, answers and labels in the cells of a row. Each error names the row, which `where` is."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from headwater.errors import DataError
from headwater.finetuning.rows import Label, class_name
from headwater.reading import compose, parse_json

# A label's column in a row, as `class_name` spells its value.
_YES, _EMPTY = {"1", "true"}, {"", "None", "nan"}
_NO = {"0", "false", *_EMPTY}


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
