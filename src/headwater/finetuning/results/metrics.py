"""The metrics of the paper's tasks, each with a 95 % interval.

Accuracy is a share and has Wilson's interval, which has a width even if all predictions are right. The others have
a bootstrap interval. F1 and Matthews' correlation are functions of the confusion matrix, and resampling examples
draws that matrix from a multinomial: exact, and fast for any number of examples. If every resample gives the same
value (all predictions right, all wrong, or all of one class), matrices are drawn from the posterior of
`_without_spread` instead. Pearson's and Spearman's correlations, and
F1 of several labels a row, resample examples.
GPT-1 (Radford et al. 2018), table 4: Matthews for CoLA, F1 for MRPC and QQP, Pearson for STS-B.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headwater.intervals import wilson

Floats = npt.NDArray[np.float64]

RESAMPLES = 1_000
CONFIDENCE = 0.95
# Cells of the confusion matrices that are drawn at a time: 8 MB for any number of classes.
_CELLS = 1 << 20
# With more classes the posterior has too many cells: the interval is that of the accuracy, scaled to the value.
_POSTERIOR_CLASSES = 64


def confusion_matrix(truth: npt.NDArray[np.int64], chosen: npt.NDArray[np.int64], classes: int) -> Floats:
    """Return (classes, classes) counts: the row is the true class, the column the predicted one."""
    return np.bincount(truth * classes + chosen, minlength=classes**2).reshape(classes, classes).astype(float)


class Margins(NamedTuple):
    """What the metrics read of a confusion matrix, (…, classes) each: right, true and predicted rows."""

    right: Floats
    true: Floats
    predicted: Floats


def margins_of(confusion: Floats) -> Margins:
    """Return the margins of (…, classes, classes)."""
    return Margins(np.diagonal(confusion, axis1=-2, axis2=-1), confusion.sum(axis=-1), confusion.sum(axis=-2))


def count_classes(truth: npt.NDArray[np.int64], chosen: npt.NDArray[np.int64], classes: int) -> Margins:
    """Return the margins of predictions, in memory that is linear in the number of classes."""
    counts = (np.bincount(one, minlength=classes) for one in (truth[truth == chosen], truth, chosen))
    return Margins(*(count.astype(float) for count in counts))


def _accuracy(margins: Margins) -> Floats:
    return margins.right.sum(axis=-1) / margins.true.sum(axis=-1)


def _f1(margins: Margins) -> Floats:
    each = _f1_of_each(margins)
    return each[..., -1] if each.shape[-1] == 2 else _macro_f1(margins)


def _macro_f1(margins: Margins) -> Floats:
    """Return the mean over the classes that occur, in labels or predictions, as scikit-learn's."""
    occur = (margins.true + margins.predicted > 0).sum(axis=-1)
    return _f1_of_each(margins).sum(axis=-1) / np.maximum(occur, 1)


def _f1_of_each(margins: Margins) -> Floats:
    both = margins.true + margins.predicted
    return np.divide(2 * margins.right, both, out=np.zeros_like(both), where=both > 0)


def _matthews(margins: Margins) -> Floats:
    right, truth, chosen = margins
    total = truth.sum(axis=-1)
    covariance = right.sum(axis=-1) * total - (truth * chosen).sum(axis=-1)
    scale = np.sqrt((total**2 - (truth**2).sum(axis=-1)) * (total**2 - (chosen**2).sum(axis=-1)))
    return np.divide(covariance, scale, out=np.zeros_like(covariance), where=scale > 0)


def accuracy(confusion: Floats) -> Floats:
    """Return the share of correct predictions: (…, classes, classes) -> (…)."""
    return _accuracy(margins_of(confusion))


def f1(confusion: Floats) -> Floats:
    """Return the F1 of the second of two classes, else the mean over those that occur."""
    return _f1(margins_of(confusion))


def macro_f1(confusion: Floats) -> Floats:
    """Return the unweighted mean of the F1 of each class that occurs, in labels or predictions."""
    return _macro_f1(margins_of(confusion))


def matthews(confusion: Floats) -> Floats:
    """Return Matthews' correlation for any number of classes (Gorodkin 2004); 0 where it is undefined."""
    return _matthews(margins_of(confusion))


