"""`encode` and `fit`: from rows and a base to examples, and from examples to a mixture of members.

Up to three members learn from the same rows: TF-IDF with a linear model, the probe (the same linear model on the
base's features), and LP-FT (Kumar et al. 2022), which begins with the probe and tunes all weights; GPT-1's own
head for choices. Their predictions of rows that they have not learned from, of the other folds or of validation
rows, give the weights of the mixture and its temperature; then each member that has a weight learns from all rows.

A head with random weights would first distort what the base has learned, so LP-FT begins with the probe. The
loss of a probe that separates its rows teaches the base little more. So classes are tuned on cosines between
features and a direction for each class (Wang et al. 2017), and the regression is fitted again on the tuned
features.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from headwater.finetuning.learning.bases import Base, poolings, seeds
from headwater.finetuning.learning.config import POLICY, FinetuneConfig, Recipe
from headwater.finetuning.learning.linear import (
    PROBE_STRENGTHS,
    PROBE_WIDTH,
    TFIDF_STRENGTHS,
    LinearChoice,
    Split,
    best_scale,
    choose_linear,
    fit_path,
    learned_outputs,
    logits_of,
    probabilities_of,
    sampled,
)
from headwater.finetuning.learning.parts import Part, Parts
from headwater.finetuning.learning.train import Reporter, Training, row_weights, train_task
from headwater.finetuning.model.fine_tuned import FineTuned, TaskDescription, build_head
from headwater.finetuning.model.head import TaskModel
from headwater.finetuning.model.inputs import Encoded, truncation
from headwater.finetuning.model.inputs import encode as encode_rows
from headwater.finetuning.model.mixture import (
    best_temperature,
    best_weights,
    chosen_members,
    cross_fitted,
    losses,
    pool,
)
from headwater.finetuning.model.pooled import Pooled, PooledModel, text_frame
from headwater.finetuning.model.tfidf import Tfidf
from headwater.finetuning.rows.labels import Labels
from headwater.finetuning.rows.row import MemberName, MetricName, TaskName
from headwater.storage import save_array, storage_errors
from headwater.tokenizer import Tokenizer

if TYPE_CHECKING:
    from headwater.finetuning.rows.row import Raw
    from headwater.model import Model

Floats = npt.NDArray[np.float32]
# Makes the task model of gpt1: of a base, its tokenizer, the task, the outputs, the dropout and a seed.
Build = Callable[["Model", Tokenizer, TaskName, int, float, int], TaskModel]
FOLDERS = "folds"  # of a run: what each fold's training predicted, until the end


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
    def held(self) -> npt.NDArray[np.intp]:
        """The places of the held-out rows in `seen`, in the splits' order."""
        return np.concatenate([held for _, held in self.splits])

    @cached_property
    def importance(self) -> Floats:
        """(seen,) weights of rows that choose: 0 for one whose class no row of its split has."""
        targets, held = self.labels.probabilities(self.seen), self.held
        importance = self.weights.copy()
        importance[held] *= (targets[held] * learned_outputs(targets, self.weights, self.splits)).any(axis=1)
        return importance

    @property
    def groups(self) -> npt.NDArray[np.int64]:
        """(held-out rows,): parts of them of which each is measured by what the others chose."""
        if self.crossed:
            return np.repeat(np.arange(len(self.splits)), [len(held) for _, held in self.splits])
        return np.arange(len(self.splits[0][1])) % POLICY.folds

    @property
    def final(self) -> npt.NDArray[np.intp]:
        """The places of the rows that a linear model learns from in the end: validation rows too, if split off."""
        return np.arange(len(self.seen) if self.parts.split_off and not self.crossed else self.count)


@dataclass(frozen=True)
class Member:
    """What was learned of a member: its weight, its probabilities of the held-out rows, and what was chosen for
    it."""

    weight: float
    held: Floats = field(repr=False)
    choice: LinearChoice | None = None
    training: Training | None = None


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
    """A model, and what its training came to.

    measured: the rows that the figures are of. tfidf: the linear model on TF-IDF, also where it has no weight.
    features: what the unchanged base says of the rows seen, which the probe read. left_out: training rows that the
    linear models did not learn from, because they are many. skipped: members that were not trained to the end.
    """

    model: FineTuned
    metric: MetricName
    members: dict[MemberName, Member]
    measured: Measured
    base_name: str
    tfidf: Tfidf | None = None
    features: Floats | None = field(default=None, repr=False)
    left_out: int = 0
    skipped: tuple[MemberName, ...] = ()

    @property
    def weights(self) -> dict[MemberName, float]:
        """The weights of the members in the mixture."""
        return self.model.description.weights

    @property
    def recipe(self) -> Recipe:
        """The recipe that would give this model alone; auto for a mixture."""
        return next(iter(self.weights)) if len(self.weights) == 1 else "auto"

    @property
    def training(self) -> Training | None:
        """The training of the member that tunes weights, if it is in the mixture."""
        trainings = [one.training for one in self.members.values() if one.weight and one.training]
        return trainings[0] if trainings else None


