"""What several seeds say together: an interval, a paired difference, and the rule that turns it into a verdict.

The rule is the same for every claim. The claim is written so that it says "this difference is above zero"; each
seed gives one difference. It holds when the 95 % interval of the mean over seeds (Student's t) lies above zero,
it does not hold when the interval lies below, and it is not decided at this scale when zero is inside or when
there are fewer than three seeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

Verdict = Literal["holds", "does not hold", "not decided at this scale"]
HOLDS: Verdict = "holds"
FAILS: Verdict = "does not hold"
OPEN: Verdict = "not decided at this scale"

RULE = (
    "A claim is written as a difference that should be above zero, one for each seed. It holds where the 95 % "
    "interval of the mean over seeds (Student's t) lies above zero, does not hold where it lies below, and is not "
    "decided at this scale where zero is inside or there are fewer than three seeds."
)
FEWEST_SEEDS = 3
# Student's t at 97.5 %, by degrees of freedom.
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
_NORMAL = 1.959964


class Estimate(NamedTuple):
    """A mean over seeds and its 95 % interval; `low` and `high` are None for a lone value."""

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
    """Mean of one value a seed, with its 95 % interval."""
    count = len(values)
    mean = math.fsum(values) / count
    if count == 1:
        return Estimate(mean, None, None)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    reach = student_quantile(count - 1) * deviation / math.sqrt(count)
    return Estimate(mean, mean - reach, mean + reach)


def student_quantile(freedom: int) -> float:
    """Student's t at 97.5 %: from the table, beyond it by Fisher's expansion about the normal, to three digits."""
    if freedom <= len(_T):
        return _T[freedom - 1]
    z = _NORMAL
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def percent(values: Sequence[float]) -> str:
    """The mean of shares over seeds, as `12.5%`."""
    return f"{over_seeds(values).value:.1%}"


def differences(first: Sequence[float], second: Sequence[float]) -> list[float]:
    """`first` less `second`, seed by seed."""
    return [a - b for a, b in zip(first, second, strict=True)]


def decide(values: Sequence[float]) -> tuple[Verdict, Estimate]:
    """The verdict on "this is above zero", by RULE."""
    estimate = over_seeds(values)
    if len(values) < FEWEST_SEEDS or estimate.low is None or estimate.high is None:
        return OPEN, estimate
    if estimate.low > 0:
        return HOLDS, estimate
    return (FAILS if estimate.high < 0 else OPEN), estimate
