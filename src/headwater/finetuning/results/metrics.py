"""The metrics of the paper's tasks, each with a 95 % interval.

Accuracy is a share and has Wilson's interval, which has a width even if all predictions are right. The others have
a bootstrap interval: rows are drawn again. The metrics of classes read only the margins of the confusion matrix,
and equal rows are drawn together, so this is fast for any number of rows and takes little memory for any number of
classes. If every resample gives the same value (all predictions right, all wrong, or all of one class), the
interval reaches as far around the value as Wilson's does around the accuracy.
GPT-1 (Radford et al. 2018), table 4: Matthews for CoLA, F1 for MRPC and QQP, Pearson for STS-B.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NotRequired, TypeAlias, TypedDict

import numpy as np
import numpy.typing as npt

from headwater.finetuning.rows.row import MetricName, Target
from headwater.intervals import Z95, of_paired_shares, wilson

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

RESAMPLES = 1_000
_TAIL = 100 * (1 - 0.95) / 2  # per cent
_TAILS = (_TAIL, 100 - _TAIL)
# Numbers that are drawn at a time: 8 MB for any number of rows and classes.
_CELLS = 1 << 20
# Bins of equal width of a calibration error; the shares of rows, the most confident first, that are shown.
_BINS, _COVERAGE = 15, (1.0, 0.95, 0.9, 0.8, 0.7, 0.5)
_PAIRED = 300  # resamples of a difference
_NEAR = 1 - 1e-9  # of a correlation to 1
_FEWEST_PAIRS = 3  # a correlation of no more has no interval


class Score(TypedDict):
    """A metric's value and 95 % interval."""

    value: float
    interval: NotRequired[list[float]]


def confusion_matrix(truth: Integers, chosen: Integers, classes: int) -> Floats:
    """Return (classes, classes) counts: the row is the true class, the column the predicted one."""
    return np.bincount(truth * classes + chosen, minlength=classes**2).reshape(classes, classes).astype(float)


class Margins(NamedTuple):
    """The counts that the metrics need, (…, classes) each: right, true and predicted rows."""

    right: Any
    true: Any
    predicted: Any


def _accuracy(margins: Margins) -> Floats:
    shares: Floats = margins.right.sum(axis=-1) / margins.true.sum(axis=-1)
    return shares


def _f1(margins: Margins) -> Floats:
    each = _f1_of_each(margins)
    return each[..., -1] if each.shape[-1] == 2 else _macro_f1(margins)


def _macro_f1(margins: Margins) -> Floats:
    """Return the mean over the classes that occur, in labels or predictions, as scikit-learn's."""
    occur = (margins.true + margins.predicted > 0).sum(axis=-1)
    mean: Floats = _f1_of_each(margins).sum(axis=-1) / np.maximum(occur, 1)
    return mean


def _micro_f1(margins: Margins) -> Floats:
    """Return the F1 over the labels of all rows."""
    return _f1_of_each(Margins(*(counts.sum(axis=-1) for counts in margins)))


def _f1_of_each(margins: Margins) -> Floats:
    both = margins.true + margins.predicted
    return np.divide(2 * margins.right, both, out=np.zeros_like(both), where=both > 0)


def _matthews(margins: Margins) -> Floats:
    right, truth, chosen = margins
    total = truth.sum(axis=-1)
    covariance = right.sum(axis=-1) * total - (truth * chosen).sum(axis=-1)
    scale = np.sqrt((total**2 - (truth**2).sum(axis=-1)) * (total**2 - (chosen**2).sum(axis=-1)))
    return np.divide(covariance, scale, out=np.zeros_like(covariance), where=scale > 0)


def pearson(first: Floats, second: Floats, weights: Floats | None = None) -> Floats:
    """Return the correlation along the last axis, of examples with these weights; 0 if one side is constant."""
    first = first - np.average(first, axis=-1, weights=weights, keepdims=True)
    second = second - np.average(second, axis=-1, weights=weights, keepdims=True)
    share = 1.0 if weights is None else weights
    scale = np.sqrt((share * first**2).sum(axis=-1) * (share * second**2).sum(axis=-1))
    product = (share * first * second).sum(axis=-1)
    return np.divide(product, scale, out=np.zeros_like(product), where=scale > 0)


def spearman(first: Floats, second: Floats) -> Floats:
    """Return the correlation of the ranks of two (examples,) arrays."""
    from scipy.stats import rankdata

    return pearson(rankdata(first), rankdata(second))


