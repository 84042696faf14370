"""Choose an answer or an ending: RACE zero-shot as in GPT-1, Story Cloze in the same way, and HellaSwag.

GPT-1 (Radford et al. 2018, section 5): the answer with the highest mean token log-probability given document and
question. The mean is over the answer's own tokens: the newline between question and answer is not scored. A blank
in a RACE question ("_") is kept; the answer is on a line of its own. If document and question are longer than the
context, the beginning of the document is cut.

HellaSwag (Zellers et al. 2019): choose the right one of four endings, on the official `hellaswag_val.jsonl`.

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
from headwater.evaluation.protocols import Example, numbered
from headwater.evaluation.questions import read_questions


def _questions(separator: str, path: Path) -> Iterator[Example]:
    for row in read_questions(path):
        document, question, *answers = row.segments
        context = f"{document}{separator}{question}" if question else document
        label = int(row.label) if isinstance(row.label, str | int | float) else None
        yield Example(str(row.row), {"context": context, "answers": answers, "label": label}, text=context)


def _race(part: str, questions: str, *names: str) -> AnswerChoice:
    return AnswerChoice(
        f"race{part}",
        f"race{part}.mean",
        "mean",
        partial(_questions, "\n"),
        Source("test", names=names, where="RACE, cs.cmu.edu/~glai1/data/race"),
        summary=f"the answer to a question on a text ({questions}), by mean token log-probability",
        separator="\n",
        chance=1 / 4,
    )


Form = Literal["lm-eval", "llm-c"]
ENDINGS = 4
_BRACKETS = re.compile(r"\[.*?\]")
_PROGRAMS: Mapping[Form, str] = {"lm-eval": "lm-evaluation-harness", "llm-c": "llm.c and build-nanogpt"}
_HELLASWAG_SUMMARIES: Mapping[Scoring, str] = {
    "total": "the log-probability of each ending",
    "per-character": "the log-probability of each ending, divided by its characters",
    "mean": "the mean log-probability of each ending's tokens",
}


def _endings(form: Form, path: Path) -> list[Example]:
    expected = f"activity_label, ctx_a, ctx_b, ctx, {ENDINGS} endings and label"
    return numbered(
        (row, row["context"]) for row in read_json_rows(path, partial(_ending_content, form), expected)
    )


def _ending_content(form: Form, row: Mapping[str, Any]) -> dict[str, Any]:
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


def _hellaswag(form: Form, scoring: Scoring) -> AnswerChoice:
    return AnswerChoice(
        "hellaswag",
        f"hellaswag.{form}.{scoring}",
        scoring,
        partial(_endings, form),
        Source(
            "validation", names=("hellaswag_val.jsonl",), where="hellaswag_val.jsonl, github.com/rowanz/hellaswag"
        ),
        summary=f"the right one of four endings, as in {_PROGRAMS[form]}, by {_HELLASWAG_SUMMARIES[scoring]}",
        keys=("context", "endings"),
        chance=1 / ENDINGS,
        encoding="separate" if form == "llm-c" else "pair",
    )


TASKS = [
    _hellaswag("lm-eval", "total"),
    _hellaswag("lm-eval", "per-character"),
    _hellaswag("llm-c", "total"),
    _hellaswag("llm-c", "mean"),
    _race("", "all of RACE's test part", "RACE/test/"),
    _race("-middle", "middle school", "RACE/test/middle/", "race_middle_test.jsonl"),
    _race("-high", "high school", "RACE/test/high/", "race_high_test.jsonl"),
    _race("-sample", "500 middle, 500 high", "race_1000_m500_h500.jsonl"),
    AnswerChoice(
        "story-cloze",
        "story-cloze.mean",
        "mean",
        partial(_questions, " "),
        Source("test", names=("cloze_test_test__spring2016.csv",), where="cs.rochester.edu/nlp/rocstories"),
        summary="the right ending of a story, by mean token log-probability",
        chance=1 / 2,
    ),
]
