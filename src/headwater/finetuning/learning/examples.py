"""`encode`: from rows and a base to examples, as the members of a mixture read them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from headwater.finetuning.learning.bases import Base
from headwater.finetuning.learning.config import POLICY, FinetuneConfig
from headwater.finetuning.learning.linear import Split, sampled
from headwater.finetuning.learning.parts import Part, Parts
from headwater.finetuning.learning.train import row_weights
from headwater.finetuning.model.heads import text_frame
from headwater.finetuning.model.inputs import Encoded, truncation
from headwater.finetuning.model.inputs import encode as encode_rows
from headwater.finetuning.rows.labels import Labels
from headwater.finetuning.rows.row import MemberName

if TYPE_CHECKING:
    from headwater.finetuning.model.heads import TaskModel
    from headwater.finetuning.rows.row import Raw, TaskName
    from headwater.model import Model
    from headwater.tokenizer import Tokenizer

Floats = npt.NDArray[np.float32]
Indices = npt.NDArray[np.intp]
# Makes the task model of gpt1: of a base, its tokenizer, the task, the outputs, the dropout and a seed.
Build = Callable[["Model", "Tokenizer", "TaskName", int, float, int], "TaskModel"]


@dataclass(frozen=True)
class Examples:
    """The rows of a training as its members read them.

    seen: the training rows and, without folds, after them the validation rows, which choose. count: the training
    rows. splits: which of `seen` are learned from, and which are held out from them. weights: (seen,) of each in
    the loss. validation, tests: rows that choose nothing.
    """

    parts: Parts
    base: Base
    members: tuple[MemberName, ...]
    seen: Encoded
    count: int
    splits: list[Split]
    weights: Floats
    validation: Encoded | None
    tests: dict[str, Encoded]
    build: Build | None = None

    @property
    def labels(self) -> Labels:
        """What the outputs mean."""
        return self.parts.labels

    @property
    def rows_seen(self) -> list[Raw]:
        """The rows of `seen`."""
        parts = (self.parts.train, self.parts.validation)
        return [row for part in parts if part for row in part.rows][: len(self.seen)]

    @property
    def crossed(self) -> bool:
        """Whether cross-validation chooses, and all rows are learned from."""
        return self.parts.fold is not None

    @property
    def held(self) -> Indices:
        """The held-out rows, as indices of `seen` in the splits' order."""
        return np.concatenate([held for _, held in self.splits])

    @cached_property
    def importance(self) -> Floats:
        """(seen,) weights of the rows that choose: 0 for one whose class its split has not learned."""
        importance = self.weights.copy()
        if self.labels.target == "class":
            for learn, held in self.splits:
                learned = self.seen.targets[learn[self.weights[learn] > 0]]
                importance[held] *= np.isin(self.seen.targets[held], learned)
        return importance

    @property
    def groups(self) -> npt.NDArray[np.int64]:
        """(held-out rows,): parts of them, each of which is measured by what the others chose."""
        if self.crossed:
            return np.repeat(np.arange(len(self.splits)), [len(held) for _, held in self.splits])
        return np.arange(len(self.splits[0][1])) % POLICY.folds

    @property
    def final(self) -> Indices:
        """The rows that a linear model learns from in the end: validation rows too, if split off."""
        every = len(self.seen) if self.parts.split_off and not self.crossed else self.count
        return linear_sample(np.arange(every))

    @cached_property
    def linear_rows(self) -> Indices:
        """The rows whose features the linear models need, ascending: of very many a sample."""
        learned = linear_sample(np.arange(self.count))
        return np.union1d(np.union1d(learned, self.held), self.final)

    @property
    def left_out(self) -> int:
        """The training rows that linear models do not learn from, because they are many."""
        return self.count - len(linear_sample(np.arange(self.count)))


def linear_sample(rows: Indices) -> Indices:
    """Return the rows that a linear model learns from: of very many a sample."""
    return sampled(rows, POLICY.linear_rows)


def encode(
    parts: Parts,
    base: Base,
    config: FinetuneConfig,
    sample_weight: npt.NDArray[np.float64] | None = None,
    build: Build | None = None,
) -> Examples:
    """Divide the rows of a training, and encode each part as its members read it.

    build: makes the task model of gpt1 in place of GPT-1's own. sample_weight: of each row by its number.
    Raises UsageError for a metric that the labels do not have.
    """
    config.checked_metric(parts.labels)
    members = config.members(base.config)
    parts = parts.divided(config, crossed="gpt1" not in members)
    frame = text_frame(base.tokenizer, base.config, config.task, members)

    def encoded(*read: Part) -> Encoded:
        rows = [row for part in read for row in part.rows]
        targets = np.concatenate([part.targets for part in read])
        return encode_rows(
            rows, config.task, base.tokenizer, base.config.context, targets=targets, name=read[0].name, frame=frame
        )

    train, notes, count = parts.train, list(parts.notes), len(parts.train.rows)
    chooses = parts.validation if parts.fold is None else None
    if chooses is not None and len(chooses.rows) > POLICY.most_validation:
        most, rows = POLICY.most_validation, len(chooses.rows)
        notes.append(f"{most:,} of {rows:,} validation rows are used, drawn at random")
        chooses = chooses.take(sampled(np.arange(rows), most).tolist())
        parts = replace(parts, validation=chooses)
    seen = encoded(train) if chooses is None else encoded(train, chooses)
    if parts.fold is None:
        splits = [(np.arange(count), np.arange(count, len(seen)))]
    else:
        splits = [(np.flatnonzero(parts.fold != n), np.flatnonzero(parts.fold == n)) for n in range(POLICY.folds)]
    learned = train.rows
    if parts.split_off and chooses is not None:  # in the end these are learned from, too
        learned = [*train.rows, *chooses.rows]
    if sample_weight is not None:
        sample_weight = sample_weight[[row.row - 1 for row in learned]]
    weights = np.ones(len(seen), np.float32)
    weights[: len(learned)] = row_weights(config, seen.targets[: len(learned)], parts.labels, sample_weight)
    notes += truncation("training", train.rows, seen.cut[:count])
    if chooses is not None:
        notes += truncation("validation", chooses.rows, seen.cut[count:])
    return Examples(
        replace(parts, notes=notes),
        base,
        members,
        seen,
        count,
        splits,
        weights,
        None if parts.validation is None or chooses is not None else encoded(parts.validation),
        {name: encoded(part) for name, part in parts.tests.items()},
        build,
    )
