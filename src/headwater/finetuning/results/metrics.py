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
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from headwater.finetuning.rows.row import Target
from headwater.intervals import wilson

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

RESAMPLES = 1_000
CONFIDENCE = 0.95
# Numbers that are drawn at a time: 8 MB for any number of rows and classes.
_CELLS = 1 << 20


def confusion_matrix(truth: Integers, chosen: Integers, classes: int) -> Floats:
    """Return (classes, classes) counts: the row is the true class, the column the predicted one."""
    return np.bincount(truth * classes + chosen, minlength=classes**2).reshape(classes, classes).astype(float)


class Margins(NamedTuple):
    """What the metrics read of predictions, (…, classes) each: right, true and predicted rows."""

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
    return _f1_of_each(Margins(*(one.sum(axis=-1) for one in margins)))


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
# Metrics of margins but the accuracy, by name: of classes, and of several labels a row.
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
) -> dict[str, dict[str, Any]]:
    """Return {metric: {value, interval: [low, high]}} of every metric for labels of this kind.

    truth, decided: (rows,) of scores or indices, or (rows, labels) of 0 and 1. `intervals` cost the most.
    """
    if target == "score":
        return measure_scores(truth, decided, intervals)
    if target == "labels":
        return measure_labels(truth, decided, intervals)
    classes = max(outputs, int(max(truth.max(), decided.max())) + 1)
    return measure_classes(truth.astype(np.int64), decided.astype(np.int64), classes, intervals)


def measure_classes(
    truth: Integers, chosen: Integers, classes: int, intervals: bool = True
) -> dict[str, dict[str, Any]]:
    """Return {metric: {value, interval}} for accuracy, f1, macro_f1 and matthews."""
    from scipy.sparse import csr_matrix

    cells, counts = np.unique(truth * classes + chosen, return_counts=True)
    row, column = np.divmod(cells, classes)
    ones, shape = np.ones(len(cells)), (len(cells), classes)
    sides = ((ones * (row == column), row), (ones, row), (ones, column))
    units = Margins(*(csr_matrix((one, (np.arange(len(cells)), of)), shape=shape) for one, of in sides))
    return _measure(units, counts, _CLASS_METRICS, float((truth == chosen).mean()), intervals)


def measure_labels(truth: Floats, chosen: Floats, intervals: bool = True) -> dict[str, dict[str, Any]]:
    """Return {metric: {value, interval}} for accuracy, micro_f1 and macro_f1: (rows, labels) of 0 and 1.

    accuracy is the share of rows whose labels are all right.
    """
    units, accuracy = Margins(truth * chosen, truth, chosen), float((truth == chosen).all(axis=1).mean())
    return _measure(units, np.ones(len(truth)), _LABEL_METRICS, accuracy, intervals)


def _measure(
    units: Margins, counts: npt.NDArray[Any], metrics: _MarginMetrics, accuracy: float, intervals: bool
) -> dict[str, dict[str, Any]]:
    """Return {metric: {value, interval}} for the accuracy and the other metrics.

    units: the margins of different rows, (units, classes); counts: how many rows are like each of them.
    """
    counted = Margins(*(counts @ one for one in units))
    measured: dict[str, dict[str, Any]] = {"accuracy": {"value": accuracy}}
    measured |= {name: {"value": float(metric(counted))} for name, metric in metrics.items()}
    if not intervals:
        return measured
    random, total = np.random.default_rng(0), int(counts.sum())
    values: dict[str, list[Floats]] = {name: [] for name in metrics}
    together = max(1, _CELLS // max(units.true.shape))
    for start in range(0, RESAMPLES, together):
        drawn = random.multinomial(total, counts / total, min(together, RESAMPLES - start)).astype(float)
        margins = Margins(*(drawn @ one for one in units))
        for name in values:
            values[name].append(metrics[name](margins))
    low, high = measured["accuracy"]["interval"] = list(wilson(round(accuracy * total), total))
    reach = max(accuracy - low, high - accuracy)
    for name, resampled in values.items():
        value, (low, high) = measured[name]["value"], _interval(np.concatenate(resampled))
        if low == high:
            width, least = (2 * reach, -1.0) if name == "matthews" else (reach, 0.0)
            low, high = max(least, value - width), value + width
        measured[name]["interval"] = [min(low, value), min(1.0, max(high, value))]
    return measured


def measure_scores(truth: Floats, predicted: Floats, intervals: bool = True) -> dict[str, dict[str, Any]]:
    """Return {metric: {value, interval}} for pearson and spearman."""
    if not intervals:
        return {name: {"value": float(metric(truth, predicted))} for name, metric in _SCORE_METRICS.items()}
    random = np.random.default_rng(0)
    resampled = np.empty((RESAMPLES, len(_SCORE_METRICS)))
    for number in range(RESAMPLES):
        rows = random.integers(0, len(truth), len(truth))
        resampled[number] = [metric(truth[rows], predicted[rows]) for metric in _SCORE_METRICS.values()]
    return {
        name: {"value": float(metric(truth, predicted)), "interval": _interval(resampled[:, column])}
        for column, (name, metric) in enumerate(_SCORE_METRICS.items())
    }


def _interval(values: Floats) -> list[float]:
    tail = 100 * (1 - CONFIDENCE) / 2
    return np.percentile(values, [tail, 100 - tail]).tolist()


def by_class(truth: npt.NDArray[Any], chosen: npt.NDArray[Any], names: Sequence[str]) -> list[dict[str, Any]]:
    """Return precision, recall, F1, true and predicted rows of each class; an undefined share is 0.

    truth, chosen: (rows,) of indices, or (rows, labels) of 0 and 1.
    """
    from sklearn.metrics import precision_recall_fscore_support

    truth, chosen = truth.astype(np.int64), chosen.astype(np.int64)
    several = chosen.ndim == 2
    predicted = chosen.sum(axis=0) if several else np.bincount(chosen, minlength=len(names))
    figures = precision_recall_fscore_support(truth, chosen, labels=np.arange(len(names)), zero_division=0)
    keys = ("class", "precision", "recall", "f1", "count", "predicted")
    columns = [one.tolist() for one in (*figures, predicted)]
    return [dict(zip(keys, one, strict=True)) for one in zip(names, *columns, strict=True)]


def confused_pairs(truth: Integers, chosen: Integers, names: Sequence[str], most: int) -> list[dict[str, Any]]:
    """Return the pairs of a true and another predicted class with most rows: {"label", "predicted", "count"}."""
    wrong = truth != chosen
    pairs = Counter(zip(truth[wrong].tolist(), chosen[wrong].tolist(), strict=True)).most_common(most)
    return [{"label": names[a], "predicted": names[b], "count": count} for (a, b), count in pairs]
