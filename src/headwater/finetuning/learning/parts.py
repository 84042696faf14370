"""The parts of a training: rows to train on, to validate on and to test, with their targets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from headwater.finetuning.learning.config import FinetuneConfig
from headwater.finetuning.rows.labels import Labels, learn_labels
from headwater.finetuning.rows.row import Raw, Usable, usable
from headwater.finetuning.rows.seen import Seen
from headwater.finetuning.rows.split import split

# The name in messages and the rows of "train", "validation" if it is not split off, and the tests, by part.
Tables: TypeAlias = Mapping[str, tuple[str, Iterable[Raw]]]


@dataclass
class Parts:
    """The checked rows of a training, what their labels mean, and their targets by part.

    names: each part's name in messages.
    """

    train: Usable
    validation: Usable
    tests: dict[str, list[Raw]]
    labels: Labels
    targets: dict[str, npt.NDArray[np.float64]]
    split_off: bool
    names: dict[str, str]

    @property
    def rows(self) -> dict[str, list[Raw]]:
        """The rows of all parts, by name."""
        return {"train": self.train.rows, "validation": self.validation.rows, **self.tests}


def arrange_parts(
    config: FinetuneConfig, tables: Tables, seen: Seen | None = None, known: Labels | None = None
) -> Parts:
    """Check all rows, learn the labels from the training rows, and split off validation if there is none.

    seen: the rows of the base's own fine-tuning, which stay on their side of the split. known: labels of the
    base's head, which keep their order.

    A test row without text has no target: it is not measured.
    """
    names = {part: name for part, (name, _) in tables.items()}
    unread = {part: rows for part, (_, rows) in tables.items()}
    train = usable(unread.pop("train"), config.task, names["train"])
    if known is None:
        labels = learn_labels(train.rows, config.task, config.target, names["train"])
    else:
        labels = known.extended(train.rows, names["train"])
    targets = {"train": labels.targets(train.rows, names["train"])}
    split_off = "validation" not in unread
    if split_off:
        sides = split(
            train.rows,
            targets["train"],
            labels,
            share=config.validation_share,
            seed=config.training.seed,
            name=names["train"],
            kept=seen.split_of(train.rows) if seen else None,
        )
        kept, held = ([train.rows[place] for place in side] for side in sides)
        train, validation = Usable(kept, train.empty, train.unlabelled), Usable(held)
        targets = {part: targets["train"][side] for part, side in zip(("train", "validation"), sides, strict=True)}
        names["validation"] = names["train"]
    else:
        validation = usable(unread.pop("validation"), config.task, names["validation"])
        targets["validation"] = labels.targets(validation.rows, names["validation"])
    tests = {part: list(rows) for part, rows in unread.items()}
    for part, rows in tests.items():
        targets[part] = labels.targets(rows, names[part])
        targets[part][[row.is_empty(config.task) for row in rows]] = np.nan
    return Parts(train, validation, tests, labels, targets, split_off, names)