def by_class(margins: Margins, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return precision, recall, F1, true and predicted rows of each class; an undefined share is 0."""
    each = _f1_of_each(margins)
    right, true, predicted = margins
    return [_class_entry(name, right[n], true[n], predicted[n], each[n]) for n, name in enumerate(names)]


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


# Metrics of classes, by name.
OF_CLASSES = {"accuracy": _accuracy, "f1": _f1, "macro_f1": _macro_f1, "matthews": _matthews}
# Metrics of two columns of numbers, by name.
OF_SCORES = {"pearson": pearson, "spearman": spearman}
# The metrics by name: functions of a confusion matrix, or of true and predicted scores.
METRICS: Mapping[str, Callable[..., Floats]] = {
    **{"accuracy": accuracy, "f1": f1, "macro_f1": macro_f1, "matthews": matthews},
    **OF_SCORES,
}


def measure_classes(
    truth: npt.NDArray[np.int64], chosen: npt.NDArray[np.int64], classes: int, intervals: bool = True
) -> dict[str, dict[str, Any]]:
    """Return {metric: {value, interval: [low, high]}} for accuracy, f1, macro_f1 and matthews."""
    counted = count_classes(truth, chosen, classes)
    measured: dict[str, dict[str, Any]] = {
        name: {"value": float(metric(counted))} for name, metric in OF_CLASSES.items()
    }
    if not intervals:
        return measured
    share = list(wilson(int(counted.right.sum()), len(truth)))
    measured["accuracy"]["interval"] = share
    random = np.random.default_rng(0)
    cells, number = np.unique(truth * classes + chosen, return_counts=True)
    resampled = _resample(cells, classes, lambda size: random.multinomial(len(truth), number / len(truth), size))
    drawn: dict[str, Floats] = {}
    if classes <= _POSTERIOR_CLASSES and any(np.ptp(values) == 0 for values in resampled.values()):
        posterior = _without_spread(confusion_matrix(truth, chosen, classes))
        drawn = _resample(np.arange(classes**2), classes, lambda size: random.dirichlet(posterior, size))
    for name, values in resampled.items():
        value = measured[name]["value"]
        if np.ptp(values) == 0:
            values = drawn.get(name, np.array(share) * value / max(measured["accuracy"]["value"], 1e-12))
        low, high = _interval(values)
        measured[name]["interval"] = [min(low, value), min(1.0, max(high, value))]
    return measured


def _resample(
    cells: npt.NDArray[np.int64], classes: int, draw: Callable[[int], npt.NDArray[Any]]
) -> dict[str, Floats]:
    """Return {metric: (RESAMPLES,)} of the draws, (size, cells), for these cells of a confusion matrix."""
    from scipy.sparse import csr_matrix

    places, ones = np.arange(len(cells)), np.ones(len(cells))
    row, column = cells // classes, cells % classes
    sums = [
        csr_matrix((weight, (places, of_class)), shape=(len(cells), classes))
        for weight, of_class in ((ones * (row == column), row), (ones, row), (ones, column))
    ]
    values_of: dict[str, list[Floats]] = {name: [] for name in OF_CLASSES if name != "accuracy"}
    together = max(1, _CELLS // max(len(cells), classes))
    for start in range(0, RESAMPLES, together):
        drawn = draw(min(together, RESAMPLES - start)).astype(float)
        margins = Margins(*(drawn @ one for one in sums))
        for name, values in values_of.items():
            values.append(OF_CLASSES[name](margins))
    return {name: np.concatenate(values) for name, values in values_of.items()}


def _without_spread(confusion: Floats) -> Floats:
    """Return the parameters of a Dirichlet posterior of the cells' shares, (classes²,).

    Goutte and Gaussier (2005) derive F1's distribution from such a posterior. The prior counts one right and one
    wrong prediction, each divided evenly over its cells, so the share of errors has a uniform prior. If none of n
    predictions is wrong, the one-sided 95 % bound of that share is then 3/n, the rule of three (Jovanovic and Levy
    1997), and the two-sided bound is near Wilson's.
    """
    classes = len(confusion)
    right = np.eye(classes)
    prior = right / classes + (1 - right) / max(1, classes * (classes - 1))
    return (confusion + prior).ravel()


def label_counts(truth: Floats, chosen: Floats) -> Floats:
    """Return (rows, 2, labels): which labels are predicted rightly, and how often each is true plus predicted."""
    return np.stack([truth * chosen, truth + chosen], axis=1)


def micro_f1(counts: Floats) -> Floats:
    """Return the F1 over the labels of all rows: sums of `label_counts`, (…, 2, labels) -> (…)."""
    return _f1_of_counts(counts.sum(axis=-1, keepdims=True))[..., 0]


def _f1_of_counts(counts: Floats) -> Floats:
    """(…, 2, labels) -> (…, labels); 0 for a label that never occurs."""
    right, both = counts[..., 0, :], counts[..., 1, :]
    return np.divide(2 * right, both, out=np.zeros_like(right), where=both > 0)


# Metrics of sums of `label_counts`, by name.
_OF_COUNTS: Mapping[str, Callable[[Floats], Floats]] = {
    "micro_f1": micro_f1,
    "macro_f1": lambda counts: _f1_of_counts(counts).mean(axis=-1),
}


def label_metric(name: str, truth: Floats, chosen: Floats) -> float:
    """Return a metric of several labels, without its interval; see `measure_labels`."""
    if name == "accuracy":
        return float((truth == chosen).all(axis=1).mean())
    return float(_OF_COUNTS[name](label_counts(truth, chosen).sum(axis=0)))


def measure_labels(truth: Floats, chosen: Floats, intervals: bool = True) -> dict[str, dict[str, Any]]:
    """Return {metric: {value, interval}} for micro_f1, macro_f1 and accuracy: (rows, labels) of 0 and 1.

    accuracy is the share of rows whose labels are all right. Rows are resampled. Where every resample has the same
    value, the interval is Wilson's of the share J of right labels among those that are true or predicted, by
    F1 = 2 J / (1 + J).
    """
    if not intervals:
        return {name: {"value": label_metric(name, truth, chosen)} for name in ("accuracy", *_OF_COUNTS)}
    counts, random = label_counts(truth, chosen), np.random.default_rng(0)
    right = (truth == chosen).all(axis=1)
    measured: dict[str, dict[str, Any]] = {}
    measured["accuracy"] = {
        "value": label_metric("accuracy", truth, chosen),
        "interval": list(wilson(int(right.sum()), len(right))),
    }
    flat = counts.reshape(len(counts), -1)
    sums = np.concatenate(
        [
            random.multinomial(len(flat), np.full(len(flat), 1 / len(flat)), size) @ flat
            for size in np.diff([*range(0, RESAMPLES, max(1, _CELLS // len(flat))), RESAMPLES])
        ]
    ).reshape(RESAMPLES, 2, -1)
    for name, metric in _OF_COUNTS.items():
        value, values = label_metric(name, truth, chosen), metric(sums)
        low, high = _interval(values)
        if np.ptp(values) == 0:
            hit, both = int(counts[:, 0].sum()), int(counts[:, 1].sum())
            low, high = (2 * share / (1 + share) for share in wilson(hit, max(1, both - hit)))
        measured[name] = {"value": value, "interval": [min(low, value), max(high, value)]}
    return measured


def confused_pairs(
    truth: npt.NDArray[np.int64], chosen: npt.NDArray[np.int64], names: Sequence[str], most: int
) -> list[dict[str, Any]]:
    """Return the pairs of a true and another predicted class with most rows: {"label", "predicted", "count"}."""
    wrong = truth != chosen
    pairs, counts = np.unique(truth[wrong] * len(names) + chosen[wrong], return_counts=True)
    order = np.argsort(-counts, kind="stable")[:most]
    return [
        {"label": names[pair // len(names)], "predicted": names[pair % len(names)], "count": int(count)}
        for pair, count in zip(pairs[order].tolist(), counts[order].tolist(), strict=True)
    ]


def by_label(truth: Floats, chosen: Floats, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return what `by_class` returns, of each of several labels: (rows, labels) of 0 and 1."""
    right, true, predicted = (truth * chosen).sum(axis=0), truth.sum(axis=0), chosen.sum(axis=0)
    each = _f1_of_counts(label_counts(truth, chosen).sum(axis=0))
    return [_class_entry(name, right[n], true[n], predicted[n], each[n]) for n, name in enumerate(names)]


def _class_entry(name: str, right: float, true: float, predicted: float, f1_of: float) -> dict[str, Any]:
    return {
        "class": name,
        "precision": float(right / max(predicted, 1)),
        "recall": float(right / max(true, 1)),
        "f1": float(f1_of),
        "count": int(true),
        "predicted": int(predicted),
    }


def measure_scores(truth: Floats, predicted: Floats, intervals: bool = True) -> dict[str, dict[str, Any]]:
    """Return {metric: {value, interval}} for pearson and spearman."""
    if not intervals:
        return {name: {"value": float(metric(truth, predicted))} for name, metric in OF_SCORES.items()}
    random = np.random.default_rng(0)
    resampled = np.empty((RESAMPLES, len(OF_SCORES)))
    for number in range(RESAMPLES):
        rows = random.integers(0, len(truth), len(truth))
        resampled[number] = [metric(truth[rows], predicted[rows]) for metric in OF_SCORES.values()]
    return {
        name: {"value": float(metric(truth, predicted)), "interval": _interval(resampled[:, column])}
        for column, (name, metric) in enumerate(OF_SCORES.items())
    }


def _interval(values: Floats) -> list[float]:
    tail = 100 * (1 - CONFIDENCE) / 2
    return np.percentile(values, [tail, 100 - tail]).tolist()
