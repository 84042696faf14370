"""Which of two sentences is right: one differs from the other in the form of a single verb.

The sentence with the higher log-probability is taken. Each line of `verbs.jsonl` holds `right` and `wrong`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headwater.datasets.json_lines import json_lines
from headwater.datasets.places import Place, Source
from headwater.evaluate.protocols import Answer, Example, Metric, Scored, Task
from headwater.evaluate.reader import ContinuationRequest, Reader


class Verbs(Task):
    """The right sentence of a pair."""

    benchmark = "verbs"
    protocol = "verbs.agreement"
    summary = "which of two sentences is right, by log-probability of the whole"
    metrics = (Metric("accuracy", chance=1 / 2),)
    sources = (Source("pairs", names=("verbs.jsonl",), where="Write one: a line of {right, wrong} a pair"),)

    def read(self, places: Mapping[str, Place], reader: Reader) -> Sequence[Example]:
        """One example a line."""
        rows = json_lines(
            places["pairs"], lambda row: (str(row["right"]), str(row["wrong"])), "right and wrong a line"
        )
        return [
            Example(str(number), {"right": right, "wrong": wrong}, text=right)
            for number, (right, wrong) in enumerate(rows, start=1)
        ]

    def requests(self, example: Example, reader: Reader) -> Sequence[ContinuationRequest]:
        """Both sentences, each at the start of a text."""
        return [reader.after_start(reader.encode(example.content[key])) for key in ("right", "wrong")]

    def score(self, example: Example, answers: Sequence[Answer], reader: Reader) -> dict[str, Any]:
        """Whether the right one is likelier."""
        right, wrong = (answer.total for answer in answers if isinstance(answer, Scored))
        return {"accuracy": float(right > wrong), "difference": right - wrong}


TASKS = [Verbs()]
