"""Compare two evaluations example by example: the difference between two models, and its interval.

Both models were asked the same examples, so differences are paired, and their error is smaller than that of two
separate scores (Miller 2024, section 4). For scores that are not a mean over examples (perplexity, bits per byte),
the log-likelihood of each example is compared. Scores of generated texts that are not a mean (BLEU) cannot be
compared example by example.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater.errors import MismatchError
from headwater.evaluate.protocols import standard_error
from headwater.evaluate.results import read_examples, read_results

_NORMAL_95 = 1.96


@dataclass(frozen=True)
class Difference:
    """B minus A of one protocol and metric, over the examples that both have, with a 95 % interval."""

    protocol: str
    metric: str
    a: float
    b: float
    difference: float
    low: float | None
    high: float | None
    count: int


def compare(a: Path, b: Path) -> list[Difference]:
    """Return the differences of all comparable protocols that are in both results folders.

    Raises MismatchError if they have no protocol in common.
    """
    first, second = read_results(a), read_results(b)
    here = {(result.protocol, result.metric) for result in first.results}
    shared = [(r.protocol, r.metric) for r in second.results if (r.protocol, r.metric) in here]
    if not shared:
        raise MismatchError(
            f"{a} and {b} have no protocol in common",
            expected="the same tasks",
            repair="Evaluate both on one task",
        )
    found: list[Difference] = []
    for protocol, metric in shared:
        mine = {record["id"]: record for record in read_examples(a, protocol)}
        theirs = {record["id"]: record for record in read_examples(b, protocol)}
        pairs = [(mine[key], theirs[key]) for key in mine if key in theirs]
        name, values = _values(metric, pairs)
        if values and not any(d.protocol == protocol and d.metric == name for d in found):
            found.append(_difference(protocol, name, values))
    return found


def _values(
    metric: str, pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]
) -> tuple[str, list[tuple[float, float]]]:
    """Return the metric if every example has it, else the log-likelihood of each example's text."""
    if all(metric in record for pair in pairs for record in pair):
        return metric, [(float(x[metric]), float(y[metric])) for x, y in pairs]
    if any("text" in answer for pair in pairs for record in pair for answer in record["answers"]):
        return metric, []
    return "log-likelihood an example", [(_log_likelihood(x), _log_likelihood(y)) for x, y in pairs]


def _log_likelihood(record: Mapping[str, Any]) -> float:
    return math.fsum(math.fsum(answer["log_probabilities"]) for answer in record["answers"])


def _difference(protocol: str, metric: str, values: Sequence[tuple[float, float]]) -> Difference:
    count = len(values)
    differences = [y - x for x, y in values]
    mean = math.fsum(differences) / count
    error = standard_error(differences, mean)
    reach = None if error is None else _NORMAL_95 * error
    return Difference(
        protocol=protocol,
        metric=metric,
        a=math.fsum(x for x, _ in values) / count,
        b=math.fsum(y for _, y in values) / count,
        difference=mean,
        low=None if reach is None else mean - reach,
        high=None if reach is None else mean + reach,
        count=count,
    )
