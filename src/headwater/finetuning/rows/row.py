"""A row of a labelled table: its texts, its label and the name of that class."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from headwater.errors import DataError
from headwater.reading import compose, parse_json

TaskName = Literal["classify", "entail", "similarity", "choice"]
Target = Literal["class", "labels", "score", "answer"]
# A label as a table has it; a tuple has the names of several.
Label: TypeAlias = str | int | float | tuple[str, ...] | None
MemberName = Literal["gpt1", "tfidf", "probe", "lp-ft"]  # what a fine-tuned model consists of
MetricName = Literal["accuracy", "f1", "macro_f1", "micro_f1", "matthews", "pearson", "spearman"]
_WHOLE = re.compile(r"^(-?(?:0|[1-9][0-9]*))\.0+$")


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

    True and "TRUE" are "true". A list of one label, as annotation tools export it, is that label.
    """
    if isinstance(label, tuple) and len(label) == 1:
        label = label[0]
    text = str.__str__(label) if isinstance(label, str) else str(label)  # of a member of an enumeration too
    name = _WHOLE.sub(r"\1", text)
    return name.lower() if name.lower() in {"true", "false"} else name


def listed_labels(values: Any) -> tuple[str, ...] | None:
    """Return the names in a list of labels, without missing ones; None if it is not such a list."""
    if not isinstance(values, list | tuple):
        return None
    if not all(isinstance(value, str | int | float | None) for value in values):
        return None
    return tuple(class_name(value) for value in values if value is not None and value == value)


def parsed_list(text: str) -> Any:
    """Return the list that a cell has, as JSON or as Python writes it; raise DataError if it is neither."""
    with suppress(json.JSONDecodeError):
        return parse_json(text)
    try:
        return ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise DataError("not a list") from None


def label_set(label: Label) -> tuple[str, ...]:
    """Return the names of the labels of a row that may have several; the text of a list is read as that list."""
    if isinstance(label, str) and label.startswith("[") and label.endswith("]"):
        with suppress(DataError):
            names = listed_labels(parsed_list(label))
            label = label if names is None else names
    return tuple(dict.fromkeys(map(class_name, label if isinstance(label, tuple) else (label,))))


@dataclass(frozen=True)
class Usable:
    """Rows to learn from, and the number of rows skipped because they have no text or no label."""

    rows: list[Raw]
    empty: int = 0
    unlabelled: int = 0


def usable(rows: Iterable[Raw], task: TaskName, name: str) -> Usable:
    """Skip rows without text or label; raise DataError if none is left."""
    complete, empty, unlabelled = [], 0, 0
    for row in rows:
        if row.is_empty(task):
            empty += 1
        elif row.label is None:
            unlabelled += 1
        else:
            complete.append(row)
    if not complete:
        why = f": {empty:,} without text, {unlabelled:,} without a label" if empty or unlabelled else ""
        raise DataError(
            f"{name} has no {'usable ' * bool(why)}row{why}",
            expected="rows with a text and a label",
        )
    return Usable(complete, empty, unlabelled)