_MarginMetrics: TypeAlias = Mapping[str, Callable[[Margins], Floats]]
# Metrics of margins but the accuracy, by name: of classes, and of several labels per row.
_CLASS_METRICS: _MarginMetrics = {"f1": _f1, "macro_f1": _macro_f1, "matthews": _matthews}
_LABEL_METRICS: _MarginMetrics = {
    "micro_f1": _micro_f1,
    "macro_f1": lambda margins: _f1_of_each(margins).mean(axis=-1),
}
_SCORE_METRICS = {"pearson": pearson, "spearman": spearman}


def _on_confusion_matrix(metric: Callable[[Margins], Floats]) -> Callable[[Floats], Floats]:
    return lambda confusion: metric(
        Margins(np.diagonal(confusion, axis1=-2, axis2=-1), confusion.sum(axis=-1), confusion.sum(axis=-2))
    )


# The metrics by name: functions of a confusion matrix, or of true and predicted scores.
METRICS: Mapping[str, Callable[..., Floats]] = {
    **{name: _on_confusion_matrix(metric) for name, metric in {"accuracy": _accuracy, **_CLASS_METRICS}.items()},
    **_SCORE_METRICS,
}


def matthews(confusion: Floats) -> Floats:
    """Return Matthews' correlation for any number of classes (Gorodkin 2004); 0 where it is undefined."""
    return METRICS["matthews"](confusion)


def measure_decisions(
    target: Target, truth: Floats, decided: Floats, outputs: int, *, intervals: bool = True
) -> dict[str, Score]:
    """Return {metric: {value, interval: [low, high]}} of every metric for labels of this kind.

    truth, decided: (rows,) of scores or indices, or (rows, labels) of 0 and 1, whose accuracy is the share of rows
    with all labels right. `intervals` cost the most.
    """
    if target == "score":
        return {name: _correlation(metric, truth, decided, intervals) for name, metric in _SCORE_METRICS.items()}
    accuracy = float((truth == decided).reshape(len(truth), -1).all(axis=1).mean())
    if target == "labels":
        margins = Margins(truth * decided, truth, decided)
        return _measure(margins, np.ones(len(truth)), _LABEL_METRICS, accuracy, intervals)
    from scipy.sparse import csr_matrix

    classes = max(outputs, int(max(truth.max(), decided.max())) + 1)
    cells, counts = np.unique(truth.astype(np.int64) * classes + decided.astype(np.int64), return_counts=True)
    row, column = np.divmod(cells, classes)
    ones, shape = np.ones(len(cells)), (len(cells), classes)
    sides = ((ones * (row == column), row), (ones, row), (ones, column))
    units = Margins(*(csr_matrix((values, (np.arange(len(cells)), of)), shape=shape) for values, of in sides))
    return _measure(units, counts, _CLASS_METRICS, accuracy, intervals)


def _correlation(
    metric: Callable[[Floats, Floats], Floats], truth: Floats, predicted: Floats, intervals: bool
) -> Score:
    """Return a correlation, with its interval on Fisher's scale."""
    value = float(metric(truth, predicted))
    if not intervals:
        return {"value": value}
    if len(truth) <= _FEWEST_PAIRS:
        return {"value": value, "interval": [-1.0, 1.0]}
    middle, reach = np.arctanh(np.clip(value, -_NEAR, _NEAR)), Z95 / (len(truth) - 3) ** 0.5
    return {"value": value, "interval": [float(np.tanh(middle - reach)), float(np.tanh(middle + reach))]}


