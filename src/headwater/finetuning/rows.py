"""Types of labelled sets: tasks, kinds of labels, metrics, rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

TaskName = Literal["classify", "entail", "similarity", "choice"]
TASK_NAMES: tuple[TaskName, ...] = ("classify", "entail", "similarity", "choice")
Target = Literal["class", "score", "answer"]
MetricName = Literal["accuracy", "f1", "macro_f1", "matthews", "pearson", "spearman"]


@dataclass(frozen=True, slots=True)
class Raw:
    """One row with its label as in the file; `columns` is the whole row of the table, if that is kept."""

    segments: tuple[str, ...]
    label: str | int | float | None = None
    row: int = 0
    columns: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)
