"""Types of labelled sets: tasks, kinds of labels, metrics, rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

MOST_ROWS = 1 << 53  # more than any file has; numbers beyond 63 bits overflow later
Task = Literal["classify", "entail", "similarity", "choice"]
TASKS: tuple[Task, ...] = ("classify", "entail", "similarity", "choice")
Target = Literal["class", "score", "answer"]
Metric = Literal["accuracy", "f1", "macro_f1", "matthews", "pearson", "spearman"]


@dataclass(frozen=True, slots=True)
class Raw:
    """One row with its label as in the file; `columns` is the whole row of the table, if that is kept."""

    segments: tuple[str, ...]
    label: str | int | float | None = None
    row: int = 0
    columns: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)
