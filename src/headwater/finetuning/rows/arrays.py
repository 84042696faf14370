"""Convert a caller's rows, labels and weights to plain lists and arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import column_or_1d

from headwater.errors import DataError, UsageError
from headwater.finetuning.rows.labels import number_of
from headwater.finetuning.rows.row import Target, class_name

# What each kind of label is, in words and as a test.
_FITTING: dict[Target, tuple[str, Callable[[Any], bool]]] = {
    "answer": ("the right answer's number, from 0", lambda y: isinstance(y, int) and y >= 0),
    "score": ("a number", lambda y: number_of(y) is not None),
    "labels": ("a list of labels", lambda y: all(isinstance(n, str | int | float) and n == n for n in y)),
    "class": ("a class, as text or a number", lambda y: isinstance(y, str | int | float) and not is_missing(y)),
}


def is_missing(value: Any) -> bool:
    """Return whether a value is missing: None, NaN, or NA and NaT of pandas."""
    return (
        value is None
        or type(value).__name__ in {"NAType", "NaTType"}
        or (isinstance(value, float) and value != value)
    )


def as_list(column: Any) -> list[Any]:
    """Return a list, array, or column of pandas or polars as a list of plain values; a table as a list of rows."""
    if hasattr(column, "to_numpy"):
        column = column.to_pylist() if hasattr(column, "to_pylist") else column.to_numpy()  # pyarrow has both
    elif hasattr(column, "__array__"):
        column = np.asarray(column)
    values = column.tolist() if hasattr(column, "tolist") else column
    if isinstance(values, str | bytes) or not np.iterable(values):
        raise UsageError("a single value was given", expected="a column", repair="Put it in a list: [value]")
    return [value.item() if isinstance(value, np.generic) else value for value in values]


def as_labels(y: Any) -> list[Any]:
    """Return labels as a list; a table of one column is raveled, with scikit-learn's warning."""
    if y is None:
        raise UsageError("y should be a 1d array, and is None", expected="a label for each row")
    if len(getattr(y, "shape", ())) == 2 and y.shape[1] == 1:
        y = column_or_1d(y, warn=True)
    return as_list(y)


def as_label_sets(y: Any, known: Any = ()) -> tuple[list[tuple[Any, ...]], list[Any] | None]:
    """Return each row's labels, and the labels of the columns if `y` is an indicator matrix, else None.

    An indicator matrix is what scikit-learn's MultiLabelBinarizer returns, (rows, labels) of 0 and 1, dense or
    sparse, as lists, or a table whose columns are named. Any other `y` has a list, tuple or set of labels per row.
    Columns without names are those of the labels `known`, or are named by their numbers, from 0.
    """
    if y is None:
        raise UsageError("y is None", expected="the labels of each row")
    names = list(y.columns) if hasattr(y, "columns") else None
    rows = as_list(y.toarray() if hasattr(y, "toarray") else y)
    if names is None and len(getattr(y, "shape", ())) != 2 and not _is_indicator(rows):
        for number, row in enumerate(rows, 1):
            if isinstance(row, str) or not np.iterable(row):
                raise DataError(f"y has {row!r} in row {number}", expected='a list of labels, as ["a", "b"]')
        return [tuple(sorted(row, key=str) if isinstance(row, set | frozenset) else row) for row in rows], None
    width = len(rows[0]) if rows else 0
    columns = names or (as_list(known) if len(known) == width else [*range(width)])
    for number, row in enumerate(rows, 1):
        if len(row) != len(columns) or any(value not in (0, 1) for value in row):
            raise DataError(f"y has {list(row)!r} in row {number}", expected="0 or 1 for each label")
    return [tuple(column for column, has in zip(columns, row, strict=True) if has) for row in rows], columns


def _is_indicator(rows: list[Any]) -> bool:
    """Return whether rows have 0 or 1 for each label; as lists of the labels 0 and 1 all would be equal."""
    if not all(isinstance(row, list | tuple | np.ndarray) for row in rows) or len({*map(len, rows)}) != 1:
        return False
    whole = all(isinstance(cell, int | np.integer) and cell in (0, 1) for row in rows for cell in row)
    return len(rows[0]) > 1 and whole


def require_one_each(rows: int, labels: int) -> None:
    """Raise DataError unless there is a label for each row, and a row."""
    if not rows == labels > 0:
        raise DataError(f"there are {rows:,} rows and {labels:,} labels", expected="one each, and at least one")


def checked_labels(y: list[Any], target: Target) -> list[Any]:
    """Return labels as rows carry them; raise DataError naming the row of a label that does not fit the target."""
    expected, fits = _FITTING[target]
    for number, label in enumerate(y, 1):
        if not fits(label):
            raise DataError(f"y has {label!r} in row {number}", expected=expected)
    if target == "labels":
        return [tuple(map(class_name, label)) for label in y]
    if target != "class":
        return y if target == "answer" else [float(label) for label in y]
    numbers = [label for label in y if isinstance(label, int | float)]
    if numbers and len(numbers) < len(y):
        kinds = sorted({type(label).__name__ for label in y})
        raise DataError(f"y mixes {' and '.join(kinds)} labels", expected="one kind")
    if (fractional := next((label for label in numbers if not float(label).is_integer()), None)) is not None:
        raise DataError(
            f"y is continuous: it has the number {fractional!r}",
            expected="classes",
            repair="For scores use hw.Regressor",
        )
    return [class_name(label) for label in y]


def checked_weights(sample_weight: Any, count: int) -> npt.NDArray[np.float64]:
    """Return a weight for each row; raise DataError unless they are numbers of 0 or more, not all 0."""
    weights = np.array(
        [number_of(int(weight) if isinstance(weight, bool) else weight) for weight in as_list(sample_weight)],
        dtype=np.float64,
    )
    if weights.shape != (count,) or not np.isfinite(weights).all() or (weights < 0).any():
        raise DataError(
            f"sample_weight has {weights.size:,} weights for {count:,} rows, or an invalid one",
            expected="a number of 0 or more for each row",
        )
    if not weights.any():
        raise DataError("all weights in sample_weight are zero", expected="a weight above 0")
    return weights
