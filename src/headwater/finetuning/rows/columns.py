"""Find a task's columns in a table.

The user names a column; else it has the name that it had in training or, before any training, a likely name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

from headwater.config import Config
from headwater.errors import DataError, UsageError, nearest
from headwater.finetuning.rows.labels import listed
from headwater.finetuning.rows.row import TaskName
from headwater.reading import compose

# Common names of columns, the likeliest first.
NAMES: dict[str, tuple[str, ...]] = {
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
ROLES: dict[TaskName, tuple[str, ...]] = {
    "classify": ("text",),
    "entail": ("premise", "hypothesis"),
    "similarity": ("premise", "hypothesis"),
    "choice": ("context", "question", "answers"),
}
_OPTIONAL = {"context", "question"}  # a story without a question, or a question without a story


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


def find_columns(
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
    roles = [*ROLES[task], "label"]
    before = {} if trained is None else trained.by_role()
    before = {role: _as_spelled(value, available) for role, value in before.items() if role in roles}
    chosen = _users_columns(name, available, task, columns, "" if need_label else before.get("label"))
    for role in roles:
        if role in chosen:
            continue
        used = _columns_of(chosen)
        likely = _by_name(role, first, used) or _by_name(
            role, available, used
        )  # a stray key of one row comes last
        if role == "answers" and {*likely} > {*as_list(before.get(role, ""))}:  # more than in training, too
            chosen[role] = likely
        elif role in before and {*as_list(before[role])} <= {*available} - used:
            chosen[role] = before[role]
        elif likely and role not in before:
            chosen[role] = likely[0]
        elif (role == "label" and not need_label) or (role in _OPTIONAL and role not in before):
            chosen[role] = ""
        else:
            read = f", which was {before[role]!r} in training" if before.get(role) else ""
            raise DataError(
                f"{name} has no column for the {role} of task {task}{read}; it has {listed(available)}",
                expected=f"a column with a name like {', '.join(NAMES[role][:3])}",
                repair=f"Name it: {column_option(role, 'COLUMN', trained is None)}",
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
    roles = [*ROLES[task], "label"]
    if unread := [role for role in chosen if role not in roles]:
        raise UsageError(f"task {task} does not read a column {unread[0]!r}", expected=" or ".join(roles))
    for role, value in chosen.items():
        chosen[role] = value = _as_spelled(value, available)
        missing = [column for column in as_list(value) if column not in available]
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
    if "label" in chosen and (twice := {*as_list(chosen["label"])} & _columns_of(chosen, "label")):
        raise DataError(f"{name}: the column {twice.pop()!r} cannot be both text and label")
    return chosen


def column_option(role: str, column: str, training: bool) -> str:
    """Return the option that names a column: `--text` and `--label` are options of `headwater finetune` alone."""
    return f"--{role} {column}" if training and role in ("text", "label") else f"--column {role}={column}"


def _as_spelled(value: str | list[str], available: Sequence[str]) -> str | list[str]:
    """Return a role's columns in the Unicode form in which the table spells them, if it has them in any."""
    spelled = {compose(column): column for column in available} | {column: column for column in available}
    names = [spelled.get(name, spelled.get(compose(name), name)) for name in as_list(value)]
    return names if isinstance(value, list) else "".join(names)


def _columns_of(columns: Mapping[str, str | list[str]], other: str = "") -> set[str]:
    """Return the columns of all roles but `other`."""
    return {column for role, names in columns.items() if role != other for column in as_list(names)}


def as_list(columns: str | list[str]) -> list[str]:
    """Return the columns of a role as a list; "" gives an empty list."""
    return columns if isinstance(columns, list) else [columns] if columns else []


def _by_name(role: str, columns: Sequence[str], used: Set[str]) -> list[str]:
    """Return the columns whose names are likely for a role: one, several for separate answers, or none."""
    there = [column for column in columns if column not in used]
    lowered = {compose(column).strip().lower(): column for column in there}
    for candidate in NAMES[role]:
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
