"""Choose the right continuation among several by likelihood, on labelled JSONL made from any corpus.

Each line of `validation.jsonl` holds `context`, `question`, `answers` and `label`, the index of the right one;
context, question and answer put together are a piece of the text as it stands. Two readings of one question:

`.mean` takes the answer with the highest mean token log-probability (GPT-1 section 5, as for RACE), over the
answer's own tokens;
`.gain` takes the one whose log-probability the context raises most: log P(answer | context) − log P(answer).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headwater.datasets.json_lines import json_lines
from headwater.datasets.places import Place, Source
from headwater.evaluate.protocols import Answer, Example, Metric, Scored, Task, choose_largest
from headwater.evaluate.reader import ContinuationRequest, Reader

CHOICES = 4


class ContinuationChoice(Task):
    """The right one among four continuations."""

    metrics = (Metric("accuracy", chance=1 / CHOICES),)

    def __init__(self, name: str, labels: str, what: str, *, gain: bool, begins: bool = False) -> None:
        self.benchmark, self.gain = name, gain
        self._begins = begins  # the context is the beginning of a document
        self.protocol = f"{name}.{'gain' if gain else 'mean'}"
        self.scored = "each of four answers: " + (
            "log P(answer | context) − log P(answer)" if gain else "the mean log-probability of its own tokens"
        )
        self.inferred = "the whole protocol: it is this project's own"
        how = "log-probability gained from the context" if gain else "mean token log-probability"
        self.summary = f"{what}, by {how}"
        self.sources = (
            Source(
                "labels",
                kind="labels",
                settings={"task": labels},
                where=f"Make one with: headwater corpus labels CORPUS --task {labels} --out DIR",
            ),
        )

    def read(self, places: Mapping[str, Place], reader: Reader) -> Sequence[Example]:
        """One example a line of validation.jsonl."""
        path = places["labels"] / "validation.jsonl"
        rows = json_lines(path, _content, f"context, question, {CHOICES} answers and label")
        return [Example(str(n), row, text=row["answers"][row["label"]]) for n, row in enumerate(rows, start=1)]

    def requests(self, example: Example, reader: Reader) -> Sequence[ContinuationRequest]:
        """Each answer behind the prompt and, for `.gain`, by itself; cut where the model's context ends."""
        prompt, answers = example.content["prompt"], example.content["answers"]
        asked = [
            reader.pair_cut(prompt, answer, begins=self._begins, own_tokens=not self.gain) for answer in answers
        ]
        if self.gain:
            # The same tokens as behind the prompt, so that a cut answer is compared with itself.
            asked += [reader.after_start(request.continuation) for request in asked]
        return asked

    def score(self, example: Example, answers: Sequence[Answer], reader: Reader) -> dict[str, Any]:
        """Whether the likeliest answer is the right one."""
        scored = [answer for answer in answers if isinstance(answer, Scored)]
        if self.gain:
            values = [
                with_.total - alone.total for with_, alone in zip(scored[:CHOICES], scored[CHOICES:], strict=True)
            ]
        else:
            values = [answer.mean for answer in scored]
        return choose_largest(values, example.content["label"])


def _content(row: Mapping[str, Any]) -> dict[str, Any]:
    answers, label = list(map(str, row["answers"])), int(row["label"])
    if len(answers) != CHOICES or not 0 <= label < CHOICES:
        raise ValueError(f"{len(answers)} answers and label {label}")
    return {"prompt": str(row["context"]) + str(row["question"]), "answers": answers, "label": label}


TASKS = [
    *(
        ContinuationChoice(
            "signature.docstring",
            "signature",
            "which of four docstrings belongs to a signature",
            gain=g,
            begins=True,
        )
        for g in (False, True)
    ),
    *(
        ContinuationChoice(
            "continuation.four", "continuation", "which of four texts goes on from a context", gain=g
        )
        for g in (False, True)
    ),
]
