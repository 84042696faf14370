"""What a person should know of a table before training on it: balance, duplicates, empty rows; and the split.

Rows without any text, pairs that lack one and rows without a label are left out and counted. A text that stands in
training and in validation makes the validation figures look better than they are: it is reported, and where the
validation part is split off here, equal texts stay on one side.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headwater.datasets.rows import Raw, Task
from headwater.errors import DataError, counted
from headwater.finetune.examples import Labels, class_name


@dataclass(frozen=True)
class Usable:
    """Rows to learn from, and how many were left out: no text, no label."""

    rows: list[Raw]
    empty: int
    unlabelled: int


def usable(rows: Iterable[Raw], task: Task, name: str) -> Usable:
    """Sort out rows without text or label; raises DataError when none is left."""
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


def is_empty(row: Raw, task: Task) -> bool:
    """Whether a row has nothing to read: no text at all, or one side of a pair missing."""
    texts = row.segments[:2] if task == "choice" else row.segments
    missing = [not text.strip() for text in texts]
    return any(missing) if task in {"entail", "similarity"} else all(missing)


def duplicates(train: Sequence[Raw], validation: Sequence[Raw]) -> list[int]:
    """Row numbers of validation rows whose texts stand in training as well."""
    seen = {row.segments for row in train}
    return [row.row for row in validation if row.segments in seen]


def balance(rows: Sequence[Raw], labels: Labels) -> dict[str, int]:
    """Rows of each class, of each answer, or of each level a score is nearest to."""
    if labels.target == "score":
        levels = np.array(labels.levels)
        nearest = (levels[np.abs(levels - float(str(row.label))).argmin()] for row in rows)
        counted = Counter(f"{level:g}" for level in nearest)
        return {f"{level:g}": counted[f"{level:g}"] for level in labels.levels}
    counted = Counter(class_name(row.label) for row in rows)
    names = labels.names or sorted(counted)
    return {name: counted[name] for name in names}


def split(rows: Sequence[Raw], share: float, seed: int, labels: Labels) -> tuple[list[Raw], list[Raw]]:
    """(training, validation): of each class the same share, at least one text on each side where there are two;
    equal texts stay together."""
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
    return sorted(train, key=_place), sorted(validation, key=_place)


def report(train: Usable, validation: Usable, labels: Labels) -> tuple[dict[str, Any], list[str]]:
    """What is said before training: as figures, and as sentences for a person."""
    classes = balance(train.rows, labels)
    repeated = duplicates(train.rows, validation.rows)
    within = len(train.rows) - len({row.segments for row in train.rows})
    total = sum(classes.values())
    shown = ", ".join(f"{name} {count:,} ({count / total:.0%})" for name, count in list(classes.items())[:12])
    notes = [f"{len(train.rows):,} training rows: {shown}{', …' if len(classes) > 12 else ''}"]
    if repeated:
        notes.append(
            f"{len(repeated):,} of {len(validation.rows):,} validation rows stand in training too (the first is "
            f"row {repeated[0]:,}): figures on them are flattered"
        )
    if within:
        notes.append(f"{within:,} training rows repeat another one's text")
    for part, name in ((train, "training"), (validation, "validation")):
        if part.empty or part.unlabelled:
            notes.append(
                f"left out of {name}: {counted(part.empty, 'row')} without text, "
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


def _place(row: Raw) -> int:
    return row.row
