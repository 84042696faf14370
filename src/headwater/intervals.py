"""95 % intervals of shares, means and scores, and of the difference between two shares.

A share of n examples has Wilson's interval (Wilson 1927), which stays between 0 and 1 and has a width even if all
examples are right. The mean of values between 0 and 1, such as F1, has that of as many examples as would give its
standard error. A perplexity has its interval on a logarithmic scale and Matthews' correlation on Fisher's, so that
neither leaves its range. Other metrics have no interval if all examples are equal. The difference of two shares of
the same examples has Newcombe's interval (Newcombe 1998, "Improved confidence intervals for the difference between
binomial proportions based on paired data", method 10).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

Z95 = 1.96  # of the normal distribution
_SHARES = ("accuracy", "exact match")  # how the names of metrics begin that are shares of right answers
_MEANS = ("f1", "rouge")  # and of those that are means of values between 0 and 1


def wilson(right: float, count: float) -> tuple[float, float]:
    """Return the interval of a share, `right` of `count` examples."""
    share, factor = right / count, 1 + Z95**2 / count
    middle = (share + Z95**2 / (2 * count)) / factor
    half = Z95 / factor * math.sqrt(share * (1 - share) / count + Z95**2 / (4 * count**2))
    return max(0.0, middle - half), min(1.0, middle + half)


def around(value: float, error: float) -> tuple[float, float]:
    """Return the interval of an estimate with this standard error."""
    return value - Z95 * error, value + Z95 * error


def of_score(
    metric: str, value: float, error: float | None, count: int
) -> tuple[float, float] | tuple[None, None]:
    """Return the interval of a metric with this standard error over `count` examples; none without either."""
    if error is None or count < 1:  # as a user's own task may have it
        return None, None
    if metric.startswith(_SHARES) and 0 <= value <= 1:  # a metric of a user may be in per cent
        return wilson(round(value * count), count)
    if metric.startswith(_MEANS) and 0 <= value <= 1:
        spread = value * (1 - value)
        examples = spread / error**2 if spread and error**2 else float(count)
        return wilson(value * examples, examples)
    if error == 0.0:
        return None, None
    if metric == "perplexity" and value > 0:
        reach = min(Z95 * error / value, 700.0)  # e^710 overflows
        return value * math.exp(-reach), min(value * math.exp(reach), sys.float_info.max)
    if metric == "matthews" and abs(value) < 1:
        low, high = around(math.atanh(value), error / (1 - value * value))
        return math.tanh(low), math.tanh(high)
    return around(value, error)


def of_paired_shares(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the interval of the second share minus the first; pairs: whether each example is right, 0 or 1."""
    count = len(pairs)
    first, second = sum(x for x, _ in pairs), sum(y for _, y in pairs)
    both = sum(x * y for x, y in pairs)
    only_first, only_second = first - both, second - both
    neither = count - both - only_first - only_second
    correlation = both * neither - only_first * only_second
    if correlation > 0:
        correlation = max(correlation - count / 2, 0.0)
    scale = math.sqrt(first * (count - first) * second * (count - second))
    correlation = correlation / scale if scale else 0.0
    p, q = first / count, second / count
    (p_low, p_high), (q_low, q_high) = wilson(first, count), wilson(second, count)

    def reach(a: float, b: float) -> float:
        return math.sqrt(max(0.0, a * a - 2 * correlation * a * b + b * b))

    return q - p - reach(q - q_low, p_high - p), q - p + reach(q_high - q, p - p_low)
