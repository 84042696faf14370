"""Checks of a table before training: balance, duplicates, empty rows; and the validation split.

Rows without any text, pairs that lack one and rows without a label are skipped and counted. A text in both
training and validation makes the validation metrics too good: it is reported, and the split keeps equal texts on
one side.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np

from headwater.errors import DataError, counted
from headwater.finetuning.labels import Labels, class_name
from headwater.finetuning.rows import Raw, TaskName


@dataclass(frozen=True)
class Usable:
    """Rows to learn from, and the number of rows skipped because they have no text or no label."""

    rows: list[Raw]
    empty: int
    unlabelled: int


def usable(rows: Iterable[Raw], task: TaskName, name: str) -> Usable:
    """Skip rows without text or label; raise DataError if none is left."""
    kept, empty, unlabelled = [], 0, 0
    for row in rows:
        if is_empty(row, task):
            empty += 1
        elif row.label is None:
            unlabelled += 1
        else:
            kept.append(row)
    if not kept:
        raise DataError(
            f"{name} has no usable row: {empty:,} without text, {unlabelled:,} without a label",
            expected="rows with a text and a label",
        )
    return Usable(kept, empty, unlabelled)


def is_empty(row: Raw, task: TaskName) -> bool:
    """Return whether a row has no text at all, or only one text of a pair."""
    texts = row.segments[:2] if task == "choice" else row.segments
    missing = [not text.strip() for text in texts]
    return any(missing) if task in {"entail", "similarity"} else all(missing)


def balance(rows: Sequence[Raw], labels: Labels) -> dict[str, int]:
    """Return the number of rows of each class, of each answer, or nearest to each level of a score."""
    if labels.target == "score":
        levels, names = np.array(labels.levels), labels.output_names
        found = Counter(names[np.abs(levels - float(str(row.label))).argmin()] for row in rows)
    else:
        found = Counter(class_name(row.label) for row in rows)
        names = labels.names or sorted(found)
    return {name: found[name] for name in names}


def split(rows: Sequence[Raw], share: float, seed: int, labels: Labels, name: str) -> tuple[list[Raw], list[Raw]]:
    """Return (training, validation): the same share of each class, and at least one text of it on each side.

    Equal texts stay together; a class with a single text is in training only. Raises DataError if a side is empty.
    """
    strata: defaultdict[Hashable, list[list[Raw]]] = defaultdict(list)
    groups: defaultdict[tuple[str, ...], list[Raw]] = defaultdict(list)
    for row in rows:
        groups[row.segments].append(row)
    for group in groups.values():
        strata[class_name(group[0].label) if labels.target == "class" else None].append(group)
    random = np.random.default_rng([seed, len(rows)])
    train: list[Raw] = []
    validation: list[Raw] = []
    for key in sorted(strata, key=str):
        members = strata[key]
        wanted = max(1, round(len(members) * share))
        held = min(wanted, len(members) - 1)
        chosen = set(random.permutation(len(members))[:held].tolist())
        for place, group in enumerate(members):
            (validation if place in chosen else train).extend(group)
    if not train or not validation:
        raise DataError(
            f"{name} has {len(rows):,} usable rows, too few to split off a validation part",
            expected="at least two rows of each class, with different texts",
        )
    by_number = attrgetter("row")
    return sorted(train, key=by_number), sorted(validation, key=by_number)


def report(train: Usable, validation: Usable, labels: Labels) -> tuple[dict[str, Any], list[str]]:
    """Return what to tell the user before training: figures for metrics.json, and sentences."""
    classes = balance(train.rows, labels)
    texts = {row.segments for row in train.rows}
    repeated = [row.row for row in validation.rows if row.segments in texts]
    within = len(train.rows) - len(texts)
    total = sum(classes.values())
    shown = ", ".join(f"{name}: {count:,} ({count / total:.0%})" for name, count in list(classes.items())[:12])
    notes = [f"{len(train.rows):,} training rows: {shown}{', …' if len(classes) > 12 else ''}"]
    if repeated:
        notes.append(
            f"{len(repeated):,} of {len(validation.rows):,} validation rows are also in training (the first is "
            f"row {repeated[0]:,}): metrics on them are too good"
        )
    if within:
        notes.append(f"{within:,} training rows repeat the text of another")
    for part, name in ((train, "training"), (validation, "validation")):
        if part.empty or part.unlabelled:
            notes.append(
                f"skipped in {name}: {counted(part.empty, 'row')} without text, "
                f"{part.unlabelled:,} without a label"
            )
    figures = {
        "classes": classes,
        "duplicates_with_validation": len(repeated),
        "duplicates_within_training": within,
        "empty": {"train": train.empty, "validation": validation.empty},
        "unlabelled": {"train": train.unlabelled, "validation": validation.unlabelled},
    }
    return figures, notes