@dataclass(frozen=True)
class _Candidate:
    """A member before its weight is known.

    held: its probabilities of the held-out rows. finish: returns it, learned from all rows. features: of the
    probe.
    """

    held: Floats
    finish: Callable[[], Tfidf | TaskModel]
    choice: LinearChoice | None = None
    training: list[Training] = field(default_factory=list)
    features: dict[Pooled, Floats] = field(default_factory=dict)


def encode(
    parts: Parts,
    base: Base,
    config: FinetuneConfig,
    sample_weight: npt.NDArray[np.float64] | None = None,
    build: Build | None = None,
) -> Examples:
    """Divide the rows of a training, and encode each part as its members read it.

    build: makes the task model of gpt1 in place of GPT-1's own.

    sample_weight: of each row of `parts.train`. Raises UsageError for a metric that the labels do not have.
    """
    config.checked_metric(parts.labels)
    members = config.members(base.config)
    places = {id(row): place for place, row in enumerate(parts.train.rows)}
    parts = parts.divided(config, crossed="gpt1" not in members)
    frame = None if "gpt1" in members or config.task == "choice" else text_frame(base.tokenizer, base.config)

    def encoded(*read: Part) -> Encoded:
        rows = [row for part in read for row in part.rows]
        targets = np.concatenate([part.targets for part in read])
        return encode_rows(
            rows, config.task, base.tokenizer, base.config.context, targets=targets, name=read[0].name, frame=frame
        )

    train, validation = parts.train, parts.validation
    count, chooses = len(train.rows), validation is not None and parts.fold is None
    notes = list(parts.notes)
    if validation is not None and chooses and len(validation.rows) > POLICY.most_validation:
        notes.append(
            f"{POLICY.most_validation:,} of {len(validation.rows):,} validation rows are used, drawn at random"
        )
        validation = validation.take(sampled(np.arange(len(validation.rows)), POLICY.most_validation).tolist())
        parts = replace(parts, validation=validation)
    seen = encoded(train, validation) if chooses and validation is not None else encoded(train)
    if parts.fold is not None:
        fold = parts.fold
        splits = [(np.flatnonzero(fold != n), np.flatnonzero(fold == n)) for n in range(POLICY.folds)]
    else:
        splits = [(np.arange(count), np.arange(count, len(seen)))]
    learned = train.rows
    if parts.split_off and chooses and validation is not None:  # in the end these are learned from, too
        learned = [*train.rows, *validation.rows]
    if sample_weight is not None:
        sample_weight = sample_weight[[places[id(row)] for row in learned]]
    weights = np.ones(len(seen), np.float32)
    weights[: len(learned)] = row_weights(config, seen.targets[: len(learned)], parts.labels, sample_weight)
    notes += truncation("training", train.rows, seen.cut[:count])
    if validation is not None and chooses:
        notes += truncation("validation", validation.rows, seen.cut[count:])
    return Examples(
        replace(parts, notes=notes),
        base,
        members,
        seen,
        count,
        splits,
        weights,
        None if validation is None or chooses else encoded(validation),
        {name: encoded(part) for name, part in parts.tests.items()},
        build,
    )


