"""Values per item: differences paired by item, and the error over items of a mean over seeds.

The model has crossed random effects: a value is mean + seed effect + item effect + residual, one for each pair of
a seed and an item. Seeds and items are random samples; sets are fixed, so a claim is about these sets. The
variances are estimated from the moments of the two-way table, as in an analysis of variance.

A metric that is not a mean over items (F1, a correlation) is represented by jackknife pseudo-values (Efron and
Tibshirani 1993, chapter 11): n times the metric less n - 1 times the metric without the item.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headwater.finetuning import confusion_matrix

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ItemValues:
    """Values of one set of items: `values` has one row a seed and one column for each item in `ids`."""

    ids: tuple[str, ...]
    values: Floats

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or self.values.shape[1] != len(self.ids):
            raise ValueError(f"values have the shape {self.values.shape} for {len(self.ids)} items")


# By the name of the set of items.
Items = Mapping[str, ItemValues]


def stack(first: Items | None, second: Items | None) -> Items | None:
    """Return the seeds of `first`, then those of `second`; None if their items differ."""
    return _combine(first, second, lambda one, other: np.concatenate([one, other]))


def subtract(first: Items | None, second: Items | None) -> Items | None:
    """Return `first` less `second`, item by item and seed by seed; None if their items differ."""
    return _combine(first, second, np.subtract)


def _combine(
    first: Items | None, second: Items | None, combine: Callable[[Floats, Floats], Floats]
) -> Items | None:
    """Return `combine` of both sides' values; None unless they have the same items in the same order."""
    if first is None or second is None or first.keys() != second.keys():
        return None
    if any(one.ids != second[name].ids for name, one in first.items()):
        return None
    return {name: ItemValues(one.ids, combine(one.values, second[name].values)) for name, one in first.items()}


def average(sets: Sequence[Items]) -> Items | None:
    """Return the items of a mean over sets; None if two sets share a name."""
    merged = {name: ItemValues(one.ids, one.values / len(sets)) for items in sets for name, one in items.items()}
    return merged if len(merged) == sum(map(len, sets)) else None


def errors_by_seed(items: Items) -> list[float]:
    """Return the standard error over items of each seed's value, which is the sum of the sets' means."""
    variance = sum(_variance(one.values) / one.values.shape[1] for one in items.values())
    return [float(error) for error in np.sqrt(variance)]


def error_over_items(items: Items) -> float:
    """Return the standard error over items of the mean over seeds.

    The residual is part of the spread over seeds, so it is subtracted here. At least half of the error of the item
    means is kept, because the difference of two estimates can be zero by chance.
    """
    total = 0.0
    for one in items.values():
        seeds, count = one.values.shape
        if count < 2:
            continue
        means = float(_variance(one.values.mean(axis=0, keepdims=True))[0])
        residual = 0.0
        if seeds > 1:
            rest = (
                one.values - one.values.mean(axis=0) - one.values.mean(axis=1, keepdims=True) + one.values.mean()
            )
            residual = float((rest**2).sum()) / ((seeds - 1) * (count - 1)) / seeds
        total += max(means - residual, means / 4) / count
    return float(np.sqrt(total))


def _variance(values: Floats) -> Floats:
    return values.var(axis=1, ddof=1) if values.shape[1] > 1 else np.zeros(len(values))


def ratio_values(amounts: Floats, units: Floats) -> Floats:
    """Return one value an item: their mean is Σ amounts / Σ units, their standard error that of `ratio_error`."""
    ratio = amounts.sum() / units.sum()
    return np.asarray(ratio + (amounts - ratio * units) / units.mean(), dtype=np.float64)


def of_two_classes(metric: Callable[[Floats], Floats]) -> Callable[[Floats, Floats], float]:
    """Return a metric of a confusion matrix as a function of true and predicted classes, 0.0 or 1.0."""
    return lambda truth, predicted: float(
        metric(confusion_matrix(truth.astype(np.int64), predicted.astype(np.int64), 2))
    )


def pseudo_values(truth: Floats, predicted: Floats, metric: Callable[[Floats, Floats], float]) -> Floats:
    """Return the jackknife's pseudo-value of each item; their mean estimates the metric."""
    count = len(truth)
    whole = metric(truth, predicted)
    known: dict[tuple[float, float], float] = {}  # items with the same truth and prediction are exchangeable
    for index, pair in enumerate(zip(truth.tolist(), predicted.tolist(), strict=True)):
        if pair not in known:
            known[pair] = metric(np.delete(truth, index), np.delete(predicted, index))
    without = np.array([known[pair] for pair in zip(truth.tolist(), predicted.tolist(), strict=True)])
    return np.asarray(count * whole - (count - 1) * without, dtype=np.float64)
