"""Intervals over seeds and items, paired differences, and the rule that turns a difference into a verdict (RULE).

An interval has two parts. The seeds differ (Student's t). All seeds are measured on the same items, a sample of
all possible items: more seeds do not reduce that error. The two are independent, so their squares add. A
difference is paired by item where both sides have values for the same items. Otherwise the errors of both sides
are taken as independent, which makes the interval too wide where the same items are hard for both.

Two hypotheses of each claim are tested: that there is no difference, and that it is at least the expected effect.
The claims of one experiment are a family, corrected by Holm's method (Holm 1979) as Shaffer (1986) refined it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtri, stdtrit

from headwater.evaluation import Figure
from headwater_papers.items import (
    Items,
    ItemValues,
    average,
    error_over_items,
    errors_by_seed,
    stack,
    subtract,
)

Verdict = Literal[
    "holds",
    "does not hold",
    "weaker than expected",
    "smaller than matters",
    "says nothing",
    "not decided at this scale",
]
HOLDS: Verdict = "holds"
FAILS: Verdict = "does not hold"
WEAKER: Verdict = "weaker than expected"
SMALLER: Verdict = "smaller than matters"  # `published` decides these two
NOTHING: Verdict = "says nothing"
OPEN: Verdict = "not decided at this scale"

RULE = (
    "A claim is a difference that should be above zero, with one value for each seed. It holds if its 95 % "
    "interval is above zero, and does not hold if the interval is below zero. If the interval contains zero "
    "but ends below the expected effect, the claim is weaker than expected. The expected effect is the "
    "paper's, or where the paper has none, the smallest that matters. A claim whose interval is above zero, but "
    "wholly below the smallest that matters, is smaller than matters. A claim about scores that are worse than a "
    "guess says nothing. Otherwise, or with fewer than three seeds, the claim is not decided at this scale. The "
    "interval includes the spread over seeds (Student's t) "
    "and the error over the items. Differences are paired by item if both sides have values for the same "
    "items. The claims of an experiment are one family: Holm's method, as Shaffer refined it, keeps the chance "
    "of any false decision at 5 %. The tables show the intervals before this correction; those of shares are "
    "Wilson's."
)
LEVEL = 0.05
FEWEST_SEEDS = 3
NORMAL = 1.959964
_SMALLEST_P = 1e-300


class Measured(list[float]):
    """One value a seed, each with the standard error that comes from the items it was measured on.

    items: the values by item, if known; they allow pairing, which makes the error over items smaller.
    """

    def __init__(
        self, values: Iterable[float] = (), errors: Iterable[float | None] = (), items: Items | None = None
    ) -> None:
        super().__init__(values)
        self.errors = [error or 0.0 for error in errors] or [0.0] * len(self)
        self.items = items

    @classmethod
    def of(cls, figures: Iterable[Figure]) -> Measured:
        """Return the values of one figure a seed, with their errors."""
        known = list(figures)
        return cls((figure.value for figure in known), (figure.stderr for figure in known))

    def add(self, value: float, error: float | None, items: Items | None = None) -> None:
        """Append the value of the next seed; `items` are its values by item."""
        self.items = stack(self.items, items) if self else items
        self.append(value)
        self.errors.append(error or 0.0)

    @property
    def item_error(self) -> float:
        """Standard error of the mean over seeds from the items, which all seeds share.

        Items that are all right or all wrong for every seed have no spread; the errors of the values then count.
        """
        if self.items is not None and (error := error_over_items(self.items)) > 1e-12:  # not only rounding
            return error
        return math.fsum(self.errors) / len(self.errors) if self.errors else 0.0

    def map(self, function: Callable[[float], float]) -> Measured:
        """Return `function` of each value; errors are multiplied by its slope."""
        errors = []
        for value, error in zip(self, self.errors, strict=True):
            step = 1e-4 * max(abs(value), 1e-4)
            errors.append(error * abs(function(value + step) - function(value - step)) / (2 * step))
        return Measured(map(function, self), errors)

    def linear(self, factor: float, plus: float = 0.0) -> Measured:
        """Return `factor` times each value, plus a number, with the items."""
        items = {name: ItemValues(one.ids, factor * one.values + plus) for name, one in (self.items or {}).items()}
        errors = (abs(factor) * error for error in self.errors)
        return Measured((factor * value + plus for value in self), errors, items or None)


def as_measured(values: Sequence[float]) -> Measured:
    """Return `values`; plain numbers have no error over items."""
    return values if isinstance(values, Measured) else Measured(values)


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
    """A mean over seeds and its 95 % interval; `low` and `high` are None for one seed without items."""

    value: float
    low: float | None
    high: float | None

    def text(self, digits: int = 3, scale: float = 1.0) -> str:
        """`0.512 (0.498 to 0.526)`."""
        value = f"{self.value * scale:z.{digits}f}"
        if self.low is None or self.high is None:
            return value
        return f"{value} ({self.low * scale:z.{digits}f} to {self.high * scale:z.{digits}f})"


def over_seeds(values: Sequence[float]) -> Estimate:
    """Return the mean of one value a seed, with its 95 % interval over seeds and items."""
    count = len(values)
    mean = math.fsum(values) / count
    items = NORMAL * as_measured(values).item_error
    if count == 1:
        return Estimate(mean, mean - items, mean + items) if items else Estimate(mean, None, None)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    reach = math.hypot(student_quantile(count - 1) * deviation / math.sqrt(count), items)
    return Estimate(mean, mean - reach, mean + reach)


def student_quantile(freedom: float, level: float = LEVEL) -> float:
    """Return Student's t that bounds a two-sided interval at a level."""
    return float(stdtrit(freedom, 1 - level / 2))


