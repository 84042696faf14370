"""What several seeds show together: an interval, a paired difference, and the rule that turns it into a verdict.

The rule is the same for every claim. The claim is written as "this difference is above zero"; each seed gives one
difference. It holds when the 95 % interval lies above zero, it does not hold when the interval lies below, and it
is not decided at this scale when zero is inside or when there are fewer than three seeds.

An interval has two parts. The seeds differ (Student's t). All seeds are measured on the same items, a sample of
all possible items: that error stays the same however many seeds there are. Both are independent, so their squares
add. A difference is paired by item where both sides have values for the same items. Elsewhere the errors of both
sides are taken as independent, which makes the interval too wide where one item is hard for both.

Several claims of one experiment are a family, corrected by Holm's method (Holm 1979).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from statistics import NormalDist
from typing import Any, Literal, NamedTuple

import numpy as np

from headwater.reproduce.items import (
    Items,
    ItemValues,
    average,
    error_over_items,
    errors_by_seed,
    is_paired,
    stack,
    subtract,
)

Verdict = Literal["holds", "does not hold", "not decided at this scale"]
HOLDS: Verdict = "holds"
FAILS: Verdict = "does not hold"
OPEN: Verdict = "not decided at this scale"

RULE = (
    "A claim is written as a difference that should be above zero, one for each seed. It holds where its 95 % "
    "interval lies above zero, does not hold where it lies below, and is not decided at this scale where zero is "
    "inside or there are fewer than three seeds. The interval includes the spread over seeds (Student's t) and "
    "the error over the items that were asked. Differences are paired by item where both sides have values for "
    "the same items. The claims of an experiment are one family: Holm's method keeps the chance of any false "
    "decision among them at 5 %."
)
LEVEL = 0.05
FEWEST_SEEDS = 3
NORMAL = 1.959964


class Measured(list[float]):
    """One value a seed, each with the standard error that comes from the items it was measured on.

    items: the values by item, where they are known; a pairing and a smaller error over items follow from them.
    """

    def __init__(
        self, values: Iterable[float] = (), errors: Iterable[float | None] = (), items: Items | None = None
    ) -> None:
        super().__init__(values)
        self.errors = [error or 0.0 for error in errors] or [0.0] * len(self)
        self.items = items

    def add(self, value: float, error: float | None, items: Items | None = None) -> None:
        """Append the value of the next seed; `items` are its values by item."""
        self.items = stack(self.items, items) if self else items
        self.append(value)
        self.errors.append(error or 0.0)

    @property
    def item_error(self) -> float:
        """Standard error of the mean over seeds from the items, which all seeds share."""
        if self.items is not None:
            return error_over_items(self.items)
        return math.fsum(self.errors) / len(self.errors) if self.errors else 0.0

    def map(self, function: Callable[[float], float]) -> Measured:
        """Return `function` of each value; errors are carried through by its slope."""
        errors = []
        for value, error in zip(self, self.errors, strict=True):
            step = 1e-4 * max(abs(value), 1e-4)
            errors.append(error * abs(function(value + step) - function(value - step)) / (2 * step))
        return Measured(map(function, self), errors)

    def linear(self, factor: float, plus: float = 0.0) -> Measured:
        """Return `factor` times each value, plus a number; the items stay known."""
        items = {name: ItemValues(one.ids, factor * one.values + plus) for name, one in (self.items or {}).items()}
        errors = (abs(factor) * error for error in self.errors)
        return Measured((factor * value + plus for value in self), errors, items or None)


def mean_of_sets(sets: Sequence[Measured]) -> Measured:
    """Return the mean over several sets, seed by seed; the sets' items are independent of each other."""
    seeds = range(len(sets[0]))
    known = [one.items for one in sets if one.items is not None]
    return Measured(
        (math.fsum(one[seed] for one in sets) / len(sets) for seed in seeds),
        (math.hypot(*(one.errors[seed] for one in sets)) / len(sets) for seed in seeds),
        average(known) if len(known) == len(sets) else None,
    )


class Estimate(NamedTuple):
    """A mean over seeds and its 95 % interval; `low` and `high` are None where there is no error to tell."""

    value: float
    low: float | None
    high: float | None

    def text(self, digits: int = 3, scale: float = 1.0) -> str:
        """`0.512 (0.498 to 0.526)`."""
        value = f"{self.value * scale:.{digits}f}"
        if self.low is None or self.high is None:
            return value
        return f"{value} ({self.low * scale:.{digits}f} to {self.high * scale:.{digits}f})"


