"""`read`: the rows of each part from tables, the meaning of their labels, and the rows that are held out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from headwater.display import counted
from headwater.errors import DataError
from headwater.finetuning.learning.config import POLICY, FinetuneConfig
from headwater.finetuning.rows.labels import Labels, learn_labels
from headwater.finetuning.rows.read import Columns, Unread, read_table
from headwater.finetuning.rows.row import Raw, usable
from headwater.finetuning.rows.split import also_trained_on, copies_of, describe, folds, keys_of, split
from headwater.storage import Progress

_MISSING = {"n/a", "na", "nan", "null", "none", "-", "?"}  # in place of a score
# Of "train", "validation" if there is such a table, and the tests: the name in messages, and the rows.
Tables: TypeAlias = Mapping[str, tuple[str, Iterable[Raw]]]
# Returns what the labels of the training rows mean.
Learn: TypeAlias = Callable[[list[Raw]], Labels]


@dataclass(frozen=True)
class Part:
    """The checked rows of a part, its name in messages, and targets: (rows,) or (rows, outputs), NaN if none."""

    name: str
    rows: list[Raw]
    targets: npt.NDArray[np.float64]

    def take(self, indices: list[int]) -> Part:
        """Return some of the rows."""
        return Part(self.name, [self.rows[index] for index in indices], self.targets[indices])


@dataclass(frozen=True)
class Parts:
    """The rows of a training by part, and what their labels and columns mean.

    fold: (training rows,) of each in a cross-validation, -1 for one that is in none; None without one. split_off:
    whether the validation rows were split off the training rows. classes: training rows of each class, label or
    answer. notes: what a user should know of the rows.
    """

    train: Part
    validation: Part | None
    tests: dict[str, Part]
    labels: Labels
    columns: Columns = field(default_factory=Columns)
    fold: npt.NDArray[np.int64] | None = None
    split_off: bool = False
    classes: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def divided(self, config: FinetuneConfig, *, crossed: bool) -> Parts:
        """Return this with folds if the rows are few and may be `crossed`, else with validation rows.

        Copies of a text stay together. Rows of too few texts for folds are split. Explicit `validation_share`
        holds rows out in any case.
        """
        train, parts = self.train, self
        few = crossed and POLICY.is_few(len(train.rows), self.labels.outputs)
        share = config.validation_share

        def split_off() -> Parts:
            sides = split(
                train.rows,
                train.targets,
                self.labels,
                share=share or POLICY.held_out_share(len(train.rows)),
                seed=config.seed,
                name=train.name,
            )
            return replace(self, train=train.take(sides[0]), validation=train.take(sides[1]), split_off=True)

        if self.validation is None and (share is not None or not few):
            parts = split_off()
        fold = folds(parts.train.rows, parts.train.targets, config.seed, POLICY.folds) if few else None
        if fold is not None:
            return replace(parts, fold=fold)
        return split_off() if parts.validation is None else parts  # too few texts for folds


def read(config: FinetuneConfig, files: Mapping[str, Path | None], progress: Progress) -> Parts:
    """Read the table of each part, "train" first; see `arrange_rows`."""
    columns: Columns | None = None
    tables: dict[str, tuple[str, Iterable[Raw]]] = {}
    unread: dict[str, Unread] = {}
    for part, path in files.items():
        if path is None:
            continue
        table = read_table(
            path,
            config.task,
            config.columns,
            trained=columns,
            need_label=part != "test",
            limit=config.limit,
            encoding=config.encoding,
            progress=progress,
        )
        columns = table.columns if part == "train" else columns
        tables[part], unread[str(path)] = (str(path), table.rows), table.unread
    parts = arrange_rows(config, tables)
    for name, lines in unread.items():
        if lines.count:
            shown = f"{counted(lines.count, 'row')} that cannot be read; the first: {lines.first[0].seen}"
            parts.notes.append(f"skipped in {name}: {shown}")
    return replace(parts, columns=columns or Columns())


def arrange_rows(config: FinetuneConfig, tables: Tables, learn: Learn | None = None) -> Parts:
    """Check all rows, and learn what the labels of the training rows mean; `learn` in place of `learn_labels`.

    A test row without text has no target: it is not measured. Raises DataError for rows that cannot be used.
    """
    name, rows = tables["train"]
    train = usable(_read_as(config, map(Raw.composed, rows)), config.task, name)
    labels = learn(train.rows) if learn else learn_labels(train.rows, config.task, config.target, name)
    parts = {"train": Part(name, train.rows, labels.targets(train.rows, name))}
    checked = {"training": train}
    for other, (table, more) in tables.items():
        if other == "validation":
            checked[other] = usable(_read_as(config, map(Raw.composed, more)), config.task, table)
            parts[other] = Part(table, checked[other].rows, labels.targets(checked[other].rows, table))
        elif other != "train":
            listed = [*_read_as(config, map(Raw.composed, more))]
            targets = labels.targets(listed, table)
            targets[[row.is_empty(config.task) for row in listed]] = np.nan
            parts[other] = Part(table, listed, targets)
    several = config.columns.label if isinstance(config.columns.label, list) else []
    keys = keys_of(train.rows)
    _require_different_texts(parts["train"], keys, labels, "validation" not in parts)
    classes, notes = describe(checked, labels, parts["train"].targets, several)
    notes += copies_of(train.rows, keys, parts["train"].targets, labels)
    for other, part in parts.items():
        if other != "train":
            notes += also_trained_on(other, part.rows, {*keys})
        if other not in ("train", "validation"):
            lacking = int(np.isnan(part.targets).reshape(len(part.rows), -1).any(axis=1).sum())
            if lacking:
                notes.append(f"not measured in {other}: {counted(lacking, 'row')} without text or label")
    tests = {other: part for other, part in parts.items() if other not in ("train", "validation")}
    return Parts(parts["train"], parts.get("validation"), tests, labels, classes=classes, notes=notes)


def _read_as(config: FinetuneConfig, rows: Iterable[Raw]) -> Iterable[Raw]:
    """Return rows whose score is marked as missing, as "N/A", without it."""
    if config.target != "score":
        return rows
    return (
        replace(row, label=None) if isinstance(row.label, str) and row.label.lower() in _MISSING else row
        for row in rows
    )


def _require_different_texts(part: Part, keys: list[str], labels: Labels, alone: bool) -> None:
    """Raise DataError if all rows have one text, or if no row of a class can be held out to measure on."""
    texts = len({*keys})
    if texts == 1 < len(part.rows):
        raise DataError(
            f"{part.name} has the same text in all {len(part.rows):,} usable rows", expected="texts that differ"
        )
    if alone and labels.target == "class" and texts <= len(np.unique(part.targets)):
        raise DataError(
            f"{part.name} has one text of each class: nothing can be measured",
            expected="at least two rows of a class, with different texts",
            repair="Give rows to measure on: --validation FILE" if texts > 1 else "",
        )
