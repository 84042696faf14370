"""The members of a mixture: how each learns, and its predictions for rows that it has not learned from.

TF-IDF with a linear model; the probe, the same linear model on the base's features; LP-FT (Kumar et al. 2022),
which begins with the probe and tunes all weights but the token embeddings; GPT-1's own head.

A head with random weights would first distort what the base has learned, so LP-FT begins with the probe. The
loss of a probe that separates its rows teaches the base little more. So classes are tuned on cosines between
features and a direction for each class (Wang et al. 2017), and the regression is fitted again on the tuned
features.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.optim.swa_utils import AveragedModel

from headwater.finetuning.learning.bases import poolings, seeds
from headwater.finetuning.learning.config import POLICY, FinetuneConfig
from headwater.finetuning.learning.examples import Examples, Floats, Indices, linear_sample
from headwater.finetuning.learning.linear import (
    PROBE_STRENGTHS,
    PROBE_WIDTH,
    TFIDF_STRENGTHS,
    LinearChoice,
    LinearWeights,
    best_scale,
    choose_linear,
    fit_path,
    logits_of,
    probabilities_of,
)
from headwater.finetuning.learning.train import Reporter, Training, train_task
from headwater.finetuning.model.heads import PooledModel, TaskModel
from headwater.finetuning.model.mixture import mean_loss, mixture_weights, pool
from headwater.finetuning.model.tfidf import Tfidf
from headwater.finetuning.rows.labels import Labels
from headwater.finetuning.rows.row import MemberName, TaskName
from headwater.storage import Progress, storage_errors

if TYPE_CHECKING:
    from headwater.model import Model
    from headwater.tokenizer import Tokenizer

FOLDERS = "folds"  # of a run: each fold's training, until the end


@dataclass(frozen=True)
class Member:
    """A member, whose weight is chosen later.

    held: its probabilities of the held-out rows, in the splits' order. finish: returns it, learned from all rows,
    and the training of its weights. choice: the settings of its linear model. features: (linear rows, features)
    that the probe read.
    """

    held: Floats = field(repr=False)
    finish: Callable[[], tuple[Tfidf | TaskModel, Training | None]]
    choice: LinearChoice | None = None
    features: Floats | None = field(default=None, repr=False)


Members = dict[MemberName, Member]


def _learn_tfidf(examples: Examples, config: FinetuneConfig, reporter: Reporter, members: Members) -> Member:
    """Learn TF-IDF's linear model. Its vocabulary comes from the same rows, without their labels."""
    seen, labels = examples.seen, examples.labels
    reporter.progress.start("TF-IDF of words and characters")
    terms = min(POLICY.terms, max(1_000, POLICY.most_weights // (2 * max(1, labels.outputs))))
    learned = [seen.texts[row] for row in linear_sample(np.arange(examples.count))]
    model = Tfidf.learn(learned, config.task, terms=terms, characters=POLICY.characters)
    features = model.features([seen.texts[row] for row in examples.linear_rows])
    choice, shares, fit = _choose(examples, {"tfidf": features}, TFIDF_STRENGTHS)
    if labels.target == "answer":
        held = [seen.texts[row] for row in examples.held]
        shares = model.shares(logits_of(shares, _line_labels(labels)), held, labels)

    def finish() -> tuple[Tfidf, None]:
        model.weight, model.bias = fit()
        return model, None

    reporter.progress.finish()
    return Member(shares, finish, choice)


def learn_baseline(examples: Examples, config: FinetuneConfig) -> tuple[Tfidf, Floats]:
    """Return TF-IDF's linear model, to compare with, and its probabilities of the held-out rows in their order."""
    member = _learn_tfidf(examples, config, Reporter(), {})
    model, _ = member.finish()
    assert isinstance(model, Tfidf)
    return model, member.held[np.argsort(examples.held, kind="stable")]


def _learn_probe(examples: Examples, config: FinetuneConfig, reporter: Reporter, members: Members) -> Member:
    """Learn the probe from the features of the unchanged base, which reads each row once."""
    labels, base = examples.labels, examples.base
    reporter.progress.start("features of the base")
    model = PooledModel(base.model, config.task, labels.outputs).to(base.model.tokens.weight.device)
    features = model.read_features(examples.seen.take(examples.linear_rows), poolings(base))
    width = model.head.in_features
    strengths = [strength * PROBE_WIDTH / width for strength in PROBE_STRENGTHS]
    choice, shares, fit = _choose(examples, features, strengths)
    model.pooled = choice.pooled

    def finish() -> tuple[TaskModel, None]:
        model.set_head(*fit())
        return model.eval(), None

    reporter.progress.finish()
    return Member(shares, finish, choice, features[choice.pooled])


def _choose(
    examples: Examples, features: Mapping[Any, Any], strengths: Sequence[float]
) -> tuple[LinearChoice, Floats, Callable[[], LinearWeights]]:
    """Choose the linear model on features of the linear rows.

    Return the choice, its probabilities of the held-out rows, and a function that fits it to the final rows. An
    example is a row or, for a choice, one of its answers: right or wrong.
    """
    labels, used = examples.labels, examples.linear_rows
    rows = examples.seen.take(used)
    targets, weights = labels.probabilities(rows), examples.weights[used]
    first = np.arange(len(used) + 1)
    if labels.target == "answer":
        counts, first = np.diff(rows.first), rows.first
        right = np.concatenate([row[:count] for row, count in zip(targets, counts, strict=True)])
        targets, weights = np.stack([1 - right, right], axis=1), np.repeat(weights, counts)

    def lines(chosen: Indices) -> Indices:
        at = np.searchsorted(used, chosen)
        return np.concatenate([np.arange(first[n], first[n + 1]) for n in at])

    splits = [(lines(np.intersect1d(linear_sample(learn), used)), lines(held)) for learn, held in examples.splits]
    choice, shares = choose_linear(features, targets, weights, _line_labels(labels), splits, strengths)

    def fit() -> LinearWeights:
        final = lines(examples.final)
        matrix, several = features[choice.features][final], labels.target == "labels"
        (linear,) = fit_path(matrix, targets[final], weights[final], [choice.strength], several)
        return linear.scaled(choice.scale)

    return choice, shares, fit


def _line_labels(labels: Labels) -> Labels:
    return Labels(target="class", names=["wrong", "right"]) if labels.target == "answer" else labels


class _NotesOnly(Progress):
    """Shows the notes of a training that is a part of a stage, such as warnings."""

    def __init__(self, shown: Progress) -> None:
        self._shown = shown

    def note(self, text: str) -> None:
        """See Progress."""
        self._shown.note(text)


def _learn_lp_ft(
    examples: Examples, config: FinetuneConfig, reporter: Reporter, members: Members
) -> Member | None:
    """Learn LP-FT; None if the mixture of the first fold's rows does not gain by it.

    In cross-validation the model is the mean of the folds' weights (a "soup", Wortsman et al. 2022): as good as
    another training on all rows, which it replaces.
    """
    probe = members.get("probe") or _learn_probe(examples, config, reporter, {})
    others = {name: member.held for name, member in members.items()}
    if not examples.crossed:
        return _learn_lp_ft_once(examples, config, reporter, probe, others)
    shares: list[Floats] = []
    average: AveragedModel | None = None
    training: Training | None = None
    reporter.progress.start("cross-validation", len(examples.splits), "trainings")
    for number, (learn, held) in enumerate(examples.splits):
        out = None
        if reporter.out is not None:  # trackers name a training by its folder
            out = reporter.out / FOLDERS / f"{reporter.out.resolve().name}-{number}"
            with storage_errors(out):
                out.mkdir(parents=True, exist_ok=True)
        fold = replace(reporter, progress=_NotesOnly(reporter.progress), out=out)
        model, training = _tune(examples, config, probe, learn, None, fold)
        shares.append(model.predict(examples.seen.take(held), examples.labels)[0])
        average = average or AveragedModel(model)
        average.update_parameters(model)
        del model  # before the next one takes memory
        reporter.progress.advance(number + 1)
        if number == 0 and others and len(held) >= POLICY.least_rows:
            own = {name: held_shares[: len(held)] for name, held_shares in others.items()}
            tuned = {**own, "lp-ft": _calibrated(shares[0], examples, held)[0]}
            gain = len(held) * (_mixed_loss(examples, own, held) - _mixed_loss(examples, tuned, held))
            if gain <= POLICY.least_gain:
                reporter.progress.finish("tuning the base does not help, and is left out")
                return None
    reporter.progress.finish()
    assert average is not None
    mean = average.module
    assert isinstance(mean, PooledModel)
    calibrated, scale = _calibrated(np.concatenate(shares), examples, examples.held)

    def finish() -> tuple[TaskModel, Training | None]:
        if examples.labels.target == "class":
            _fit_head(mean, examples, probe, np.arange(examples.count))
        _scale_head(mean, scale)
        return mean, training

    return Member(calibrated, finish, probe.choice)


def _learn_lp_ft_once(
    examples: Examples,
    config: FinetuneConfig,
    reporter: Reporter,
    probe: Member,
    others: Mapping[MemberName, Floats],
) -> Member:
    """Learn LP-FT from the training rows of the only split; the held-out rows choose its best state."""
    labels, (learn, held) = examples.labels, examples.splits[0]

    def mixed_loss(shares: Floats) -> float:
        return _mixed_loss(examples, {**others, "lp-ft": _calibrated(shares, examples, held)[0]}, held)

    model, training = _tune(examples, config, probe, learn, (held, mixed_loss), reporter)

    def calibrated() -> tuple[Floats, float, float]:
        shares, scale = _calibrated(model.predict(examples.seen.take(held), labels)[0], examples, held)
        return shares, scale, _mixed_loss(examples, {"lp-ft": shares}, held)

    shares, scale, loss = calibrated()
    if labels.target == "class":  # the regression, if it is better than the directions
        weight, bias = (value.detach().cpu().numpy().copy() for value in (model.head.weight, model.head.bias))
        _fit_head(model, examples, probe, learn)
        fitted = calibrated()
        if fitted[2] < loss:
            shares, scale, _ = fitted
            if examples.parts.split_off:
                _fit_head(model, examples, probe, examples.final)
        else:
            model.set_head(weight, bias)
    _scale_head(model, scale)
    return Member(shares, lambda: (model, training), probe.choice)


def _mixed_loss(examples: Examples, probabilities: Mapping[MemberName, Floats], held: Indices) -> float:
    """Return the loss of held-out rows by the mixture whose weights they choose."""
    labels, targets, importance = examples.labels, examples.seen.targets[held], examples.importance[held]
    weights = mixture_weights(probabilities, targets, importance, labels, POLICY.prior_rows, POLICY.least_weight)
    shares = pool([probabilities[name] for name in weights], list(weights.values()), labels)
    return mean_loss(shares, targets, importance, labels)


def _calibrated(shares: Floats, examples: Examples, held: Indices) -> tuple[Floats, float]:
    """Return probabilities with their logits multiplied by the best factor for held-out rows, and that factor."""
    labels, targets = examples.labels, examples.labels.probabilities(examples.seen.take(held))
    scale = best_scale(shares, targets, examples.importance[held], labels)
    return probabilities_of(logits_of(shares, labels) * np.float32(scale), labels.target == "labels"), scale


def _scale_head(model: PooledModel, scale: float) -> None:
    head = (model.head.weight, model.head.bias)
    model.set_head(*(values.detach().cpu().numpy() * np.float32(scale) for values in head))


def _tune(
    examples: Examples,
    config: FinetuneConfig,
    probe: Member,
    learn: Indices,
    measured: tuple[Indices, Callable[[Floats], float]] | None,
    reporter: Reporter,
) -> tuple[PooledModel, Training]:
    """Tune a copy of the base, from the probe, on the rows `learn`, without dropout.

    Without rows to measure on, the head of classes is fitted again in the end.
    """
    labels, seen, base = examples.labels, examples.seen, examples.base.fresh(dropout=0)
    base.tokens.weight.requires_grad_(False)
    assert probe.choice is not None
    assert probe.features is not None
    model = PooledModel(
        base, config.task, labels.outputs, pooled=probe.choice.pooled, dropout=config.classifier_dropout
    )
    model.to(base.tokens.weight.device).train()
    if labels.target == "class":
        rows = np.intersect1d(learn, examples.linear_rows)
        features = probe.features[np.searchsorted(examples.linear_rows, rows)]
        model.set_directions(features, labels.probabilities(seen.take(rows)))
    else:
        _fit_head(model, examples, probe, learn)
    training = train_task(
        config.for_member("lp-ft"),
        model,
        labels,
        seen.take(learn),
        None if measured is None else seen.take(measured[0]),
        weights=examples.weights[learn],
        mixed_loss=None if measured is None else measured[1],
        reporter=reporter,
    )
    if labels.target == "class" and measured is None:
        _fit_head(model, examples, probe, learn)
    return model, training


def _fit_head(model: PooledModel, examples: Examples, probe: Member, learn: Indices) -> None:
    """Fit the head to the model's features of some rows by the probe's regression."""
    labels, choice, rows = examples.labels, probe.choice, linear_sample(learn)
    assert choice is not None
    encoded, several = examples.seen.take(rows), labels.target == "labels"
    features = model.read_features(encoded, (model.pooled,))[model.pooled]
    targets, weights = labels.probabilities(encoded), examples.weights[rows]
    (linear,) = fit_path(features, targets, weights, [choice.strength], several)
    model.set_head(*linear.scaled(choice.scale))


def _learn_gpt1(examples: Examples, config: FinetuneConfig, reporter: Reporter, members: Members) -> Member:
    """Train GPT-1's head and all weights; the validation rows choose the best state."""
    labels, base, (learn, held) = examples.labels, examples.base, examples.splits[0]
    build = examples.build or _paper_model
    seed = seeds(config.seed)[1]
    model = build(base.fresh(), base.tokenizer, config.task, labels.outputs, config.classifier_dropout, seed)
    validation = examples.seen.take(held)
    training = train_task(
        config.for_member("gpt1"),
        model.to(base.model.tokens.weight.device).train(),
        labels,
        examples.seen.take(learn),
        validation,
        weights=examples.weights[learn],
        reporter=reporter,
    )
    return Member(model.predict(validation, labels)[0], lambda: (model, training))


def _paper_model(
    base: Model, tokenizer: Tokenizer, task: TaskName, outputs: int, dropout: float, seed: int
) -> TaskModel:
    delimiter = tokenizer.task_tokens.delimiter
    return TaskModel(base, task, outputs, dropout=dropout, seed=seed, delimiter=delimiter)


LEARN: dict[MemberName, Callable[[Examples, FinetuneConfig, Reporter, Members], Member | None]] = {
    "tfidf": _learn_tfidf,
    "probe": _learn_probe,
    "lp-ft": _learn_lp_ft,
    "gpt1": _learn_gpt1,
}
