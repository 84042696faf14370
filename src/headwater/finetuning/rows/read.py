"""Read a labelled table: open it, find the task's columns, and yield its rows as texts and labels.

An error about a cell names its row, as `where` does. A row that cannot be read is an error, or is counted.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from headwater.errors import DataError
from headwater.finetuning.rows.columns import NAMES, ROLES, Columns, as_list, column_option, find_columns
from headwater.finetuning.rows.labels import listed
from headwater.finetuning.rows.row import Label, Raw, TaskName, class_name, listed_labels, parsed_list
from headwater.reading import CellError, compose, open_table
from headwater.storage import SILENT, Progress

_NO_MAJORITY = "-"  # the label of SNLI's pairs on which the annotators did not agree
# A label's column in a row, as `class_name` spells its value.
_YES, _EMPTY = {"1", "true"}, {"", "None", "nan"}
_NO = {"0", "false", *_EMPTY}
_UNREAD_SHOWN = 3


@dataclass
class Unread:
    """The rows of a table that cannot be read: their number, and the errors of the first."""

    count: int = 0
    first: list[DataError] = field(default_factory=list)

    def add(self, error: DataError) -> None:
        """Count a row."""
        self.count += 1
        if len(self.first) < _UNREAD_SHOWN:
            self.first.append(error)


class TaskTable(NamedTuple):
    """The columns that a task reads in a table, its rows, all columns, and the rows that cannot be read."""

    columns: Columns
    rows: Iterator[Raw]
    available: list[str]
    unread: Unread


def read_table(
    path: Path,
    task: TaskName,
    columns: Columns,
    *,
    trained: Columns | None = None,
    need_label: bool = True,
    keep: bool = False,
    limit: int | None = None,
    encoding: str = "",
    progress: Progress = SILENT,
) -> TaskTable:
    """Open a table, and return the columns that a task reads and at most `limit` of its rows; see `find_columns`.

    With `keep` a row has all its columns. Numbers name the columns of a table without a header. encoding: as in
    `text_blocks`. Rows that cannot be read are skipped and counted, unless all are such. Raises the errors of
    `find_columns`, with advice for a table without a header.
    """
    named = [*_named(columns), *(_named(trained) if trained else ())]
    unread = Unread()
    options: dict[str, Any] = {"encoding": encoding, "named": named, "on_broken": unread.add}
    table = open_table(path, **options)
    for note in table.notes:
        progress.note(note)
    numbered = table.columns == [str(number) for number in range(1, len(table.columns) + 1)]
    if numbered and table.uniform and any(name in table.columns for name in named):
        _refuse_header(path, encoding)
    available, name = table.all_columns(limit), str(path)
    if unread.first and not any(available):
        raise unread.first[0]
    try:
        task_columns = find_columns(
            name,
            available,
            task,
            columns,
            first=table.columns,
            trained=trained,
            need_label=need_label,
        )
    except DataError:
        if (first := table.first_row()) is not None:
            raise _without_header(name, task, first, trained is None) from None
        raise
    if not table.uniform:  # the rows were read for their columns
        unread.count, unread.first = 0, []
        table = open_table(path, **options)
    rows = _task_rows(islice(table.rows, limit), name, task, task_columns, keep, unread)
    return TaskTable(task_columns, rows, available, unread)


def _refuse_header(path: Path, encoding: str) -> None:
    """Raise DataError if the first row of a table whose columns were named by number has likely names."""
    known = {name for likely in NAMES.values() for name in likely}
    # With columns that are asked for, equal values of a first row are not taken for equal names.
    names = [name.strip() for name in open_table(path, [*known], encoding).columns]
    if header := [name for name in names if name.lower() in known]:
        raise DataError(
            f"{path} has a header, with {listed(header)}, but its columns were named by number",
            repair=f"Name them, as with: --text {shlex.quote(header[0])}; or remove the header",
        )


def _without_header(name: str, task: TaskName, first: Sequence[str], training: bool) -> DataError:
    options = [column_option(role, str(n), training) for n, role in enumerate((*ROLES[task], "label"), 1)]
    return DataError(
        f"{name} has no header: its first row is {listed(first)}",
        expected="names of the columns in the first row, or numbers of columns",
        repair=f"Name columns by their numbers, as with: {' '.join(options)}",
    )


def _named(columns: Columns) -> list[str]:
    """Return the names of all roles; those of several labels are columns of their own, not texts to join."""
    texts = [name for role, value in columns.by_role().items() if role != "label" for name in as_list(value)]
    return [*texts, *(name for name in as_list(columns.label or "") if "," not in name)]


def _task_rows(
    rows: Iterable[tuple[int, Mapping[str, Any]]],
    name: str,
    task: TaskName,
    columns: Columns,
    keep: bool,
    unread: Unread,
) -> Iterator[Raw]:
    """Yield the rows of the table `name` as a task's texts and label; rows without text have empty segments.

    A row that cannot be read is added to `unread`; raises DataError if no row can.
    """
    yielded = False
    for number, row in rows:
        try:
            read = _task_row(row, f"{name} row {number:,}", task, columns)
        except DataError as error:
            unread.add(error)
            continue
        yield replace(read, row=number, columns=row if keep else None)
        yielded = True
    if unread.first and not yielded:
        raise unread.first[0]


def _task_row(row: Mapping[str, Any], where: str, task: TaskName, columns: Columns) -> Raw:
    """Return a row's texts and label; raise DataError for a value of another type, or a choice without answers."""
    if len(row) > 1 and all(value == column for column, value in row.items()):
        raise DataError(f"{where} repeats the names of the columns", repair="Remove that line")
    segments: list[str] = []
    for role in ROLES[task]:
        column = getattr(columns, role)
        if role == "answers":
            segments += answers_of(row, column, where)
        else:
            segments.append(text_of(row, column, where) if column else "")
    label = label_of(row, columns.label, columns.separator, where)
    return Raw(tuple(segments), None if task != "classify" and label == _NO_MAJORITY else label)


