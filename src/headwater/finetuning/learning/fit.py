"""`fit`: from examples to a mixture of members.

The members' predictions of rows that they have not learned from, of the other folds or of validation rows, give
the weights of the mixture and its temperature. Then each member that has a weight learns from all rows, but LP-FT
of few rows, which is the mean of its folds' models.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from headwater.finetuning.learning.config import POLICY, FinetuneConfig, Recipe
from headwater.finetuning.learning.examples import Examples, Floats
from headwater.finetuning.learning.members import LEARN, Member
from headwater.finetuning.learning.parts import Part
from headwater.finetuning.learning.train import Reporter, Training
from headwater.finetuning.model.fine_tuned import FineTuned, TaskDescription
from headwater.finetuning.model.heads import TaskModel
from headwater.finetuning.model.mixture import best_temperature, mixture_weights, pool
from headwater.finetuning.model.tfidf import Tfidf
from headwater.finetuning.rows.row import MemberName


@dataclass(frozen=True)
class Measured:
    """Rows that no member has learned from, and their probabilities by the mixture and by each member.

    crossed: whether they are training rows, each predicted by models of the other folds. chose: whether they chose
    the members and their weights; each part of them then has those that the other parts chose.
    """

    part: Part
    probabilities: Floats = field(repr=False)
    members: dict[MemberName, Floats] = field(repr=False)
    crossed: bool
    chose: bool


@dataclass(frozen=True)
class Fitted:
    """A model, the members that were learned, and the rows that the figures are of.

    training: of the tuned weights, if any. tfidf: the linear model on TF-IDF, even if its weight is 0.
    """

    model: FineTuned
    members: dict[MemberName, Member]
    measured: Measured
    training: Training | None
    tfidf: Tfidf | None

    @property
    def weights(self) -> dict[MemberName, float]:
        """The weights of the members in the mixture."""
        return self.model.description.weights

    @property
    def recipe(self) -> Recipe:
        """The recipe that would give this model alone; auto for a mixture."""
        return next(iter(self.weights)) if len(self.weights) == 1 else "auto"


def fit(examples: Examples, config: FinetuneConfig, reporter: Reporter | None = None) -> Fitted:
    """Learn from examples: the members, their weights, and the temperature of their mixture."""
    reporter = reporter or Reporter()
    labels, held = examples.labels, examples.held
    targets, importance = examples.seen.targets[held], examples.importance[held]
    members: dict[MemberName, Member] = {}
    for name in examples.members:
        if (learned := LEARN[name](examples, config, reporter, members)) is not None:
            members[name] = learned

    def mixed(rows: npt.NDArray[np.bool_], weights: dict[MemberName, float], temperature: float = 1.0) -> Floats:
        each = [members[name].held[rows] for name in weights]
        return pool(each, list(weights.values()), labels, temperature)

    def choose(rows: npt.NDArray[np.bool_]) -> tuple[dict[MemberName, float], float]:
        """Return the weights and the temperature that some of the held-out rows choose."""
        each = {name: member.held[rows] for name, member in members.items()}
        weights = mixture_weights(
            each, targets[rows], importance[rows], labels, POLICY.prior_rows, POLICY.least_weight
        )
        rows = rows & (importance > 0)
        return weights, best_temperature(mixed(rows, weights), targets[rows], labels, POLICY.least_rows)

    every, groups = np.ones(len(held), np.bool_), examples.groups
    weights, temperature = choose(every)
    probabilities = mixed(every, weights, temperature)
    if {*groups.tolist()} == {*range(POLICY.folds)}:  # else the rows are too few to be divided
        for group in range(POLICY.folds):
            probabilities[groups == group] = mixed(groups == group, *choose(groups != group))
    finished = {name: members[name].finish() for name in weights}
    model = _model(
        examples, config, {name: own for name, (own, _) in finished.items()}, members, weights, temperature
    )
    tfidf = model.members.get("tfidf") or ("tfidf" in members and members["tfidf"].finish()[0]) or None
    assert tfidf is None or isinstance(tfidf, Tfidf)
    training = next((training for _, training in finished.values() if training), None)
    return Fitted(model, members, _measured(examples, model, members, probabilities), training, tfidf)


def _model(
    examples: Examples,
    config: FinetuneConfig,
    finished: dict[MemberName, Tfidf | TaskModel],
    members: dict[MemberName, Member],
    weights: dict[MemberName, float],
    temperature: float,
) -> FineTuned:
    """Return the mixture; its base is the tuned one, if there is one."""
    tuned = (own.model for name, own in finished.items() if isinstance(own, TaskModel) and name != "probe")
    choices = (member.choice for name, member in members.items() if name != "tfidf")
    description = TaskDescription(
        task=config.task,
        labels=examples.labels,
        columns=examples.parts.columns,
        weights=weights,
        temperature=temperature,
        pooled=next((choice.pooled for choice in choices if choice), "mean"),
        dropout=config.classifier_dropout,
    )
    return FineTuned(description, examples.base.tokenizer, next(tuned, examples.base.model).eval(), finished)


def _measured(
    examples: Examples, model: FineTuned, members: dict[MemberName, Member], probabilities: Floats
) -> Measured:
    """Return the rows that the figures are of: a validation table that chose nothing, else the held-out rows."""
    parts, order = examples.parts, np.argsort(examples.held, kind="stable")
    if examples.validation is not None and parts.validation is not None:
        return Measured(parts.validation, model.probabilities(examples.validation), {}, crossed=False, chose=False)
    part = parts.train if examples.crossed else parts.validation
    assert part is not None
    each = {name: member.held[order] for name, member in members.items()}
    return Measured(part, probabilities[order], each, crossed=examples.crossed, chose=True)