def p_value(values: Sequence[float]) -> float | None:
    """Return the two-sided p of "the mean is zero"; None with fewer than three seeds.

    It is the level at which the interval of `over_seeds` ends at zero.
    """
    count = len(values)
    if count < FEWEST_SEEDS:
        return None
    mean = abs(math.fsum(values) / count)
    seeds, items = _errors(values)
    if mean == 0 or (seeds == 0 and items == 0):
        return 1.0 if mean == 0 else 0.0

    def excess(log_p: float) -> float:
        tail = math.exp(log_p) / 2
        over_seeds = stdtrit(count - 1, tail) * seeds if seeds else 0.0  # the quantile can be infinite
        return math.hypot(over_seeds, ndtri(tail) * items) - mean

    lowest = math.log(_SMALLEST_P)
    return math.exp(brentq(excess, lowest, 0.0)) if excess(lowest) > 0 else 0.0


def _errors(values: Sequence[float]) -> tuple[float, float]:
    """Return the standard errors of the mean from the seeds and from the items."""
    seeds = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return seeds, as_measured(values).item_error


def p_at_least(values: Sequence[float], effect: float) -> float | None:
    """Return the two-sided p of "the true mean is at least `effect`"; 1 if the observed mean is at least that.

    None with fewer than three seeds. If the values are equal for every seed and item, there is no error to compute
    with. An item that is right or wrong has a difference of at most 1, so a mean of `effect` needs a difference in
    at least that share of all possible items. The chance that n items have none is then at most (1 - effect)^n. An
    effect of 1 or more is in another unit, such as per cent, and is not excluded.
    """
    p = p_value(as_measured(values).linear(1.0, -effect))
    if p is None or math.fsum(values) >= effect * len(values):
        return None if p is None else 1.0
    if any(_errors(values)):
        return p
    fewest = min((len(one.ids) for one in (as_measured(values).items or {}).values()), default=0)
    return 1.0 if effect >= 1 else min(1.0, 2 * (1 - effect) ** fewest)


def holm(
    none: Sequence[float | None], at_least: Sequence[float | None] | None = None
) -> tuple[list[bool], list[bool]]:
    """Return which hypotheses of a family are rejected at the familywise LEVEL.

    A hypothesis whose p is None is never rejected.
    Claim i has two: there is no difference (p `none[i]`), and it is at least the expected effect (`at_least[i]`).
    At most one of the two is true. So at each step, at most as many hypotheses are true as there are claims with
    one that is not yet rejected (Shaffer 1986). With `none` alone this is Holm's method (Holm 1979).
    """
    families = (none, at_least or [None] * len(none))
    left = {(which, index) for which, ps in enumerate(families) for index, p in enumerate(ps) if p is not None}
    for p, which, index in sorted((families[which][index] or 0.0, which, index) for which, index in left):
        if p > LEVEL / len({claim for _, claim in left}):
            break
        left.remove((which, index))
    rejected = [
        [p is not None and (which, index) not in left for index, p in enumerate(ps)]
        for which, ps in enumerate(families)
    ]
    return rejected[0], rejected[1]


def percent(values: Sequence[float]) -> str:
    """Return the mean of shares over seeds, as `12.5%`."""
    return f"{over_seeds(values).value:.1%}"


def differences(first: Sequence[float], second: Sequence[float]) -> Measured:
    """Return `first` less `second`, seed by seed, paired by item where both have values for the same items."""
    values = [a - b for a, b in zip(first, second, strict=True)]
    one, other = as_measured(first), as_measured(second)
    items = subtract(one.items, other.items)
    if items is not None:
        return Measured(values, errors_by_seed(items), items)
    return Measured(values, map(math.hypot, one.errors, other.errors))


def decide(values: Sequence[float], effect: float | None = None) -> tuple[Verdict, Estimate]:
    """Return the verdict on "this is above zero", by RULE; `effect` is the expected one."""
    estimate = over_seeds(values)
    if len(values) < FEWEST_SEEDS or estimate.low is None or estimate.high is None:
        return OPEN, estimate
    if estimate.low > 0:
        return HOLDS, estimate
    if estimate.high < 0:
        return FAILS, estimate
    p = None if effect is None else p_at_least(values, effect)
    return (OPEN if p is None or p > LEVEL else WEAKER), estimate