def text_of(row: Mapping[str, Any], column: str, where: str) -> str:
    """Return a cell as a text; "" if it is empty."""
    value = row.get(column)
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "" if isinstance(value, float) and not math.isfinite(value) else str(value)
    raise DataError(f"{where}: column {column!r} has {_described(value)}", expected="text")


def answers_of(row: Mapping[str, Any], columns: Sequence[str], where: str) -> list[str]:
    """Return the answers of a choice, from one column each or a list in one."""
    if len(columns) > 1:
        answers: Any = [row.get(column) for column in columns]
    else:
        answers = row.get(columns[0])
        if isinstance(answers, str):
            with suppress(DataError):
                answers = parsed_list(answers)
    if not isinstance(answers, list) or len(answers) < 2:
        raise DataError(
            f"{where}: {columns[0]!r} is not a list of two or more answers",
            expected='a list, as ["first", "second"], or one column per answer',
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
        if (names := listed_labels(value)) is not None:
            return names if names or not value else None
        value = next(item for item in value if not isinstance(item, str | int | float | None))
    if isinstance(value, str):
        value = value.strip()
        if separator and value and not (value[0] == "[" and value[-1] == "]"):  # a list, as predict writes
            return tuple(part.strip() for part in value.split(separator) if part.strip())
        return value or None
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if isinstance(value, int | float):  # true and false too
        return value
    raise DataError(f"{where}: the label is {_described(value)}", expected="a name or a number")


def _described(value: object) -> str:
    return f"the error {value}" if isinstance(value, CellError) else f"a {type(value).__name__}"


def _labels_of_columns(row: Mapping[str, Any], columns: Sequence[str], where: str) -> Label:
    """Return the names of the columns that have 1 in a row; None if all are empty."""
    values = [class_name(row.get(column)).strip() for column in columns]
    for column, value in zip(columns, values, strict=True):
        if value not in _YES and value not in _NO:
            raise DataError(f"{where}: column {column!r} has {value!r}", expected="0 or 1 for each label")
    if all(value in _EMPTY for value in values):
        return None
    return tuple(compose(column) for column, value in zip(columns, values, strict=True) if value in _YES)
