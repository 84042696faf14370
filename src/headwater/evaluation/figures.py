"""Figures over all examples of a protocol, with their standard errors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Figure:
    """One number of one protocol over all examples; `stderr` is None if it is not defined."""

    metric: str
    value: float
    stderr: float | None
    count: int
    details: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def mean(cls, name: str, values: Sequence[float], **details: Any) -> Figure:
        """Return the mean and its standard error over examples."""
        count = len(values)
        mean = math.fsum(values) / count
        return cls(name, mean, standard_error(values, mean), count, details)

    @classmethod
    def share(cls, name: str, values: Sequence[float], **details: Any) -> Figure:
        """Return the mean of values between 0 and 1, such as accuracy, with its standard error over examples.

        Examples that are all wrong or all right have no spread, but the mean of all possible examples is not
        certain. Its error is then the standard deviation of the posterior for a uniform prior.
        """
        figure = cls.mean(name, values, **details)
        if figure.stderr is None or not (set(values) == {0.0} or set(values) == {1.0}):
            return figure
        count = figure.count
        return replace(figure, stderr=math.sqrt((count + 1) / (count + 3)) / (count + 2))

    @classmethod
    def perplexity(cls, log_probabilities: Sequence[float]) -> Figure:
        """Return e to the mean negative log-probability, with its standard error by the delta method."""
        mean = cls.mean("perplexity", [-value for value in log_probabilities])
        value = perplexity(mean.value)
        return cls("perplexity", value, None if mean.stderr is None else value * mean.stderr, mean.count)

    @classmethod
    def ratio(cls, name: str, amounts: Sequence[float], units: Sequence[float], **details: Any) -> Figure:
        """Return Σ amounts / Σ units for examples of different size, with its error (linearised ratio)."""
        value = math.fsum(amounts) / math.fsum(units)
        return cls(name, value, ratio_error(amounts, units), len(amounts), details)


def perplexity(nats: float) -> float:
    """Return e to the power of a mean loss, which is capped so that a float holds the result."""
    return math.exp(min(nats, 700.0))  # e^710 overflows


def standard_error(values: Sequence[float], mean: float) -> float | None:
    """Return the standard error of a mean; None for a single value."""
    if len(values) < 2:
        return None
    squares = math.fsum((value - mean) ** 2 for value in values)
    return math.sqrt(squares / (len(values) - 1) / len(values))


def ratio_error(amounts: Sequence[float], units: Sequence[float]) -> float | None:
    """Return the standard error of Σ amounts / Σ units for examples of different size (linearised ratio)."""
    count = len(amounts)
    if count < 2:
        return None
    total = math.fsum(units)
    ratio = math.fsum(amounts) / total
    squares = math.fsum((a - ratio * u) ** 2 for a, u in zip(amounts, units, strict=True))
    return math.sqrt(squares * count / (count - 1)) / total
