"""Choose the right one of two sentences that differ in the form of a single verb.

The sentence with the higher log-probability is chosen. Each line of `verbs.jsonl` has `right` and `wrong`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headwater.evaluation import (
    Answer,
    ContinuationRequest,
    Example,
    Metric,
    RequestEncoder,
    Scored,
    Source,
    Task,
    read_json_rows,
    text_of,
)


class Verbs(Task):
    """Choose the right sentence of a pair."""

    benchmark = "verbs"
    protocol = "verbs.agreement"
    summary = "which of two sentences is right, by log-probability of the whole"
    metrics = (Metric("accuracy", chance=1 / 2),)
    sources = (Source("pairs", names=("verbs.jsonl",), where="Write it: one line {right, wrong} for each pair"),)

    def read(self, files: Mapping[str, Path], encoder: RequestEncoder) -> Sequence[Example]:
        """Return one example for each line."""
        rows = read_json_rows(
            files["pairs"],
            lambda row: (text_of(row, "right"), text_of(row, "wrong")),
            "right and wrong in each line",
        )
        return [
            Example(str(number), {"right": right, "wrong": wrong}, text=right)
            for number, (right, wrong) in enumerate(rows, start=1)
        ]

    def requests(self, example: Example, encoder: RequestEncoder) -> Sequence[ContinuationRequest]:
        """Return both sentences, each at the start of a text."""
        return [encoder.after_start(encoder.encode(example.content[key])) for key in ("right", "wrong")]

    def score(self, example: Example, answers: Sequence[Answer], encoder: RequestEncoder) -> dict[str, Any]:
        """Return 1 if the right sentence is more probable, and the difference."""
        right, wrong = (answer.total for answer in answers if isinstance(answer, Scored))
        return {"accuracy": float(right > wrong), "difference": right - wrong}


TASKS = [Verbs()]