def fit(examples: Examples, config: FinetuneConfig, reporter: Reporter | None = None) -> Fitted:
    """Learn from examples: the members, their weights, and the temperature of their mixture."""
    reporter = reporter or Reporter()
    labels, held = examples.labels, examples.held
    targets, importance = examples.seen.targets[held], examples.importance[held]
    candidates: dict[MemberName, _Candidate] = {}
    skipped: list[MemberName] = []
    for name in examples.members:
        candidate = _LEARN[name](examples, config, reporter, candidates)
        if candidate is None:
            skipped.append(name)
        else:
            candidates[name] = candidate
    each = {name: one.held for name, one in candidates.items()}

    def mixture(rows: npt.NDArray[np.bool_]) -> tuple[dict[MemberName, float], float]:
        """Return the weights and the temperature that some of the held-out rows choose."""
        own = {name: shares[rows] for name, shares in each.items()}
        weights = _weights(own, targets[rows], importance[rows], labels)
        shares = pool([own[name] for name in weights], list(weights.values()), labels)
        counted = importance[rows] > 0
        return weights, best_temperature(shares[counted], targets[rows][counted], labels, POLICY.least_rows)

    def choose(rows: npt.NDArray[np.bool_]) -> Callable[[npt.NDArray[np.bool_]], Floats]:
        weights, temperature = mixture(rows)
        return lambda others: pool(
            [each[name][others] for name in weights], list(weights.values()), labels, temperature
        )

    weights, temperature = mixture(np.ones(len(held), np.bool_))
    if set(np.unique(examples.groups)) == {*range(POLICY.folds)}:
        probabilities = cross_fitted(examples.groups, choose)
    else:
        probabilities = choose(np.ones(len(held), np.bool_))(np.ones(len(held), np.bool_))
    finished = {name: candidates[name].finish() for name in weights}
    tfidf = finished.get("tfidf") or ("tfidf" in candidates and candidates["tfidf"].finish()) or None
    assert tfidf is None or isinstance(tfidf, Tfidf)
    tuned = [
        member.model for name, member in finished.items() if isinstance(member, TaskModel) and name != "probe"
    ]
    base = (tuned or [examples.base.model])[0]
    choices = (one.choice for name, one in candidates.items() if name != "tfidf")
    pooled = next((choice.features for choice in choices if choice), "mean")
    description = TaskDescription(
        task=config.task,
        labels=labels,
        columns=examples.parts.columns,
        weights=weights,
        temperature=temperature,
        pooled="last" if pooled == "last" else "mean",
        dropout=config.classifier_dropout,
    )
    model = FineTuned(description, examples.base.tokenizer, base.eval(), finished)
    members = {
        name: Member(weights.get(name, 0.0), one.held, one.choice, one.training[-1] if one.training else None)
        for name, one in candidates.items()
    }
    read = candidates["probe"].features if "probe" in candidates else {}
    return Fitted(
        model,
        config.checked_metric(labels),
        members,
        _measured(examples, model, members, probabilities),
        examples.base.name,
        tfidf,
        next(iter(read.values())) if read else None,
        max(0, examples.count - len(_linear_rows(np.arange(examples.count)))) if read or tfidf else 0,
        tuple(skipped),
    )


def _weights(
    probabilities: dict[MemberName, Floats], targets: npt.NDArray[np.float64], importance: Floats, labels: Labels
) -> dict[MemberName, float]:
    """Return the members of the mixture and their weights: those of less than the least weight are dropped."""
    names = list(probabilities)
    while True:
        shares = [probabilities[name] for name in names]
        weights = best_weights(shares, targets, importance, labels, POLICY.prior_rows)
        kept = chosen_members(weights, POLICY.least_weight)
        if len(kept) == len(names):
            return dict(zip(names, weights, strict=True))
        names = [names[place] for place in kept]


def _measured(
    examples: Examples, model: FineTuned, members: dict[MemberName, Member], probabilities: Floats
) -> Measured:
    """Return the rows that the figures are of: a validation table that chose nothing, else the held-out rows."""
    parts, order = examples.parts, np.argsort(examples.held, kind="stable")
    if examples.validation is not None and parts.validation is not None:
        return Measured(parts.validation, model.probabilities(examples.validation), {}, crossed=False, chose=False)
    part = parts.train if examples.crossed else parts.validation
    assert part is not None
    each = {name: one.held[order] for name, one in members.items()}
    return Measured(part, probabilities[order], each, crossed=examples.crossed, chose=True)


