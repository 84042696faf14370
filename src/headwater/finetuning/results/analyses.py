"""The results of a fitted model: figures with intervals, comparisons, labels that look wrong, and mistakes.

Each function takes what `fit` returned and the examples, returns a typed value and changes neither.
`FinetuneResults` has all of them, and is written as metrics.json. A comparison is paired, on the same rows, with
the interval of the difference: "better" needs an interval without 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from headwater.display import counted
from headwater.finetuning.learning.config import POLICY, FinetuneConfig, Recipe
from headwater.finetuning.learning.examples import Examples
from headwater.finetuning.learning.fit import Fitted
from headwater.finetuning.learning.linear import TFIDF_STRENGTHS, choose_linear, sampled
from headwater.finetuning.learning.members import learn_baseline
from headwater.finetuning.learning.train import Training
from headwater.finetuning.model.fine_tuned import FineTuned, decide
from headwater.finetuning.model.mixture import pool
from headwater.finetuning.results.explanation import Piece, explain
from headwater.finetuning.results.metrics import (
    ClassFigures,
    Confusion,
    Reliability,
    Score,
    by_class,
    confused_pairs,
    measure_decisions,
    paired_difference,
    reliability,
)
from headwater.finetuning.rows.labels import Labels
from headwater.finetuning.rows.row import MemberName, MetricName, Raw, Target, TaskName
from headwater.finetuning.rows.split import folds
from headwater.intervals import wilson

Floats = npt.NDArray[np.float32]
Verdict = Literal["better", "worse", "not apart"]
METRICS_FILE, DOUBTFUL_FILE = "metrics.json", "doubtful-labels.jsonl"
BASELINE = "TF-IDF of words and characters"
_FEW_ROWS = 10  # with fewer, no figure is worth much
_MOST_PAIRS, _RAREST, _MISTAKES = 20, 5, 12
# A label is doubted if models of other rows prefer another by _MARGIN. The accuracy must close _GOOD_ENOUGH of the
# gap between the commonest class's and 1, and the models must recognise that share of the class.
_MARGIN, _GOOD_ENOUGH = 0.2, 0.4


@dataclass(frozen=True)
class BaselineComparison:
    """The baseline's figure on the same rows, and the model's figure minus the baseline's."""

    name: str
    value: float
    interval: list[float]
    difference: float
    difference_interval: list[float]

    @property
    def verdict(self) -> Verdict:
        """The verdict on the model that the interval of the difference supports."""
        low, high = self.difference_interval
        return "better" if low > 0 else "worse" if high < 0 else "not apart"


@dataclass(frozen=True)
class Figures:
    """The measurements on the rows of a part: `labelled` of `count` have a text and a label."""

    count: int
    labelled: int
    scores: dict[str, Score] = field(default_factory=dict)
    calibration: Reliability | None = None
    baseline: BaselineComparison | None = None


@dataclass(frozen=True)
class MemberFigures:
    """A member's weight in the mixture, and its own figure on the rows that chose the weights."""

    name: MemberName
    weight: float
    score: Score | None


@dataclass(frozen=True)
class Doubt:
    """A row whose label looks wrong, and the label that the models of other rows prefer."""

    row: int
    label: str
    suggested: str
    p_label: float
    p_suggested: float
    texts: list[str]


@dataclass(frozen=True)
class Doubts:
    """The most doubtful of `searched` rows, the most doubtful first; `reason`: why no row was searched."""

    searched: int
    count: int
    rows: list[Doubt] = field(default_factory=list)
    reason: str = ""


@dataclass(frozen=True)
class Mistake:
    """A row that was predicted wrongly, with its words and how much each changes the prediction."""

    row: int
    label: str
    predicted: str
    text: str
    difference: float | None
    pieces: list[Piece] = field(repr=False)


