"""Compare two evaluations example by example: the difference between two models, and its interval.

Both models were asked the same examples, so differences are paired, and their error is smaller than that of two
separate scores (Miller 2024, section 4). A rate over all examples (bits per byte, perplexity) has the error of the
linearised difference. Other scores that are not a mean (BLEU, Matthews' correlation) cannot be compared example by
example, nor can a text that was split into different windows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater.errors import MismatchError
from headwater.evaluation.figures import rate, standard_error
from headwater.evaluation.results import Results, read_examples
from headwater.intervals import around, of_paired_shares
from headwater.storage import SILENT, Progress

_LOSSES = ("perplexity", "bits per byte", "bits per character")  # of text that a tokenizer may lose a part of


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


def compare(a: Path, b: Path, progress: Progress = SILENT) -> list[Difference]:
    """Return the differences of all comparable protocols that are in both results folders.

    Writes to `progress` why a protocol is left out. Raises MismatchError if no protocol can be compared.
    """
    lost_of_a, lost_of_b = (
        {(r.protocol, r.metric): r.details.get("lost text", {}) for r in Results.read(folder).results}
        for folder in (a, b)
    )
    differences: list[Difference] = []
    left_out: dict[str, str] = {}
    for protocol, metric in (key for key in lost_of_b if key in lost_of_a):
        mine = {record["id"]: record for record in read_examples(a, protocol)}
        theirs = {record["id"]: record for record in read_examples(b, protocol)}
        pairs = [(mine[key], theirs[key]) for key in mine if key in theirs]
        if not pairs or not all(_is_same_example(x, y) for x, y in pairs):
            left_out[protocol] = "the examples have different texts"
            continue
        difference = _difference(protocol, metric, pairs)
        if difference is None:
            left_out[f"{protocol} {metric}"] = "it is not a mean or a rate over examples"
        elif metric in _LOSSES and lost_of_a[protocol, metric] != lost_of_b[protocol, metric]:
            left_out[f"{protocol} {metric}"] = "the tokenizers lose different shares of the text"
        else:
            differences.append(difference)
    reasons = [f"{name}: {why}" for name, why in left_out.items()]
    if not differences:
        why = f"; {'; '.join(reasons)}" if reasons else ""
        raise MismatchError(
            f"{a} and {b} have no protocol in common that can be compared{why}",
            expected="the same tasks and data, with the same window and stride, and for windows of a text the "
            "same tokenizer",
            repair="Evaluate both on one task",
        )
    for reason in reasons:
        progress.note(f"left out: {reason}")
    return differences


def _is_same_example(x: Mapping[str, Any], y: Mapping[str, Any]) -> bool:
    """Return whether two records with the same id are about the same text, as far as they show it.

    The record of a held-out document has its tokenizer, its length in bytes and a hash of its text.
    """
    a, b = x["example"], y["example"]
    if a.get("tokenizer") != b.get("tokenizer"):
        return bool(a.get("text") == b.get("text"))  # the lengths may differ, since a tokenizer can be lossy
    return all(a[key] == b[key] for key in a.keys() & b.keys()) and x.get("bytes") == y.get("bytes")


def _amounts(metric: str, record: Mapping[str, Any]) -> tuple[float, float]:
    """Return what an example adds to both sides of a mean or a rate; raise KeyError for another kind of score.

    These are its value and 1, or nats or bits, and words, characters or bytes.
    """
    if metric in record:
        return float(record[metric]), 1.0
    if "bits" in record:  # with GPT-1's tokenizer they include the first token, which the model was not asked for
        return float(record["bits"]), float(record["bytes"])
    if "nats" in record:
        return float(record["nats"]) / (1.0 if metric == "perplexity" else math.log(2)), float(record["units"])
    if metric != "perplexity":
        raise KeyError(metric)
    return -float(record["log_probability"]), 1.0


def _difference(
    protocol: str, metric: str, pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]
) -> Difference | None:
    """Return the difference of a mean or of a rate over the examples; None for another kind of score."""
    try:
        sides = [[_amounts(metric, record) for record in side] for side in zip(*pairs, strict=True)]
    except KeyError:
        return None
    (a, moves_a), (b, moves_b) = (rate(metric, *zip(*side, strict=True)) for side in sides)
    moves = [y - x for x, y in zip(moves_a, moves_b, strict=True)]
    error = standard_error(moves) if len(moves) > 1 else 0.0
    # Differences that are all equal have no spread, but the difference of all possible examples is not certain.
    low, high = around(b - a, error) if error else (None, None)
    if all(record.get(metric) in (0, 1) for pair in pairs for record in pair):
        low, high = of_paired_shares([(float(x[metric]), float(y[metric])) for x, y in pairs])
    return Difference(protocol, metric, a, b, b - a, low, high, len(pairs))
