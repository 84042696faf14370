"""The rows of a training by part: read tables, learn what their labels mean, and decide what is measured on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from headwater.errors import DataError
from headwater.finetuning.learning.config import FinetuneConfig
from headwater.finetuning.rows.columns import Columns
from headwater.finetuning.rows.labels import Labels, learn_labels
from headwater.finetuning.rows.read import Unread, read_table
from headwater.finetuning.rows.row import Raw, Seen, Usable, usable
from headwater.finetuning.rows.split import folds, split
from headwater.storage import SILENT, Progress

if TYPE_CHECKING:
    from headwater.model import ModelConfig

# Of "train", "validation" if it is not split off, and the tests: the name in messages, the rows, and, of a file,
# those that cannot be read.
Tables: TypeAlias = Mapping[str, tuple[str, Iterable[Raw]] | tuple[str, Iterable[Raw], Unread]]
# Returns what the labels of the training rows mean.
Learn: TypeAlias = Callable[[list[Raw]], Labels]


@dataclass
class Parts:
    """The checked rows of a training, what their labels mean, and their targets by part.

    names: each part's name in messages. fold: (training rows,), see `split.folds`. cross_validated: whether the
    validation rows are the training rows, each predicted by a model that did not learn from its fold. unread: the
    rows of each file that were skipped, because they cannot be read.
    """

    train: Usable
    validation: Usable
    tests: dict[str, list[Raw]]
    labels: Labels
    targets: dict[str, npt.NDArray[np.float64]]
    split_off: bool
    names: dict[str, str]
    fold: npt.NDArray[np.int64] | None
    cross_validated: bool = False
    unread: dict[str, Unread] = field(default_factory=dict)

    @property
    def rows(self) -> dict[str, list[Raw]]:
        """The rows of all parts, by name."""
        return {"train": self.train.rows, "validation": self.validation.rows, **self.tests}


def read_tables(
    config: FinetuneConfig,
    files: Mapping[str, Path | None],
    *,
    trained: Columns | None = None,
    progress: Progress = SILENT,
) -> tuple[Columns, Tables]:
    """Open the table of each part, "train" first; return the columns of the training rows, and the tables."""
    columns = trained
    tables: dict[str, tuple[str, Iterable[Raw], Unread]] = {}
    for part, path in files.items():
        if path is None:
            continue
        unread = Unread()
        found, rows, _ = read_table(
            path,
            config.task,
            config.columns,
            trained=columns,
            need_label=part != "test",
            limit=config.limit,
            encoding=config.encoding,
            unread=unread,
            progress=progress,
        )
        columns = found if part == "train" else columns
        tables[part] = str(path), map(Raw.composed, rows) if config.compose else rows, unread
    return columns or Columns(), tables


def arrange_parts(
    config: FinetuneConfig,
    tables: Tables,
    seen: Seen | None = None,
    known: Labels | None = None,
    learn: Learn | None = None,
    base: ModelConfig | None = None,
) -> Parts:
    """Check all rows, learn the labels from the training rows, and split off validation if there is none.

    seen: the rows of the base's own fine-tuning, which stay on their side of the split. known: labels of the
    base's head, which keep their order. learn: what to use in place of `learn_labels`. base: few rows of a
    training from it are not split (`FinetuneConfig.cross_validates`).

    A test row without text has no target: it is not measured.
    """
    names = {part: table[0] for part, table in tables.items()}
    left = {part: table[1] for part, table in tables.items()}
    train = usable(left.pop("train"), config.task, names["train"])
    if learn is not None:
        labels = learn(train.rows)
    elif known is not None:
        labels = known.extended(train.rows, names["train"])
    else:
        labels = learn_labels(train.rows, config.task, config.target, names["train"])
    targets = {"train": labels.targets(train.rows, names["train"])}
    texts = len({row.segments for row in train.rows})
    if texts == 1 < len(train.rows):
        raise DataError(
            f"{names['train']} has the same text in all {len(train.rows):,} usable rows",
            expected="texts that differ",
        )
    split_off = "validation" not in left
    fold = folds(train.rows, targets["train"], config.seed)
    cross_validated = (
        split_off and fold is not None and base is not None and seen is None and known is None
    ) and config.cross_validates(len(train.rows), labels.outputs, base)
    if split_off and labels.target == "class" and texts <= len(np.unique(targets["train"])):
        raise DataError(
            f"{names['train']} has one text of each class: nothing can be measured",
            expected="at least two rows of a class, with different texts",
            repair="Give rows to measure on: --validation FILE" if texts > 1 else "",
        )
    if cross_validated:
        validation, targets["validation"] = train, targets["train"]
        names["validation"] = names["train"]
    elif split_off:
        sides = split(
            train.rows,
            targets["train"],
            labels,
            share=config.validation_share,
            seed=config.seed,
            name=names["train"],
            kept=seen.split_of(train.rows) if seen else None,
        )
        kept, held = ([train.rows[place] for place in side] for side in sides)
        train, validation = replace(train, rows=kept), Usable(held)
        targets = {part: targets["train"][side] for part, side in zip(("train", "validation"), sides, strict=True)}
        names["validation"] = names["train"]
        fold = None if fold is None else fold[sides[0]]
    else:
        validation = usable(left.pop("validation"), config.task, names["validation"])
        targets["validation"] = labels.targets(validation.rows, names["validation"])
    tests = {part: list(rows) for part, rows in left.items()}
    for part, rows in tests.items():
        targets[part] = labels.targets(rows, names[part])
        targets[part][[row.is_empty(config.task) for row in rows]] = np.nan
    unread = {part: table[2] for part, table in tables.items() if len(table) == 3}
    return Parts(train, validation, tests, labels, targets, split_off, names, fold, cross_validated, unread)
