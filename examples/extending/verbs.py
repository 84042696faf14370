"""Which of two sentences is right: one differs from the other in the form of a single verb.

The sentence with the higher log-probability is taken. Each line of `verbs.jsonl` holds `right` and `wrong`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from headwater.errors import DataError
from headwater.evaluate.places import Place, Source
from headwater.evaluate.protocols import Answer, Example, Metric, Scored, Task
from headwater.evaluate.reader import Continuation, Reader
from headwater.storage import read_text


class Verbs(Task):
    """The right sentence of a pair."""

    benchmark = "verbs"
    protocol = "verbs.agreement"
    summary = "which of two sentences is right, by log-probability of the whole"
    metrics = (Metric("accuracy", chance=1 / 2),)
    sources = (Source("pairs", names=("verbs.jsonl",), where="Write one: a line of {right, wrong} a pair"),)

    def read(self, places: Mapping[str, Place], reader: Reader) -> Sequence[Example]:
        """One example a line."""
        path, examples = places["pairs"], []
        for number, line in enumerate(read_text(path).splitlines(), start=1):
            try:
                row = json.loads(line)
                pair = {"right": str(row["right"]), "wrong": str(row["wrong"])}
            except (json.JSONDecodeError, KeyError, TypeError) as error:
                raise DataError(f"{path} line {number} has another format: {error!r}") from None
            examples.append(Example(str(number), pair, text=pair["right"]))
        return examples

    def requests(self, example: Example, reader: Reader) -> Sequence[Continuation]:
        """Both sentences, each at the start of a text."""
        return [reader.after_start(reader.encode(example.content[key])) for key in ("right", "wrong")]

    def score(self, example: Example, answers: Sequence[Answer], reader: Reader) -> dict[str, Any]:
        """Whether the right one is likelier."""
        right, wrong = (answer.total for answer in answers if isinstance(answer, Scored))
        return {"accuracy": float(right > wrong), "difference": right - wrong}


TASKS = [Verbs()]