@dataclass(frozen=True)
class FinetuneResults:
    """All results of a fitted model.

    crossed, chose: as of `Measured`. chance, majority: the accuracy of a uniform guess and of the commonest class.
    rarest: classes with the fewest training rows, the number of rows and F1 of each. left_out: training rows that
    the linear models did not learn from.
    """

    task: TaskName
    target: Target
    metric: MetricName
    recipe: Recipe
    base: str
    members: list[MemberFigures]
    temperature: float
    measured: Figures
    crossed: bool
    chose: bool
    chance: float | None
    majority: float | None
    tests: dict[str, Figures]
    classes: list[ClassFigures]
    confused: list[Confusion]
    rarest: list[tuple[str, int, float]]
    doubtful: Doubts
    mistakes: list[Mistake]
    training: Training | None
    train_rows: int
    left_out: int
    notes: list[str]
    warnings: list[str]

    @property
    def score(self) -> Score:
        """The metric on the measured rows."""
        return self.measured.scores[self.metric]

    def to_dict(self) -> dict[str, Any]:
        """Return the content of metrics.json."""
        content = asdict(self)
        first = {name: content.pop(name) for name in ("task", "target", "metric", "recipe", "base")}
        for name in ("rarest", "left_out"):
            del content[name]
        measured, training, tests = (content.pop(name) for name in ("measured", "training", "tests"))
        rows, crossed = content.pop("train_rows"), content.pop("crossed")
        for mistake in content["mistakes"]:
            del mistake["pieces"]
        content = first | self.score | content
        content |= {
            "count": self.measured.count,
            "cross_validated": crossed,
            "counts": {"train": rows, "validation": 0 if crossed else self.measured.count},
            "tests": {name: _without_none(figures.pop("scores") | figures) for name, figures in tests.items()},
            "baseline": measured["baseline"],
            "scores": measured["scores"],
            "calibration": measured["calibration"],
        }
        content |= {name: measured["scores"].get(name, {}).get("value") for name in ("accuracy", "macro_f1")}
        if training is not None:
            content |= training | {
                "learning_rate": {"value": training["learning_rate"], "reason": training["reason"]}
            }
            del content["reason"]
        return _without_none(content)


def _without_none(content: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in content.items() if value is not None}


def analyse(
    fitted: Fitted, examples: Examples, config: FinetuneConfig, tests: Mapping[str, Floats]
) -> FinetuneResults:
    """Return all figures of a fitted model; tests: its probabilities of the test rows by part."""
    measured, labels = fitted.measured, fitted.model.labels
    name = config.checked_metric(labels)
    tfidf, held = fitted.tfidf, measured.members.get("tfidf")
    if tfidf is None and config.baseline:
        tfidf, held = learn_baseline(examples, config)
    if tfidf is not None and (held is None or not measured.chose):
        held = tfidf.probabilities([row.segments for row in measured.part.rows], labels)
    figures = figures_of(labels, name, measured.part.targets, measured.probabilities, held)
    tested = {}
    for part, encoded in examples.tests.items():
        others = None if tfidf is None else tfidf.probabilities(encoded.texts, labels)
        tested[part] = figures_of(labels, name, encoded.targets, tests[part], others)
    decided = decide(labels, measured.probabilities)
    classes, confused, rarest = _classes(labels, measured.part.targets, decided, examples.parts.classes)
    members = [
        MemberFigures(
            member,
            fitted.weights.get(member, 0.0),
            measure_decisions(
                labels.target, measured.part.targets, decide(labels, measured.members[member]), labels.outputs
            )[name]
            if member in measured.members
            else None,
        )
        for member in fitted.members
    ]
    chance, majority = _guesses(labels, examples, measured.part.targets, measured.part.rows)
    return FinetuneResults(
        config.task,
        labels.target,
        name,
        fitted.recipe,
        examples.base.name,
        members,
        fitted.model.description.temperature,
        figures,
        measured.crossed,
        measured.chose,
        chance,
        majority,
        tested,
        classes,
        confused,
        rarest,
        doubts(fitted, examples, config),
        mistakes(fitted.model, measured.part.rows, measured.part.targets, measured.probabilities),
        fitted.training,
        examples.count,
        examples.left_out if tfidf is not None or "probe" in fitted.members else 0,
        examples.parts.notes,
        _warnings(labels, figures, decided, measured.part.targets, chance),
    )


def figures_of(
    labels: Labels,
    metric: MetricName,
    targets: npt.NDArray[np.float64],
    probabilities: Floats,
    baseline: Floats | None,
) -> Figures:
    """Return the figures of a part on its rows with a target, next to the baseline's on the same rows."""
    known = np.isfinite(targets).reshape(len(targets), -1).all(axis=1)
    if not known.any():
        return Figures(len(targets), 0)
    truth, shares = targets[known], probabilities[known]
    decided = decide(labels, shares)
    scores = measure_decisions(labels.target, truth, decided, labels.outputs)
    if labels.target == "answer":
        scores = {"accuracy": scores["accuracy"]}
    compared = None
    if baseline is not None:
        others = decide(labels, baseline[known])
        own, other = scores[metric], measure_decisions(labels.target, truth, others, labels.outputs)[metric]
        compared = BaselineComparison(
            BASELINE,
            other["value"],
            other["interval"],
            own["value"] - other["value"],
            [*paired_difference(metric, labels.target, truth, others, decided, labels.outputs)],
        )
    reliable = None if labels.target == "score" else reliability(labels.target, truth, shares)
    return Figures(len(targets), int(known.sum()), scores, reliable, compared)


