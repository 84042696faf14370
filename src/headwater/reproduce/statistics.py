"""What several seeds say together: an interval, a paired difference, and the rule that turns it into a verdict.

The rule is the same for every claim. The claim is written so that it says "this difference is above zero"; each
seed gives one difference. It holds when the 95 % interval lies above zero, it does not hold when the interval lies
below, and it is not decided at this scale when zero is inside or when there are fewer than three seeds.

An interval has two parts. The seeds differ (Student's t). And all seeds are measured on the same items, a sample
of all that could be asked: that error stays the same however many seeds there are. Both are independent, so their
squares add. The error of a difference takes the errors of both sides as independent, which makes the interval too
wide where one item is hard for both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

Verdict = Literal["holds", "does not hold", "not decided at this scale"]
HOLDS: Verdict = "holds"
FAILS: Verdict = "does not hold"
OPEN: Verdict = "not decided at this scale"

RULE = (
    "A claim is written as a difference that should be above zero, one for each seed. It holds where its 95 % "
    "interval lies above zero, does not hold where it lies below, and is not decided at this scale where zero is "
    "inside or there are fewer than three seeds. The interval includes the spread over seeds (Student's t) and "
    "the error over the items that were asked."
)
FEWEST_SEEDS = 3
# Student's t at 97.5 %, by degrees of freedom.
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
NORMAL = 1.959964


class Measured(list[float]):
    """One value a seed, each with the standard error that comes from the items it was measured on."""

    def __init__(self, values: Iterable[float] = (), errors: Iterable[float | None] = ()) -> None:
        super().__init__(values)
        self.errors = [error or 0.0 for error in errors] or [0.0] * len(self)

    def add(self, value: float, error: float | None) -> None:
        """Append the value of the next seed."""
        self.append(value)
        self.errors.append(error or 0.0)

    @property
    def item_error(self) -> float:
        """Standard error of the mean over seeds from the items, which all seeds share."""
        return math.fsum(self.errors) / len(self.errors) if self.errors else 0.0

    def map(self, function: Callable[[float], float]) -> Measured:
        """Return `function` of each value; errors are carried through by its slope."""
        errors = []
        for value, error in zip(self, self.errors, strict=True):
            step = 1e-4 * max(abs(value), 1e-4)
            errors.append(error * abs(function(value + step) - function(value - step)) / (2 * step))
        return Measured(map(function, self), errors)


def above(values: Measured, level: float) -> Measured:
    """Return how far each value is above a level."""
    return Measured((value - level for value in values), values.errors)


def mean_of_sets(sets: Sequence[Measured]) -> Measured:
    """Return the mean over several sets, seed by seed; the sets' items are independent of each other."""
    seeds = range(len(sets[0]))
    return Measured(
        (math.fsum(one[seed] for one in sets) / len(sets) for seed in seeds),
        (math.hypot(*(one.errors[seed] for one in sets)) / len(sets) for seed in seeds),
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


def student_quantile(freedom: int) -> float:
    """Student's t at 97.5 %: from the table, beyond it by Fisher's expansion about the normal, to three digits."""
    if freedom <= len(_T):
        return _T[freedom - 1]
    z = NORMAL
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def percent(values: Sequence[float]) -> str:
    """The mean of shares over seeds, as `12.5%`."""
    return f"{over_seeds(values).value:.1%}"


def differences(first: Sequence[float], second: Sequence[float]) -> Measured:
    """Return `first` less `second`, seed by seed, with the errors of both."""
    sides = [side.errors if isinstance(side, Measured) else [0.0] * len(side) for side in (first, second)]
    return Measured((a - b for a, b in zip(first, second, strict=True)), map(math.hypot, sides[0], sides[1]))


def decide(values: Sequence[float]) -> tuple[Verdict, Estimate]:
    """The verdict on "this is above zero", by RULE."""
    estimate = over_seeds(values)
    if len(values) < FEWEST_SEEDS or estimate.low is None or estimate.high is None:
        return OPEN, estimate
    if estimate.low > 0:
        return HOLDS, estimate
    return (FAILS if estimate.high < 0 else OPEN), estimate