def over_seeds(values: Sequence[float]) -> Estimate:
    """Return the mean of one value a seed, with its 95 % interval over seeds and items."""
    count = len(values)
    mean = math.fsum(values) / count
    items = NORMAL * values.item_error if isinstance(values, Measured) else 0.0
    if count == 1:
        return Estimate(mean, mean - items, mean + items) if items else Estimate(mean, None, None)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    reach = math.hypot(student_quantile(count - 1) * deviation / math.sqrt(count), items)
    return Estimate(mean, mean - reach, mean + reach)


def student_tail(t: float, freedom: float) -> float:
    """Return the chance that Student's t is above `t` (0 at least), for any real number of degrees of freedom.

    With t = sqrt(freedom) tan(angle), the density of the angle is proportional to cos(angle) ** (freedom - 1).
    """
    nodes, weights = _nodes()
    lengths = (math.pi / 2 - math.atan(t / math.sqrt(freedom)), math.pi / 2)  # of the tail, of half of all
    tail, half = (
        length * float(weights @ np.sin((nodes + 1) / 2 * length) ** (freedom - 1)) for length in lengths
    )
    return 0.5 * tail / half


@cache
def _nodes() -> tuple[Any, Any]:
    return np.polynomial.legendre.leggauss(64)


@cache
def student_quantile(freedom: float, tail: float = LEVEL / 2) -> float:
    """Return Student's t that has the chance `tail` above it, by bisection."""
    low, high = 0.0, 1.0
    while student_tail(high, freedom) > tail:
        high *= 2
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if student_tail(middle, freedom) > tail else (low, middle)
    return high


def p_value(values: Sequence[float]) -> float | None:
    """Return the two-sided p of "the mean is zero", in step with `over_seeds`; None with fewer than three seeds.

    It is the level at which the interval of `over_seeds` ends at zero.
    """
    count = len(values)
    if count < FEWEST_SEEDS:
        return None
    mean = abs(math.fsum(values) / count)
    seeds = float(np.std(values, ddof=1)) / math.sqrt(count)
    items = values.item_error if isinstance(values, Measured) else 0.0
    if mean == 0 or (seeds == 0 and items == 0):
        return 1.0 if mean == 0 else 0.0
    low, high = 0.0, mean / math.hypot(seeds, items) * 2 + 1
    while _reach(high, seeds, items, count - 1) < mean:
        high *= 2
    for _ in range(50):
        quantile = (low + high) / 2
        low, high = (quantile, high) if _reach(quantile, seeds, items, count - 1) < mean else (low, quantile)
    return 2 * student_tail(low, count - 1)


def _reach(quantile: float, seeds: float, items: float, freedom: int) -> float:
    """Return the half-width of the interval whose tails are those of Student's `quantile`."""
    tail = max(student_tail(quantile, freedom), 1e-300)
    return math.hypot(quantile * seeds, NormalDist().inv_cdf(tail) * items)


def holm(p_values: Sequence[float | None], level: float = LEVEL) -> list[bool]:
    """Say which hypotheses of a family are rejected at a familywise level; None is never rejected (Holm 1979)."""
    order = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    rejected = [False] * len(p_values)
    for rank, (p, index) in enumerate(order):
        if p > level / (len(order) - rank):
            break
        rejected[index] = True
    return rejected


def percent(values: Sequence[float]) -> str:
    """The mean of shares over seeds, as `12.5%`."""
    return f"{over_seeds(values).value:.1%}"


def differences(first: Sequence[float], second: Sequence[float]) -> Measured:
    """Return `first` less `second`, seed by seed, paired by item where both have values for the same items."""
    values = [a - b for a, b in zip(first, second, strict=True)]
    one, other = (getattr(side, "items", None) for side in (first, second))
    if one is not None and other is not None and is_paired(one, other):
        items = subtract(one, other)
        return Measured(values, errors_by_seed(items), items)
    sides = [side.errors if isinstance(side, Measured) else [0.0] * len(side) for side in (first, second)]
    return Measured(values, map(math.hypot, sides[0], sides[1]))


def decide(values: Sequence[float]) -> tuple[Verdict, Estimate]:
    """The verdict on "this is above zero", by RULE."""
    estimate = over_seeds(values)
    if len(values) < FEWEST_SEEDS or estimate.low is None or estimate.high is None:
        return OPEN, estimate
    if estimate.low > 0:
        return HOLDS, estimate
    return (FAILS if estimate.high < 0 else OPEN), estimate
