"""Choose the right continuation among several by likelihood, on labelled JSONL made from any corpus.

Each line of `validation.jsonl` has `context`, `question`, `answers` and `label`, the index of the right answer.
Context, question and right answer together are a passage of the original text. Two readings of one question:

`.mean` takes the answer with the highest mean token log-probability (GPT-1 section 5, as for RACE), over the
answer's own tokens;
`.gain` takes the answer whose log-probability the context raises most: log P(answer | context) − log P(answer).

GPT-1's tokenizer has no token before a text. There the first token of log P(answer) costs as much as a uniform
draw from the vocabulary, as in `held_out`. This cost is the same for every answer, so the comparison omits it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headwater.evaluation.data_files import Source
from headwater.evaluation.json_lines import json_lines, text_of, texts_of
from headwater.evaluation.protocols import ChoiceTask, Example, Metric, Scored
from headwater.evaluation.reader import ContinuationRequest, Reader

CHOICES = 4


class ContinuationChoice(ChoiceTask):
    """The right one among four continuations."""

    metrics = (Metric("accuracy", chance=1 / CHOICES),)
    by_mean = True

    def __init__(self, name: str, labels: str, *, gain: bool, begins: bool = False) -> None:
        self.benchmark, self.gain = name, gain
        self._begins = begins  # whether the context is the beginning of a document
        self.protocol = f"{name}.{'gain' if gain else 'mean'}"
        self.sources = (
            Source(
                "labels",
                kind="labels",
                settings={"task": labels},
                where=f"Make one with: headwater corpus labels CORPUS --task {labels} --out DIR",
            ),
        )

    def read(self, places: Mapping[str, Path], reader: Reader) -> Sequence[Example]:
        """Return one example a line of validation.jsonl."""
        path = places["labels"] / "validation.jsonl"
        rows = json_lines(path, _content, f"context, question, {CHOICES} answers and label")
        return [Example(str(n), row, text=row["answers"][row["label"]]) for n, row in enumerate(rows, start=1)]

    def requests(self, example: Example, reader: Reader) -> Sequence[ContinuationRequest]:
        """Return each answer after the prompt and, for `.gain`, by itself; cut to the model's context."""
        prompt, answers = example.content["prompt"], example.content["answers"]
        asked = [
            reader.pair_cut(prompt, answer, begins=self._begins, own_tokens=not self.gain) for answer in answers
        ]
        if self.gain:
            # The same tokens as after the prompt, so that a cut answer is compared with itself.
            asked += [reader.after_start(request.continuation) for request in asked]
        return asked

    def values(self, example: Example, answers: Sequence[Scored]) -> list[float]:
        """Return the mean log-probability of each answer or, for `.gain`, what the context adds to it."""
        if not self.gain:
            return super().values(example, answers)
        pairs = zip(answers[:CHOICES], answers[CHOICES:], strict=True)
        return [with_.total - alone.total for with_, alone in pairs]


def _content(row: Mapping[str, Any]) -> dict[str, Any]:
    answers, label = texts_of(row, "answers"), int(row["label"])
    if len(answers) != CHOICES or not 0 <= label < CHOICES:
        raise ValueError(f"{len(answers)} answers and label {label}")
    return {"prompt": text_of(row, "context") + text_of(row, "question"), "answers": answers, "label": label}


TASKS = [
    ContinuationChoice(name, labels, gain=gain, begins=begins)
    for name, labels, begins in (
        ("signature.docstring", "signature", True),
        ("continuation.four", "continuation", False),
    )
    for gain in (False, True)
]