def _classes(
    labels: Labels, targets: npt.NDArray[np.float64], decided: npt.NDArray[np.float64], rows: Mapping[str, int]
) -> tuple[list[ClassFigures], list[Confusion], list[tuple[str, int, float]]]:
    """Return the figures of each class, the pairs most often confused, and the rarest classes."""
    if labels.target == "labels":
        return by_class(targets, decided, labels.names), [], []
    if labels.target != "class":
        return [], [], []
    truth, chosen = targets.astype(np.int64), decided.astype(np.int64)
    classes = by_class(truth, chosen, labels.names)
    rarest = sorted(((c.name, rows.get(c.name, 0), c.f1) for c in classes), key=lambda entry: entry[1])
    return classes, confused_pairs(truth, chosen, labels.names, _MOST_PAIRS), rarest[:_RAREST]


def _guesses(
    labels: Labels, examples: Examples, targets: npt.NDArray[np.float64], rows: Sequence[Raw]
) -> tuple[float | None, float | None]:
    """Return the accuracy of a uniform guess and of the commonest training class."""
    if labels.target not in ("class", "answer"):
        return None, None
    learned = examples.seen.targets[: examples.count].astype(np.int64)
    common = Counter(learned.tolist()).most_common(1)[0][0]
    if labels.target == "class":
        return 1 / labels.outputs, float((targets == common).mean())
    return float(np.mean([1 / (len(row.segments) - 2) for row in rows])), float((targets == common).mean())


def _warnings(
    labels: Labels,
    figures: Figures,
    decided: npt.NDArray[np.float64],
    targets: npt.NDArray[np.float64],
    chance: float | None,
) -> list[str]:
    """Warn of figures on very few rows, figures not above chance, and predictions of a single class."""
    warnings = []
    if figures.count < _FEW_ROWS:
        rows = counted(figures.count, "row")
        warnings.append(f"{rows} cannot tell a good model from a bad one: give --validation FILE, or more rows")
    accuracy = figures.scores.get("accuracy")
    if chance is not None and accuracy and accuracy["interval"][0] <= chance and accuracy["value"] < 1:
        warnings.append(
            f"accuracy {accuracy['value']:.3f} is not clearly above chance, {chance:.3f}: do not rely on it"
        )
    if labels.target == "class" and len(set(decided.tolist())) == 1 and len(set(targets.tolist())) > 1:
        warnings.append(
            f"the model predicts {labels.names[int(decided[0])]!r} for all {len(decided):,} measured rows: give "
            "more rows of the other classes, or --set class_weight=balanced"
        )
    return warnings


def doubts(fitted: Fitted, examples: Examples, config: FinetuneConfig) -> Doubts:
    """Return the rows whose label looks wrong to models of other rows (Northcutt et al. 2021); classes only.

    With few rows, the mixture of the cross-validation judges, else TF-IDF and the probe at the chosen strengths,
    by cross-validation of at most POLICY.doubted_rows rows.
    """
    labels, measured = fitted.model.labels, fitted.measured
    if labels.target != "class" or not config.doubtful:
        return Doubts(0, 0)
    if examples.crossed and measured.chose:
        rows, targets, shares = measured.part.rows, measured.part.targets, measured.probabilities
    else:
        judged = _judged(fitted, examples, config)
        if judged is None:
            return Doubts(0, 0)
        rows, targets, shares = judged
    label_ids, suggested = targets.astype(np.int64), shares.argmax(axis=1)
    right = int((label_ids == suggested).sum())
    common = float(np.bincount(label_ids).max() / len(label_ids))
    needed = common + _GOOD_ENOUGH * (1 - common)
    if wilson(right, len(label_ids))[0] < needed:
        accuracy = f"accuracy {right / len(label_ids):.2f}, which is not clearly above {needed:.2f}"
        return Doubts(len(rows), 0, [], f"the models are not good enough to doubt a label ({accuracy})")
    indices = np.arange(len(rows))
    own, largest = shares[indices, label_ids], shares[indices, suggested]
    known = _known_classes(label_ids, suggested, labels.outputs)
    order = np.argsort(own - largest, kind="stable")
    order = order[(largest[order] - own[order] >= _MARGIN) & known[label_ids[order]]]
    listed = [
        Doubt(
            rows[index].row,
            labels.names[label_ids[index]],
            labels.names[suggested[index]],
            round(float(own[index]), 4),
            round(float(largest[index]), 4),
            list(rows[index].segments),
        )
        for index in order[: config.doubtful].tolist()
    ]
    return Doubts(len(rows), len(order), listed)


