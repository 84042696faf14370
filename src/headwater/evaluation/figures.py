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
    details: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def mean(cls, name: str, values: Sequence[float], **details: Any) -> Figure:
        """Return the mean and its standard error over examples."""
        return cls.ratio(name, values, [1.0] * len(values), **details)

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
    def ratio(cls, name: str, amounts: Sequence[float], units: Sequence[float], /, **details: Any) -> Figure:
        """Return what `rate` returns, with its standard error; that of a single example is not defined."""
        value, moves = rate(name, amounts, units)
        return cls(name, value, standard_error(moves) if len(moves) > 1 else None, len(moves), details)


def rate(metric: str, amounts: Sequence[float], units: Sequence[float]) -> tuple[float, list[float]]:
    """Return Σ amounts / Σ units of examples, and by how much each moves it (linearised ratio).

    A perplexity is e to the ratio, which is capped so that a float holds it.
    """
    total = math.fsum(units)
    value = math.fsum(amounts) / total
    moves = [(amount - value * unit) / total for amount, unit in zip(amounts, units, strict=True)]
    if metric != "perplexity":
        return value, moves
    value = math.exp(min(value, 700.0))  # e^710 overflows
    return value, [value * move for move in moves]


def standard_error(moves: Sequence[float]) -> float:
    """Return the standard error of a value that two or more independent examples move by so much."""
    return math.hypot(*moves) * math.sqrt(len(moves) / (len(moves) - 1))