def _linear_rows(places: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """Return the places that a linear model learns from: of very many a sample."""
    return sampled(places, POLICY.linear_rows)


def _learn_tfidf(
    examples: Examples, config: FinetuneConfig, reporter: Reporter, candidates: dict[MemberName, _Candidate]
) -> _Candidate:
    """Learn TF-IDF's linear model. Its vocabulary, which no label decides, is that of the rows learned from."""
    seen, labels = examples.seen, examples.labels
    reporter.progress.start("TF-IDF of words and characters")
    learned = _linear_rows(np.arange(examples.count))
    terms = min(POLICY.terms, max(1_000, POLICY.most_weights // (2 * max(1, labels.outputs))))
    model = Tfidf.learn(
        [seen.texts[place] for place in learned], config.task, terms=terms, characters=POLICY.characters
    )
    used = np.union1d(learned, np.union1d(examples.held, _linear_rows(examples.final)))
    texts = [seen.texts[place] for place in used]
    features = model.features(texts)
    lines, targets, weights = _lines(examples, used, texts)
    splits = [(lines(np.intersect1d(_linear_rows(learn), used)), lines(held)) for learn, held in examples.splits]
    choice, shares = choose_linear(
        {"tfidf": features}, targets, weights, _line_labels(labels), splits, TFIDF_STRENGTHS
    )
    if labels.target == "answer":
        held = [seen.texts[place] for place in examples.held]
        shares = model.shares(logits_of(shares, _line_labels(labels)), held, labels)

    def finish() -> Tfidf:
        rows = lines(_linear_rows(examples.final))
        several = labels.target == "labels"
        (linear,) = fit_path(features[rows], targets[rows], weights[rows], [choice.strength], several)
        model.weight, model.bias = linear.scaled(choice.scale)
        return model

    reporter.progress.finish()
    return _Candidate(shares, finish, choice)


def learn_baseline(examples: Examples, config: FinetuneConfig) -> tuple[Tfidf, Floats]:
    """Return TF-IDF's linear model, to compare with, and its probabilities of the held-out rows in their order."""
    candidate = _learn_tfidf(examples, config, Reporter(), {})
    model = candidate.finish()
    assert isinstance(model, Tfidf)
    return model, candidate.held[np.argsort(examples.held, kind="stable")]


def _lines(
    examples: Examples, used: npt.NDArray[np.intp], texts: Sequence[tuple[str, ...]]
) -> tuple[Callable[[npt.NDArray[np.intp]], npt.NDArray[np.intp]], Floats, Floats]:
    """Return the lines of a linear model for some rows by their places, and the targets and weights of all lines.

    A line is a row or, of a choice, an answer: whether it is the right one.
    """
    at = np.searchsorted
    targets, weights = examples.labels.probabilities(examples.seen.take(used)), examples.weights[used]
    if examples.labels.target != "answer":
        return (lambda places: at(used, places)), targets, weights
    counts = np.array([len(row) - 2 for row in texts])
    first = np.cumsum(counts) - counts
    right = np.concatenate([row[:count] for row, count in zip(targets, counts, strict=True)])

    def lines(places: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        return np.concatenate([np.arange(first[n], first[n] + counts[n]) for n in at(used, places)])

    return lines, np.stack([1 - right, right], axis=1), np.repeat(weights, counts)


def _line_labels(labels: Labels) -> Labels:
    return Labels(target="class", names=["wrong", "right"]) if labels.target == "answer" else labels


def _learn_probe(
    examples: Examples, config: FinetuneConfig, reporter: Reporter, candidates: dict[MemberName, _Candidate]
) -> _Candidate:
    """Learn the probe from the features of the unchanged base, which reads each row once."""
    labels, seen, base = examples.labels, examples.seen, examples.base
    reporter.progress.start("features of the base")
    used = np.union1d(
        np.union1d(_linear_rows(np.arange(examples.count)), examples.held), _linear_rows(examples.final)
    )
    reader = PooledModel(base.model, config.task, labels.outputs).to(base.model.tokens.weight.device)
    features = reader.read_features(seen.take(used) if len(used) < len(seen) else seen, poolings(base))
    targets, weights = labels.probabilities(seen.take(used)), examples.weights[used]
    width = next(iter(features.values())).shape[1]
    splits = [
        (np.searchsorted(used, np.intersect1d(_linear_rows(learn), used)), np.searchsorted(used, held))
        for learn, held in examples.splits
    ]
    strengths = [one * PROBE_WIDTH / width for one in PROBE_STRENGTHS]
    choice, shares = choose_linear(features, targets, weights, labels, splits, strengths)
    pooling: Pooled = "last" if choice.features == "last" else "mean"

    def finish() -> TaskModel:
        rows = np.searchsorted(used, _linear_rows(examples.final))
        (linear,) = fit_path(
            features[pooling][rows], targets[rows], weights[rows], [choice.strength], labels.target == "labels"
        )
        model = PooledModel(base.model, config.task, labels.outputs, pooled=pooling)
        model.to(base.model.tokens.weight.device).set_head(*linear.scaled(choice.scale))
        return model.eval()

    reporter.progress.finish()
    return _Candidate(shares, finish, choice, features={pooling: features[pooling]})


def _learn_lp_ft(
    examples: Examples, config: FinetuneConfig, reporter: Reporter, candidates: dict[MemberName, _Candidate]
) -> _Candidate | None:
    """Learn LP-FT; None if the first fold shows that it will have no weight."""
    labels, held = examples.labels, examples.held
    probe = candidates.get("probe") or _learn_probe(examples, config, reporter, {})
    others = {name: one.held for name, one in candidates.items()}
    trainings: list[Training] = []

    def mixed(rows: npt.NDArray[np.bool_], shares: Floats) -> dict[MemberName, float]:
        own = {name: one[rows] for name, one in others.items()}
        places = held[rows]
        return _weights(
            {**own, "lp-ft": shares}, examples.seen.targets[places], examples.importance[places], labels
        )

    if examples.crossed:
        all_shares = np.empty((len(held), labels.outputs), np.float32)
        start = 0
        reporter.progress.start("cross-validation", len(examples.splits), "trainings")
        for number, (learn, left) in enumerate(examples.splits):
            rows = np.zeros(len(held), np.bool_)
            rows[start : start + len(left)] = True
            start += len(left)
            all_shares[rows] = _fold(examples, config, probe, learn, left, number, reporter)
            reporter.progress.advance(number + 1)
            if (
                number == 0
                and others
                and "lp-ft" not in mixed(rows, _calibrated(all_shares[rows], examples, left)[0])
            ):
                reporter.progress.finish("lp-ft would have no weight")
                return None
        reporter.progress.finish()
        shares, scale = _calibrated(all_shares, examples, held)

        def finish() -> TaskModel:
            model, training = _tune(examples, config, probe, np.arange(examples.count), None, reporter)
            trainings.append(training)
            _scale_head(model, scale)
            return model

        return _Candidate(shares, finish, probe.choice, trainings)

    def mixed_loss(shares: Floats) -> float:
        rows = np.ones(len(held), np.bool_)
        shares, _ = _calibrated(shares, examples, held)
        weights = mixed(rows, shares)
        every = {**others, "lp-ft": shares}
        pooled = pool([every[name] for name in weights], list(weights.values()), labels)
        return float(losses(pooled, examples.seen.targets[held], labels).mean())

    learn, left = examples.splits[0]
    model, training = _tune(examples, config, probe, learn, (left, mixed_loss), reporter)
    trainings.append(training)

    def calibrated() -> tuple[Floats, float, float]:
        shares, scale = _calibrated(model.predict(examples.seen.take(left), labels)[0], examples, held)
        return shares, scale, float(losses(shares, examples.seen.targets[held], labels).mean())

    shares, scale, loss = calibrated()
    if labels.target == "class":  # the regression, if it is better than the directions
        weight, bias = (one.detach().cpu().numpy().copy() for one in (model.head.weight, model.head.bias))
        _fit_head(model, examples, probe, learn)
        fitted = calibrated()
        if fitted[2] < loss:
            shares, scale, _ = fitted
            if len(examples.final) > examples.count:
                _fit_head(model, examples, probe, examples.final)
        else:
            model.set_head(weight, bias)
    _scale_head(model, scale)
    return _Candidate(shares, lambda: model, probe.choice, trainings)


def _calibrated(shares: Floats, examples: Examples, places: npt.NDArray[np.intp]) -> tuple[Floats, float]:
    """Return probabilities with their logits multiplied by the best factor for held-out rows, and that factor."""
    labels, wanted = examples.labels, examples.labels.probabilities(examples.seen)[places]
    scale = best_scale(shares, wanted, examples.importance[places], labels)
    return probabilities_of(logits_of(shares, labels) * np.float32(scale), labels.target == "labels"), scale


def _scale_head(model: TaskModel, scale: float) -> None:
    weight, bias = (one.detach().cpu().numpy() * np.float32(scale) for one in (model.head.weight, model.head.bias))
    assert isinstance(model, PooledModel)
    model.set_head(weight, bias)


def _fold(
    examples: Examples,
    config: FinetuneConfig,
    probe: _Candidate,
    learn: npt.NDArray[np.intp],
    left: npt.NDArray[np.intp],
    number: int,
    reporter: Reporter,
) -> Floats:
    """Return the probabilities of a fold's rows by LP-FT without them, from a file of the run if it is there."""
    path = None if reporter.out is None else reporter.out / FOLDERS / f"{number}.npy"
    if path is not None and path.is_file():
        with suppress(ValueError, EOFError):  # of a process that was killed while it wrote
            return np.asarray(np.load(path), np.float32)
    model, _ = _tune(examples, config, probe, learn, None, Reporter())
    shares = model.predict(examples.seen.take(left), examples.labels)[0]
    if path is not None:
        with storage_errors(path):
            path.parent.mkdir(exist_ok=True)
        save_array(path, shares)
    return shares


def _tune(
    examples: Examples,
    config: FinetuneConfig,
    probe: _Candidate,
    learn: npt.NDArray[np.intp],
    measured: tuple[npt.NDArray[np.intp], Callable[[Floats], float]] | None,
    reporter: Reporter,
) -> tuple[PooledModel, Training]:
    """Tune all weights of a copy of the base, from the probe, on the rows `learn`.

    Without rows to measure on, the head of classes is fitted again in the end.
    """
    labels, choice = examples.labels, probe.choice
    assert choice is not None
    model = build_head(
        "lp-ft",
        examples.base.fresh(),
        examples.base.tokenizer,
        TaskDescription(
            task=config.task,
            labels=labels,
            pooled="last" if choice.features == "last" else "mean",
            dropout=config.classifier_dropout,
        ),
    )
    assert isinstance(model, PooledModel)
    model.to(examples.base.model.tokens.weight.device).train()
    train = examples.seen.take(learn) if len(learn) < len(examples.seen) else examples.seen
    targets = labels.probabilities(train)
    rows = _linear_rows(np.arange(len(learn)))
    if labels.target == "class":
        (features,) = probe.features.values()
        own = features[learn] if len(features) == len(examples.seen) else None
        if own is None:
            own = model.read_features(train.take(rows), (model.pooled,))[model.pooled]
            model.set_directions(own, targets[rows])
        else:
            model.set_directions(own, targets)
    else:
        _fit_head(model, examples, probe, learn)
    keys = config.model_copy(update={"recipe": "lp-ft"})
    if measured is not None and config.recipe == "auto":
        keys = keys.model_copy(update={"patience": config.patience or POLICY.patience})
    training = train_task(
        keys,
        model,
        labels,
        train,
        None if measured is None else examples.seen.take(measured[0]),
        weights=examples.weights[learn],
        mixed_loss=None if measured is None else measured[1],
        reporter=reporter,
    )
    if labels.target == "class" and measured is None:
        _fit_head(model, examples, probe, learn)
    return model, training


def _fit_head(model: PooledModel, examples: Examples, probe: _Candidate, places: npt.NDArray[np.intp]) -> None:
    """Fit the head to the model's features of some rows by the probe's regression."""
    labels, choice, rows = examples.labels, probe.choice, _linear_rows(places)
    assert choice is not None
    encoded = examples.seen.take(rows)
    features = model.read_features(encoded, (model.pooled,))[model.pooled]
    (linear,) = fit_path(
        features,
        labels.probabilities(encoded),
        examples.weights[rows],
        [choice.strength],
        labels.target == "labels",
    )
    model.set_head(*linear.scaled(choice.scale))


def _learn_gpt1(
    examples: Examples, config: FinetuneConfig, reporter: Reporter, candidates: dict[MemberName, _Candidate]
) -> _Candidate:
    """Train GPT-1's head and all weights; the validation rows choose the best state."""
    labels, base = examples.labels, examples.base
    build = examples.build or _paper_model
    seed = seeds(config.seed)[1]
    model = build(base.fresh(), base.tokenizer, config.task, labels.outputs, config.classifier_dropout, seed)
    model.to(base.model.tokens.weight.device)
    learn, left = examples.splits[0]
    held = examples.seen.take(left)
    keys = config.model_copy(update={"recipe": "gpt1"})
    if config.recipe == "auto":
        keys = keys.model_copy(update={"patience": config.patience or POLICY.patience})
    training = train_task(
        keys,
        model.train(),
        labels,
        examples.seen.take(learn),
        held,
        weights=examples.weights[learn],
        reporter=reporter,
    )
    return _Candidate(model.predict(held, labels)[0], lambda: model, training=[training])


def _paper_model(
    base: Model, tokenizer: Tokenizer, task: TaskName, outputs: int, dropout: float, seed: int
) -> TaskModel:
    delimiter = tokenizer.task_tokens.delimiter
    return TaskModel(base, task, outputs, dropout=dropout, seed=seed, delimiter=delimiter)


_LEARN: dict[
    MemberName,
    Callable[[Examples, FinetuneConfig, Reporter, dict[MemberName, _Candidate]], _Candidate | None],
] = {"tfidf": _learn_tfidf, "probe": _learn_probe, "lp-ft": _learn_lp_ft, "gpt1": _learn_gpt1}
