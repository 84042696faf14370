"""HellaSwag (Zellers et al. 2019): choose the right one of four endings, on the official `hellaswag_val.jsonl`.

Two readings of the file are in use, and they score different text:

- `lm-eval`, as lm-evaluation-harness: the context is `activity_label: ctx_a ctx_b`, with ctx_b capitalized; the
  bracketed marks of the WikiHow part are removed; context and ending are encoded as one text.
- `llm-c`, as llm.c and build-nanogpt: the context is `ctx` and nothing is removed; context and ending are encoded
  separately.

Each reading has two ways to choose. `.total` takes the ending with the highest log-probability. The other divides
that by the ending's length: in characters in lm-evaluation-harness (`acc_norm`), in tokens in llm.c (`.mean`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from headwater.evaluation.data_files import Source
from headwater.evaluation.json_lines import json_lines
from headwater.evaluation.protocols import ChoiceTask, Example, Metric, Scored
from headwater.evaluation.reader import ContinuationRequest, Reader

Reading = Literal["lm-eval", "llm-c"]
ENDINGS = 4
_BRACKETS = re.compile(r"\[.*?\]")
_LENGTHS = {"lm-eval": "per-character", "llm-c": "mean"}
_PROGRAMS = {
    "lm-eval": ("lm-evaluation-harness", "`activity_label: ctx_a ctx_b` without bracketed marks"),
    "llm-c": ("llm.c and build-nanogpt", "the unchanged `ctx`, encoded separately"),
}


class HellaSwag(ChoiceTask):
    """The right one of four endings."""

    benchmark = "hellaswag"
    metrics = (Metric("accuracy", chance=1 / ENDINGS),)
    sources = (
        Source(
            "validation", names=("hellaswag_val.jsonl",), where="hellaswag_val.jsonl, github.com/rowanz/hellaswag"
        ),
    )

    def __init__(self, reading: Reading, *, normalized: bool) -> None:
        self.reading, self.normalized = reading, normalized
        self.by_mean = normalized and reading == "llm-c"
        self.protocol = f"hellaswag.{reading}.{_LENGTHS[reading] if normalized else 'total'}"
        program, context = _PROGRAMS[reading]
        how = "the log-probability of each ending" + (", divided by its characters" if normalized else "")
        if self.by_mean:
            how = "the mean log-probability of each ending's tokens"
        self.summary = f"the right one of four endings, as in {program}, by {how}"
        self.scored = f"{how}, after {context}; the largest is chosen"
        self.inferred = f"the whole protocol: neither paper has this set; it is the protocol of {program}"

    def read(self, files: Mapping[str, Path], reader: Reader) -> Sequence[Example]:
        """Return one example a line."""
        expected = f"activity_label, ctx_a, ctx_b, ctx, {ENDINGS} endings and label"
        rows = json_lines(files["validation"], partial(_content, self.reading), expected)
        return [Example(str(n), row, text=row["context"]) for n, row in enumerate(rows, start=1)]

    def requests(self, example: Example, reader: Reader) -> Sequence[ContinuationRequest]:
        """Return each ending after the context, with a space between them."""
        context, endings = example.content["context"], example.content["endings"]
        if self.reading == "lm-eval":
            return [reader.pair(context, f" {ending}") for ending in endings]
        head = reader.encode(context)
        return [reader.cut((*head, *reader.encode(f" {ending}")), len(head)) for ending in endings]

    def values(self, example: Example, answers: Sequence[Scored]) -> list[float]:
        """Return the log-probability of each ending, divided by its length if normalized."""
        values = super().values(example, answers)
        if not self.normalized or self.by_mean:
            return values
        return [value / len(ending) for value, ending in zip(values, example.content["endings"], strict=True)]


def _content(reading: Reading, row: Mapping[str, Any]) -> dict[str, Any]:
    endings, label = list(row["endings"]), int(row["label"])
    if reading == "llm-c":
        context = row["ctx"]
    else:
        context = _without_marks(f"{row['activity_label']}: {row['ctx_a']} {row['ctx_b'].capitalize()}")
        endings = [_without_marks(ending) for ending in endings]
    if len(endings) != ENDINGS or not 0 <= label < ENDINGS:
        raise ValueError(f"{len(endings)} endings and label {label}")
    for text in (context, *endings):
        if not isinstance(text, str) or not text:
            raise ValueError(f"the context or an ending is {text!r}")
    return {"context": context, "endings": endings, "label": label}


def _without_marks(text: str) -> str:
    """Remove the WikiHow part's marks, such as `[header]`; `[title]` ends a sentence."""
    return _BRACKETS.sub("", text.strip().replace(" [title]", ". ")).replace("  ", " ")


READINGS: tuple[Reading, ...] = ("lm-eval", "llm-c")
TASKS = [HellaSwag(reading, normalized=normalized) for reading in READINGS for normalized in (False, True)]
