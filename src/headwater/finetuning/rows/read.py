"""Read a labelled table: open it, find the task's columns, and yield its rows as texts and labels.

The user names a column; else it has the name that it had in training or, before any training, a likely name.
An error about a cell names its row, as `where` does. A row that cannot be read is an error, or is counted.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from headwater.config import Config
from headwater.errors import DataError, UsageError, nearest
from headwater.finetuning.rows.labels import listed
from headwater.finetuning.rows.row import Label, Raw, TaskName, class_name, listed_labels, parsed_list
from headwater.reading import CellError, compose, open_table
from headwater.storage import SILENT, Progress

# Common names of columns, the likeliest first.
_NAMES: dict[str, tuple[str, ...]] = {
    "text": (
        *("text", "sentence", "document", "review", "content", "comment", "body", "message", "title"),
        *("글", "본문", "내용", "문장", "텍스트", "리뷰", "후기", "댓글", "제목"),
    ),
    "premise": ("premise", "sentence1", "text1", "text_a", "question1", "first", "source", "question"),
    "hypothesis": ("hypothesis", "sentence2", "text2", "text_b", "question2", "second", "target", "sentence"),
    "context": ("context", "article", "passage", "story"),
    "question": ("question", "query"),
    "answers": ("answers", "options", "choices", "endings"),
    "label": (
        *("label", "labels", "class", "category", "gold_label", "sentiment", "score", "similarity", "answer"),
        *("라벨", "레이블", "분류", "범주", "감정", "평가", "별점", "점수"),
    ),
}
# Numbered or lettered columns of one answer each: answer1, ending0, choice_a.
_ANSWER_STEMS = ("answer", "option", "choice", "ending")
_ROLES: dict[TaskName, tuple[str, ...]] = {
    "classify": ("text",),
    "entail": ("premise", "hypothesis"),
    "similarity": ("premise", "hypothesis"),
    "choice": ("context", "question", "answers"),
}
_OPTIONAL = {"context", "question"}  # a story without a question, or a question without a story
_NO_MAJORITY = "-"  # the label of SNLI's pairs on which the annotators did not agree
# A label's column in a row, as `class_name` spells its value.
_YES, _EMPTY = {"1", "true"}, {"", "None", "nan"}
_NO = {"0", "false", *_EMPTY}
_UNREAD_SHOWN = 3


class Columns(Config):
    """Names of the columns to read; None to find them by name, "" for one that is not read."""

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
    label: str | list[str] | None = None
    """Column of the label, or columns of 0 and 1, one for each of several labels."""
    separator: str | None = None
    """What separates several labels in one cell, as in "food; travel"; a separator alone is not a label."""

    def by_role(self) -> dict[str, str | list[str]]:
        """Return the column or columns of each role that has any."""
        return {role: value for role, value in self.to_dict().items() if role != "separator"}


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
    """Open a table, and return the columns that a task reads and at most `limit` of its rows; see `_find_columns`.

    With `keep` a row has all its columns. Numbers name the columns of a table without a header. encoding: as in
    `text_blocks`. Rows that cannot be read are skipped and counted, unless all are such. Raises the errors of
    `_find_columns`, with advice for a table without a header.
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
        task_columns = _find_columns(
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
    known = {name for likely in _NAMES.values() for name in likely}
    # With columns that are asked for, equal values of a first row are not taken for equal names.
    names = [name.strip() for name in open_table(path, [*known], encoding).columns]
    if header := [name for name in names if name.lower() in known]:
        raise DataError(
            f"{path} has a header, with {listed(header)}, but its columns were named by number",
            repair=f"Name them, as with: --text {shlex.quote(header[0])}; or remove the header",
        )


def _without_header(name: str, task: TaskName, first: Sequence[str], training: bool) -> DataError:
    options = [_column_option(role, str(n), training) for n, role in enumerate((*_ROLES[task], "label"), 1)]
    return DataError(
        f"{name} has no header: its first row is {listed(first)}",
        expected="names of the columns in the first row, or numbers of columns",
        repair=f"Name columns by their numbers, as with: {' '.join(options)}",
    )


def _named(columns: Columns) -> list[str]:
    """Return the names of all roles; those of several labels are columns of their own, not texts to join."""
    texts = [name for role, value in columns.by_role().items() if role != "label" for name in _as_list(value)]
    return [*texts, *(name for name in _as_list(columns.label or "") if "," not in name)]


def _find_columns(
    name: str,
    available: Sequence[str],
    task: TaskName,
    columns: Columns,
    *,
    first: Sequence[str],
    trained: Columns | None,
    need_label: bool,
) -> Columns:
    """Return the columns that a task reads in the table `name`, which has the columns `available`.

    `columns` has the user's choices. Others have the name that they had in training (`trained`), or without one a
    likely name, preferably one of the `first` row. Without `need_label` it may be missing.

    Raises UsageError for a choice that the task does not read, DataError for a column that the table lacks.
    """
    if not any(available):
        raise DataError(f"{name} is empty", expected="a table with a name for each column")
    roles = [*_ROLES[task], "label"]
    before = {} if trained is None else trained.by_role()
    before = {role: _as_spelled(value, available) for role, value in before.items() if role in roles}
    chosen = _users_columns(name, available, task, columns, "" if need_label else before.get("label"))
    for role in roles:
        if role in chosen:
            continue
        used = _columns_of(chosen)
        # A stray key of one row comes last.
        likely = _by_name(role, first, used) or _by_name(role, available, used)
        if role == "answers" and {*likely} > {*_as_list(before.get(role, ""))}:  # more than in training, too
            chosen[role] = likely
        elif role in before and {*_as_list(before[role])} <= {*available} - used:
            chosen[role] = before[role]
        elif likely and role not in before:
            chosen[role] = likely[0]
        elif (role == "label" and not need_label) or (role in _OPTIONAL and role not in before):
            chosen[role] = ""
        else:
            read = f", which was {before[role]!r} in training" if before.get(role) else ""
            raise DataError(
                f"{name} has no column for the {role} of task {task}{read}; it has {listed(available)}",
                expected=f"a column with a name like {', '.join(_NAMES[role][:3])}",
                repair=f"Name it: {_column_option(role, 'COLUMN', trained is None)}",
            )
    separator = columns.separator or (trained.separator if trained else None)
    if separator and (task != "classify" or isinstance(chosen["label"], list)):
        raise UsageError(
            "columns.separator is for several labels in one cell", expected="classify, and one --label"
        )
    return Columns.build(chosen | ({"separator": separator} if separator else {}))


def _users_columns(
    name: str, available: Sequence[str], task: TaskName, columns: Columns, optional: Any
) -> dict[str, str | list[str]]:
    """Return the columns that the user chose by role; "" for the label if it is `optional` and the table lacks it.

    Raises DataError for any other column that it lacks, UsageError for a role that needs a column.
    """
    chosen = columns.by_role()
    roles = [*_ROLES[task], "label"]
    if unread := [role for role in chosen if role not in roles]:
        raise UsageError(f"task {task} does not read a column {unread[0]!r}", expected=" or ".join(roles))
    for role, value in chosen.items():
        chosen[role] = value = _as_spelled(value, available)
        missing = [column for column in _as_list(value) if column not in available]
        if missing and role == "label" and value == optional:
            chosen[role] = ""
        elif missing:
            several = role == "label" and {part.strip() for part in missing[0].split(",")} <= {*available}
            raise DataError(
                f"{name} has no column {missing[0]!r}; it has {listed(available)}",
                repair="If a row has several labels: --set target=labels"
                if several
                else nearest(missing[0], available),
            )
        elif not value and role not in _OPTIONAL:
            raise UsageError(f"--column {role}= names no column")
    if "label" in chosen and (twice := {*_as_list(chosen["label"])} & _columns_of(chosen, "label")):
        raise DataError(f"{name}: the column {twice.pop()!r} cannot be both text and label")
    return chosen


def _column_option(role: str, column: str, training: bool) -> str:
    """Return the option that names a column: `--text` and `--label` are options of `headwater finetune` alone."""
    return f"--{role} {column}" if training and role in ("text", "label") else f"--column {role}={column}"


def _as_spelled(value: str | list[str], available: Sequence[str]) -> str | list[str]:
    """Return a role's columns in the Unicode form in which the table spells them, if it has them in any."""
    spelled = {compose(column): column for column in available} | {column: column for column in available}
    names = [spelled.get(name, spelled.get(compose(name), name)) for name in _as_list(value)]
    return names if isinstance(value, list) else "".join(names)


def _columns_of(columns: Mapping[str, str | list[str]], other: str = "") -> set[str]:
    """Return the columns of all roles but `other`."""
    return {column for role, names in columns.items() if role != other for column in _as_list(names)}


def _as_list(columns: str | list[str]) -> list[str]:
    """Return the columns of a role as a list; "" gives an empty list."""
    return columns if isinstance(columns, list) else [columns] if columns else []


def _by_name(role: str, columns: Sequence[str], used: Set[str]) -> list[str]:
    """Return the columns whose names are likely for a role: one, several for separate answers, or none."""
    free = [column for column in columns if column not in used]
    lowered = {compose(column).strip().lower(): column for column in free}
    for candidate in _NAMES[role]:
        if candidate in lowered and not (
            role == "premise" and candidate == "question" and "sentence" not in lowered
        ):
            return [lowered[candidate]]
    for stem in _ANSWER_STEMS if role == "answers" else ():
        numbered = [
            c for c in free if c.lower().startswith(stem) and len(c) <= len(stem) + 2 and c.lower() != stem
        ]
        if len(numbered) >= 2:
            return sorted(numbered, key=lambda column: (len(column), column.lower()))  # 10 after 9
    return []


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
    for role in _ROLES[task]:
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
