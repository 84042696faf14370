"""Check rows before a training: empty, copies, balance; and divide them into folds, or split off validation rows.

Rows without any text, pairs that lack one and rows without a label are skipped and counted. Copies of a text,
equal but for Unicode form, case, white space and punctuation, stay together, since a copy on the other side is
learned by heart; one in both training and validation is reported.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set

import numpy as np
import numpy.typing as npt

from headwater.display import counted
from headwater.errors import DataError
from headwater.finetuning.rows.labels import Labels, listed
from headwater.finetuning.rows.row import Raw, Usable, class_name
from headwater.reading import compose, copy_key

# A class with less than this share of a row for validation is rare.
_HALF = 0.5


def keys_of(rows: Iterable[Raw], *, in_order: bool = True) -> list[str]:
    """Return a key of each row that copies of its texts share; without `in_order` also a pair's other order."""
    keys = ([*map(copy_key, row.segments)] for row in rows)
    return ["\x1f".join(sorted(key) if len(key) == 2 and not in_order else key) for key in keys]


def split(
    rows: Sequence[Raw],
    targets: npt.NDArray[np.float64],
    labels: Labels,
    *,
    share: float,
    seed: int,
    name: str,
) -> tuple[list[int], list[int]]:
    """Return the indices of training and validation rows: the same share of the rows of each class.

    Classes whose share is less than half a row are divided together, so that they keep most of their rows. Copies
    stay together; a class with a single text is in training only. Raises DataError if a side is empty.
    """
    train: list[int] = []
    validation: list[int] = []
    strata: defaultdict[str, list[list[int]]] = defaultdict(list)
    for group in _copies(rows, range(len(rows))):
        strata[labels.names[int(targets[group[0]])] if labels.target == "class" else ""].append(group)
    random = np.random.default_rng([seed, len(rows)])
    few: list[list[int]] = []  # of rare classes
    few_rows = 0

    def divide(groups: Sequence[Sequence[int]], wanted: int, most: int) -> None:
        chosen = _chosen(groups, random.permutation(len(groups)), wanted, most=most)
        for number, group in enumerate(groups):
            (validation if number in chosen else train).extend(group)

    for key in sorted(strata):
        members = strata[key]
        size = sum(map(len, members))
        if labels.target == "class" and size * share < _HALF:
            train.extend(members[0])  # every class is in training
            few.extend(members[1:])
            few_rows += size
        else:
            divide(members, max(1, round(size * share)), len(members) - 1)
    divide(few, max(round(few_rows * share), not validation), len(few))
    if not validation and (spare := [group for members in strata.values() for group in members[1:]]):
        validation = sorted(spare, key=len)[0]  # of texts that are all repeated
        train = sorted({*train} - {*validation})
    if not train or not validation:
        raise DataError(
            f"{name} has {len(rows):,} usable rows, too few to split off a validation part",
            expected="at least two rows of each class, with different texts",
        )
    return sorted(train), sorted(validation)


def _copies(rows: Sequence[Raw], indices: Iterable[int]) -> list[list[int]]:
    """Return the indices in groups of copies, in the order in which these first come.

    A pair of texts is a copy of the pair in the other order: some models read them alike.
    """
    indices = list(indices)
    groups: defaultdict[str, list[int]] = defaultdict(list)
    for index, key in zip(indices, keys_of((rows[index] for index in indices), in_order=False), strict=True):
        groups[key].append(index)
    return [*groups.values()]


def folds(
    rows: Sequence[Raw], targets: npt.NDArray[np.float64], seed: int, count: int
) -> npt.NDArray[np.int64] | None:
    """Return (rows,) the fold of each row of a cross-validation.

    Copies are in one fold, and the texts of a class are spread evenly. None for fewer than two texts a fold.
    """
    groups = _copies(rows, np.random.default_rng(seed).permutation(len(rows)).tolist())
    if len(groups) < 2 * count:
        return None
    fold = np.full(len(rows), -1)
    outputs = targets if targets.ndim == 1 else targets.argmax(axis=1)
    for number, group in enumerate(sorted(groups, key=lambda group: outputs[group[0]])):
        fold[group] = number % count
    return fold


def _chosen(groups: Sequence[Sequence[int]], order: Iterable[int], wanted: int, *, most: int) -> set[int]:
    """Return at most `most` groups, drawn in this order, that have about `wanted` rows together."""
    chosen: set[int] = set()
    size = 0
    for number in order:
        if len(chosen) < most and size + len(groups[number]) / 2 <= wanted:  # which is nearer to `wanted`
            chosen.add(int(number))
            size += len(groups[number])
    return chosen


def also_trained_on(part: str, rows: Sequence[Raw], keys: Set[str]) -> list[str]:
    """Return a note on the rows of a part that are copies of training rows."""
    repeated = [row.row for row, key in zip(rows, keys_of(rows), strict=True) if key in keys]
    if not repeated:
        return []
    return [
        f"{len(repeated):,} of {len(rows):,} {part} rows are also in training, equal but for case, white space "
        f"and punctuation (the first is row {repeated[0]:,}): metrics on them are too good"
    ]


