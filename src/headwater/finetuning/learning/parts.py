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
from headwater.finetuning.model.fine_tuned import FineTuned
from headwater.finetuning.rows.columns import Columns
from headwater.finetuning.rows.labels import Labels, learn_labels
from headwater.finetuning.rows.read import Unread, read_table
from headwater.finetuning.rows.row import Raw, Seen, Usable, usable
from headwater.finetuning.rows.split import folds, split
from headwater.storage import Progress

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
    config: FinetuneConfig, model: Path, files: Mapping[str, Path | None], progress: Progress
) -> tuple[Columns, Tables]:
    """Open the table of each part, "train" first; return the columns of the training rows, and the tables.

    A training that keeps the head of `model` finds the columns by the names that they had there.
    """
    columns = FineTuned.columns_of(model) if config.keep_head else None
    tables: dict[str, tuple[str, Iterable[Raw], Unread]] = {}
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
        columns = table.found if part == "train" else columns
        tables[part] = str(path), map(Raw.composed, table.rows) if config.compose else table.rows, table.unread
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
    tests = {part: table[1] for part, table in tables.items() if part not in ("train", "validation")}
    name = names["train"]
    train = usable(tables["train"][1], config.task, name)
    if learn is not None:
        labels = learn(train.rows)
    elif known is not None:
        labels = known.extended(train.rows, name)
    else:
        labels = learn_labels(train.rows, config.task, config.target, name)
    targets = {"train": labels.targets(train.rows, name)}
    fold = folds(train.rows, targets["train"], config.seed)
    split_off = "validation" not in tables
    _require_different_texts(train.rows, targets["train"], labels, name, split_off)
    cross_validated = (
        split_off and fold is not None and base is not None and seen is None and known is None
    ) and config.cross_validates(len(train.rows), labels.outputs, base)
    names.setdefault("validation", name)
    if not split_off:
        validation = usable(tables["validation"][1], config.task, names["validation"])
        targets["validation"] = labels.targets(validation.rows, names["validation"])
    elif cross_validated:
        validation, targets["validation"] = train, targets["train"]
    else:
        kept = seen.split_of(train.rows) if seen else None
        share, seed = config.validation_share, config.seed
        sides = split(train.rows, targets["train"], labels, share=share, seed=seed, name=name, kept=kept)
        validation = Usable([train.rows[place] for place in sides[1]])
        train = replace(train, rows=[train.rows[place] for place in sides[0]])
        targets = {part: targets["train"][side] for part, side in zip(("train", "validation"), sides, strict=True)}
        fold = None if fold is None else fold[sides[0]]
    measured = {part: list(rows) for part, rows in tests.items()}
    for part, rows in measured.items():
        targets[part] = labels.targets(rows, names[part])
        targets[part][[row.is_empty(config.task) for row in rows]] = np.nan
    unread = {part: table[2] for part, table in tables.items() if len(table) == 3}
    return Parts(train, validation, measured, labels, targets, split_off, names, fold, cross_validated, unread)


def _require_different_texts(
    rows: list[Raw], targets: npt.NDArray[np.float64], labels: Labels, name: str, split_off: bool
) -> None:
    """Raise DataError if all rows have one text, or if no row of a class can be split off to measure on."""
    texts = len({row.segments for row in rows})
    if texts == 1 < len(rows):
        raise DataError(f"{name} has the same text in all {len(rows):,} usable rows", expected="texts that differ")
    if split_off and labels.target == "class" and texts <= len(np.unique(targets)):
        raise DataError(
            f"{name} has one text of each class: nothing can be measured",
            expected="at least two rows of a class, with different texts",
            repair="Give rows to measure on: --validation FILE" if texts > 1 else "",
        )
