"""A task's columns of a table, and its rows as texts and labels.

Columns are named by the user, are those of training, or are found by name. `storage.tables` reads the files.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from headwater.config import Config
from headwater.datasets.rows import Raw, Task
from headwater.errors import DataError, UsageError, nearest
from headwater.finetune.labels import class_name, listed
from headwater.storage.files import parse_json
from headwater.storage.tables import Row, open_table, table_columns

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
_NO_LABEL = {"", "-"}  # "-" marks rows without a majority label in SNLI


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
    label: str | None = None
    """Column of the label."""


def find_columns(
    there: Sequence[str],
    task: Task,
    columns: Columns,
    name: str,
    *,
    trained: Columns | None = None,
    need_label: bool = True,
    option: str = "--{role} {column}",
) -> Columns:
    """Return the columns of a table, `there`, that a task reads: those of `columns`, else found by name.

    `trained`, the columns of the training file, come before others with a likely name. `name` is the table's and
    `option` that of the user's option, for messages. Raises UsageError for a column that the task does not read,
    DataError for one that the table lacks.
    """
    if not any(there):
        raise DataError(f"{name} is empty", expected="a table with a name for each column")
    roles = [*_ROLES[task], "label"]
    if strange := [role for role, given in columns.to_dict().items() if given is not None and role not in roles]:
        raise UsageError(
            f"{option.format(role=strange[0], column='…')} does not belong to task {task}",
            expected=f"columns for {', '.join(roles)}",
        )
    found: dict[str, str | list[str]] = {}
    for role in roles:
        used = {column for names in found.values() for column in _as_list(names)}
        left = there if role != "label" else [column for column in there if column not in used]
        optional = role in {"context", "question"} or (role == "label" and not need_label)
        given, before = getattr(columns, role), getattr(trained, role, None)
        if given is not None:
            if lacking := [column for column in _as_list(given) if column not in left]:
                if lacking[0] in used:
                    raise DataError(
                        f"{name}: the column {lacking[0]!r} is read as text already",
                        expected="another column for the label",
                    )
                if role != "label" or need_label:
                    raise DataError(
                        f"{name} has no column {lacking[0]!r}; it has {listed(left)}",
                        repair=nearest(lacking[0], left),
                    )
            found[role] = "" if lacking else given
        elif before is not None and set(_as_list(before)) <= set(left):
            found[role] = before
        else:
            names = _by_name(role, left)
            if not names and (not optional or (before and role != "label")):
                read = f", which was {before!r} in training" if before else ""
                raise DataError(
                    f"{name} has no column for the {role} of task {task}{read}; it has {listed(left)}",
                    expected=f"a column with a name like {', '.join(_NAMES[role][:3])}",
                    repair="Name it, as with: "
                    + option.format(role=role, column=shlex.quote(left[0]) if left else "COLUMN"),
                )
            found[role] = names if role == "answers" else "".join(names)
    return Columns.build(found)


def read_rows(
    path: Path,
    task: Task,
    columns: Columns,
    *,
    trained: Columns | None = None,
    need_label: bool = True,
) -> Iterator[Raw]:
    """Yield the rows of a table as a task's texts and label; see `find_columns` and `read_columns`."""
    found = find_columns(table_columns(path), task, columns, str(path), trained=trained, need_label=need_label)
    yield from read_columns(path, task, found)


def read_columns(path: Path, task: Task, columns: Columns, *, keep: bool = False) -> Iterator[Raw]:
    """Yield the rows of a table as a task's texts and label; with `keep` also all their columns.

    `columns` are those that `find_columns` returned. Raises DataError naming the row for a value that is not
    text, or a choice without its answers. Rows without any text are included, with empty segments.
    """
    for number, row in open_table(path).rows:
        where = f"{path} row {number:,}"
        segments: list[str] = []
        for role in _ROLES[task]:
            column = getattr(columns, role)
            if role == "answers":
                segments += _answers(row, column, where)
            else:
                segments.append(_text(row, column, where) if column else "")
        kept = row if keep else None
        yield Raw(segments=tuple(segments), label=_label(row, columns.label, where), row=number, columns=kept)


def _as_list(columns: str | list[str]) -> list[str]:
    """Return the columns of a role: one, or several of one answer each; none for \"\"."""
    return columns if isinstance(columns, list) else [columns] if columns else []


def _by_name(role: str, there: Sequence[str]) -> list[str]:
    """Return the columns whose names are likely for a role: one, several for separate answers, or none."""
    lowered = {column.strip().lower(): column for column in there}
    for candidate in _NAMES[role]:
        if candidate in lowered and not (
            role == "premise" and candidate == "question" and "sentence" not in lowered
        ):
            return [lowered[candidate]]
    for stem in _ANSWER_STEMS if role == "answers" else ():
        numbered = [
            c for c in there if c.lower().startswith(stem) and len(c) <= len(stem) + 2 and c.lower() != stem
        ]
        if len(numbered) >= 2:
            return sorted(numbered, key=lambda column: (len(column), column.lower()))  # 10 after 9
    return []


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


def _label(row: Row, column: str | None, where: str) -> str | int | float | None:
    value = row.get(column) if column else None
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