def _known_classes(
    label_ids: npt.NDArray[np.int64], suggested: npt.NDArray[np.int64], classes: int
) -> npt.NDArray[np.bool_]:
    """Return (classes,) whether the models surely recognise enough rows of each to doubt the others."""
    right = np.bincount(label_ids[label_ids == suggested], minlength=classes)
    total = np.bincount(label_ids, minlength=classes)
    return np.array(
        [count > 0 and wilson(hits, count)[0] >= _GOOD_ENOUGH for hits, count in zip(right, total, strict=True)]
    )


def _judged(
    fitted: Fitted, examples: Examples, config: FinetuneConfig
) -> tuple[list[Raw], npt.NDArray[np.float64], Floats] | None:
    """Return a sample of the training rows, their targets, and their probabilities by linear models of others."""
    if fitted.tfidf is None:
        return None
    rows = examples.parts.train.rows
    indices = sampled(np.arange(len(rows)), POLICY.doubted_rows)
    sample, targets, labels = [rows[index] for index in indices], examples.seen.targets[indices], examples.labels
    fold = folds(sample, targets, config.seed, POLICY.folds)
    if fold is None:
        return None
    splits = [(np.flatnonzero(fold != n), np.flatnonzero(fold == n)) for n in range(POLICY.folds)]
    held = np.concatenate([part for _, part in splits])
    wanted, weights = labels.probabilities(examples.seen.take(indices)), examples.weights[indices]
    matrices: list[tuple[Any, Sequence[float]]] = []
    names: tuple[MemberName, ...] = ("tfidf", "probe")
    for name in names:
        member = fitted.members.get(name)
        choice = None if member is None else member.choice
        if name == "tfidf":
            strengths = [choice.strength] if choice else [TFIDF_STRENGTHS[1]]
            matrices.append((fitted.tfidf.features([row.segments for row in sample]), strengths))
        elif choice and member and member.features is not None and not examples.left_out:
            matrices.append((member.features[indices], [choice.strength]))
    each = [
        choose_linear({"features": matrix}, wanted, weights, labels, splits, strengths)[1]
        for matrix, strengths in matrices
    ]
    shares = np.empty_like(each[0])
    shares[held] = pool(each, [1 / len(each)] * len(each), labels)
    return sample, targets, shares


def mistakes(
    model: FineTuned, rows: Sequence[Raw], targets: npt.NDArray[np.float64], probabilities: Floats
) -> list[Mistake]:
    """Return the most confident mistakes, or the largest errors of scores, each with its explanation."""
    labels, decided = model.labels, decide(model.labels, probabilities)
    if labels.target == "score":
        order = np.argsort(-np.abs(decided - targets), kind="stable")[:_MISTAKES]
    else:
        order = np.argsort(-probabilities.max(axis=1), kind="stable")
        right = (decided == targets).reshape(len(decided), -1).all(axis=1)[order]
        order = order[~right][:_MISTAKES]
    listed = []
    for index in order:
        row, shares, difference = rows[index], probabilities[index], None
        answers = shares[: len(row.segments) - 2] if labels.target == "answer" else shares
        prediction, output = model.prediction(row.row, answers), int(answers.argmax())
        if labels.target == "score":
            score = float(decided[index])
            predicted, difference = f"{score:.6g}", round(score - float(targets[index]), 6)
        elif labels.target == "labels" and not prediction.label:
            predicted = "none"
        else:
            predicted = f"{labels.as_named(prediction.label)} ({answers[output]:.0%})"
        text, pieces = " ".join(" ".join(row.segments).split()), explain(model, row.segments, output)
        listed.append(Mistake(row.row, labels.as_named(row.label), predicted, text, difference, pieces))
    return listed