def copies_of(
    rows: Sequence[Raw], keys: Sequence[str], targets: npt.NDArray[np.float64], labels: Labels
) -> list[str]:
    """Return notes on training rows that are copies of others, and on copies with different labels."""
    within = len(rows) - len({*keys})
    if not within:
        return []
    notes = [
        f"{within:,} training rows repeat the text of another, but for case, white space and punctuation: copies "
        "stay in one fold"
    ]
    if labels.target == "class":
        first: dict[str, int] = {}
        pairs = [
            (rows[first[key]].row, rows[index].row)
            for index, key in enumerate(keys)
            if targets[first.setdefault(key, index)] != targets[index]
        ]
        if pairs:
            original, copy = pairs[0]
            notes.append(
                f"{counted(len(pairs), 'row')} with another label than a copy of the text: row {copy:,} and "
                f"row {original:,} first"
            )
    return notes


def describe(
    checked: Mapping[str, Usable], labels: Labels, targets: npt.NDArray[np.float64], columns: Sequence[str]
) -> tuple[dict[str, int], list[str]]:
    """Return the number of training rows of each class, and notes for the user on the rows.

    checked: rows by part, "training" among them; targets: those of the training rows; columns: names of columns
    of 0 and 1, each to be a label.
    """
    rows = checked["training"].rows
    classes, notes = _described_labels(rows, labels, targets, columns)
    lists = sum(isinstance(row.label, tuple) for row in rows)
    if labels.target == "labels" and not columns and 0 < lists < len(rows):
        single = len(rows) - lists
        notes.append(f"{counted(lists, 'training row')} with a list of labels, {single:,} with one label alone")
    if labels.target == "class" and lists:
        notes.append(f"{counted(lists, 'training row')} with a list of one label: read as one label a row")
    if labels.target == "labels" and (bare := int((~targets.any(axis=1)).sum())):
        notes.append(f"{counted(bare, 'training row')} with none of the labels")
    for name, part in checked.items():
        if part.empty or part.unlabelled:
            notes.append(
                f"skipped in {name}: {counted(part.empty, 'row')} without text, "
                f"{part.unlabelled:,} without a label"
            )
        if replaced := sum("\ufffd" in "".join((*row.segments, str(row.label))) for row in part.rows):
            notes.append(f"{counted(replaced, 'row')} in {name} with U+FFFD, in place of lost characters")
    return classes, notes


def _described_labels(
    rows: Sequence[Raw], labels: Labels, targets: npt.NDArray[np.float64], columns: Sequence[str]
) -> tuple[dict[str, int], list[str]]:
    """Return the number of training rows with each class, label or answer, and notes on unusual labels."""
    if labels.target == "score":
        lowest, mean, highest = targets.min(), targets.mean(), targets.max()
        return {}, [f"{len(rows):,} training rows: scores from {lowest:.6g} to {highest:.6g}, mean {mean:.6g}"]
    if labels.target == "answer":
        classes = dict(sorted(Counter(class_name(row.label) for row in rows).items()))
    else:
        several = labels.target == "labels"
        counts = targets.sum(axis=0) if several else np.bincount(targets.astype(int), minlength=labels.outputs)
        classes = dict(zip(labels.names, counts.astype(int).tolist(), strict=True))
    total = max(1, len(rows))  # a row may have several labels, or none
    shown = ", ".join(f"{name}: {count:,} ({count / total:.0%})" for name, count in list(classes.items())[:12])
    notes = [f"{len(rows):,} training rows: {shown}{', …' if len(classes) > 12 else ''}"]
    if never := [name for name in map(class_name, map(compose, columns)) if name not in classes]:
        notes.append(f"{counted(len(never), 'label')} left out, without a training row: {listed(never)}")
    if never := [name for name, count in classes.items() if not count]:
        notes.append(f"{counted(len(never), 'label')} kept without a training row: {listed(never)}")
    cases = Counter(name.casefold() for name in classes)
    if same := [name for name in classes if cases[name.casefold()] > 1]:
        notes.append(f"labels that differ only in case are different classes: {', '.join(map(repr, same[:6]))}")
    written: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row in rows if labels.target == "class" else ():
        written[class_name(row.label)][json.dumps(row.label, ensure_ascii=False)] += 1
    for name, spellings in [item for item in written.items() if len(item[1]) > 1][:6]:
        each = ", ".join(f"{spelling} ({count:,})" for spelling, count in spellings.most_common(6))
        notes.append(f"read as one class, {labels.as_named(name)!r}: {each}")
    if lists := [name for name in classes if name.startswith("[") and name.endswith("]")]:
        notes.append(f"a class written as a list: {listed(lists)} (several labels per row: --set target=labels)")
    if single := [name for name, count in classes.items() if count == 1]:
        few = ", ".join(map(repr, single[:5])) + (", …" if len(single) > 5 else "")
        notes.append(
            f"only one training row: {few}; such a class is hardly learned, and a part split off lacks it"
        )
    return classes, notes
