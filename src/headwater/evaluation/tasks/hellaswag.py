"""HellaSwag (Zellers et al. 2019): choose the right one of four endings, on the official `hellaswag_val.jsonl`.

Two forms of the file are in use, and they score different text:

- `lm-eval`, as lm-evaluation-harness: the context is `activity_label: ctx_a ctx_b`, with ctx_b capitalized; the
  bracketed marks of the WikiHow part are removed; context and ending are encoded as one text.
- `llm-c`, as llm.c and build-nanogpt: the context is `ctx` and nothing is removed; context and ending are encoded
  separately.

Each form has two ways to choose. `.total` takes the ending with the highest log-probability. The other divides
that by the ending's length: in characters in lm-evaluation-harness (`acc_norm`), in tokens in llm.c (`.mean`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

from headwater.evaluation.choice import AnswerChoice, Scoring
from headwater.evaluation.data_files import Source
from headwater.evaluation.json_rows import read_json_rows
from headwater.evaluation.protocols import Example

Form = Literal["lm-eval", "llm-c"]
ENDINGS = 4
_BRACKETS = re.compile(r"\[.*?\]")
_PROGRAMS: Mapping[Form, str] = {"lm-eval": "lm-evaluation-harness", "llm-c": "llm.c and build-nanogpt"}
_SUMMARIES: Mapping[Scoring, str] = {
    "total": "the log-probability of each ending",
    "per-character": "the log-probability of each ending, divided by its characters",
    "mean": "the mean log-probability of each ending's tokens",
}


def _questions(form: Form, path: Path) -> Iterator[Example]:
    expected = f"activity_label, ctx_a, ctx_b, ctx, {ENDINGS} endings and label"
    for number, row in enumerate(read_json_rows(path, partial(_content, form), expected), start=1):
        yield Example(str(number), row, text=row["context"])


def _content(form: Form, row: Mapping[str, Any]) -> dict[str, Any]:
    endings, label = list(row["endings"]), int(row["label"])
    if form == "llm-c":
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


def _task(form: Form, scoring: Scoring) -> AnswerChoice:
    return AnswerChoice(
        "hellaswag",
        f"hellaswag.{form}.{scoring}",
        scoring,
        partial(_questions, form),
        Source(
            "validation", names=("hellaswag_val.jsonl",), where="hellaswag_val.jsonl, github.com/rowanz/hellaswag"
        ),
        summary=f"the right one of four endings, as in {_PROGRAMS[form]}, by {_SUMMARIES[scoring]}",
        keys=("context", "endings"),
        chance=1 / ENDINGS,
        encoding="separate" if form == "llm-c" else "pair",
    )


TASKS = [
    _task("lm-eval", "total"),
    _task("lm-eval", "per-character"),
    _task("llm-c", "total"),
    _task("llm-c", "mean"),
]