def _measure(
    units: Margins, counts: npt.NDArray[Any], metrics: _MarginMetrics, accuracy: float, intervals: bool
) -> dict[str, Score]:
    """Return {metric: {value, interval}} for the accuracy and the other metrics.

    units: the margins of different rows, (units, classes); counts: how many rows are like each of them.
    """
    counted = Margins(*(counts @ unit for unit in units))
    measured: dict[str, Score] = {"accuracy": {"value": accuracy}}
    measured |= {name: {"value": float(metric(counted))} for name, metric in metrics.items()}
    if not intervals:
        return measured
    random, total = np.random.default_rng(0), int(counts.sum())
    values: dict[str, list[Floats]] = {name: [] for name in metrics}
    together = max(1, _CELLS // max(units.true.shape))
    for start in range(0, RESAMPLES, together):
        drawn = random.multinomial(total, counts / total, min(together, RESAMPLES - start)).astype(float)
        margins = Margins(*(drawn @ unit for unit in units))
        for name in values:
            values[name].append(metrics[name](margins))
    low, high = measured["accuracy"]["interval"] = list(wilson(round(accuracy * total), total))
    reach = max(accuracy - low, high - accuracy)
    for name, resampled in values.items():
        value, (low, high) = measured[name]["value"], np.percentile(np.concatenate(resampled), _TAILS).tolist()
        if low == high:
            width, least = (2 * reach, -1.0) if name == "matthews" else (reach, 0.0)
            low, high = max(least, value - width), value + width
        measured[name]["interval"] = [min(low, value), min(1.0, max(high, value))]
    return measured


def paired_difference(
    metric: MetricName, target: Target, truth: Floats, first: Floats, second: Floats, outputs: int
) -> tuple[float, float]:
    """Return the interval of a metric's difference on the same rows, second minus first decisions.

    The accuracy has Newcombe's interval, other metrics one of resampled rows.
    """
    if metric == "accuracy":
        right = [(choice == truth).reshape(len(truth), -1).all(axis=1).astype(float) for choice in (first, second)]
        return of_paired_shares(list(zip(*(hits.tolist() for hits in right), strict=True)))
    random, differences = np.random.default_rng(0), []
    for _ in range(_PAIRED):
        rows = random.integers(0, len(truth), len(truth))
        before, after = (
            measure_decisions(target, truth[rows], decided[rows], outputs, intervals=False)[metric]["value"]
            for decided in (first, second)
        )
        differences.append(after - before)
    low, high = np.percentile(differences, _TAILS).tolist()
    return low, high


@dataclass(frozen=True)
class ClassFigures:
    """Precision, recall and F1 of a class (0 where undefined), and its numbers of true and predicted rows."""

    name: str
    precision: float
    recall: float
    f1: float
    count: int
    predicted: int


def by_class(truth: npt.NDArray[Any], chosen: npt.NDArray[Any], names: Sequence[str]) -> list[ClassFigures]:
    """Return the figures of each class; truth, chosen: (rows,) of indices, or (rows, labels) of 0 and 1."""
    from sklearn.metrics import precision_recall_fscore_support

    truth, chosen = truth.astype(np.int64), chosen.astype(np.int64)
    predicted = chosen.sum(axis=0) if chosen.ndim == 2 else np.bincount(chosen, minlength=len(names))
    figures = precision_recall_fscore_support(truth, chosen, labels=np.arange(len(names)), zero_division=0)
    columns = [values.tolist() for values in (*figures, predicted)]
    return [ClassFigures(*row) for row in zip(names, *columns, strict=True)]


@dataclass(frozen=True)
class Confusion:
    """The number of rows of one class that were predicted as another."""

    label: str
    predicted: str
    count: int


def confused_pairs(truth: Integers, chosen: Integers, names: Sequence[str], most: int) -> list[Confusion]:
    """Return the pairs of a true and another predicted class with most rows."""
    wrong = truth != chosen
    pairs = Counter(zip(truth[wrong].tolist(), chosen[wrong].tolist(), strict=True)).most_common(most)
    return [Confusion(names[a], names[b], count) for (a, b), count in pairs]


@dataclass(frozen=True)
class Coverage:
    """The accuracy of the most confident share of the rows, and the probability from which a row belongs to it."""

    share: float
    threshold: float
    accuracy: float


@dataclass(frozen=True)
class Reliability:
    """Calibration: `ece` is the mean difference between confidence and accuracy over bins of confidence."""

    rows: int
    ece: float
    coverage: list[Coverage]


def reliability(target: Target, targets: Floats, probabilities: npt.NDArray[np.float32]) -> Reliability:
    """Return how reliable probabilities are, of rows that all have a target; each label of several counts.

    The expected calibration error is defined by Naeini et al. (2015).
    """
    if target == "labels":
        confidence = np.maximum(probabilities, 1 - probabilities).ravel()
        right = ((probabilities >= 0.5) == (targets > 0)).ravel()
    else:
        confidence, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == targets
    bins = np.minimum((confidence * _BINS).astype(int), _BINS - 1)
    gaps = np.bincount(bins, confidence - right, minlength=_BINS)
    order = np.argsort(-confidence, kind="stable")
    accuracy = right[order].cumsum() / np.arange(1, len(right) + 1)
    coverage = []
    for share in _COVERAGE:
        last = max(1, round(share * len(right))) - 1
        coverage.append(Coverage(share, float(confidence[order[last]]), float(accuracy[last])))
    return Reliability(len(targets), float(np.abs(gaps).sum() / len(right)), coverage)
