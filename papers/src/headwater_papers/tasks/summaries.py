"""Summaries of CNN and Daily Mail articles (GPT-2, Radford et al. 2019, section 3.6, table 4).

`tldr`: the article, a new line and `TL;DR:`; 100 tokens with top-k 2; the first three sentences count.
`no-hint` omits `TL;DR:`. `lead-3` and `random-3` take three sentences of the article, without a model. All are
compared with the highlights, by ROUGE.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Literal

from headwater.evaluation import (
    Answer,
    Example,
    Generated,
    GenerationRequest,
    Metric,
    RequestEncoder,
    Source,
    Task,
    numbered,
    read_json_rows,
    text_of,
    texts_of,
)
from headwater_papers.tasks.agreement import rouge
from headwater_papers.tasks.generation import generation

Form = Literal["tldr", "no-hint", "lead-3", "random-3"]
_TOKENS, _TOP_K, _SENTENCES = 100, 2, 3
_END = re.compile(r"(?<=[.!?])[\"')]*\s+|\n+")


_SUMMARIES: Mapping[Form, str] = {
    "tldr": "summary after TL;DR:, top-k 2, first three sentences",
    "no-hint": "the same without TL;DR:",
    "lead-3": "the article's first three sentences",
    "random-3": "three sentences of the article",
}


class Summaries(Task):
    """ROUGE of three sentences against the highlights."""

    benchmark = "cnndm"
    metrics = tuple(Metric(name) for name in ("rouge-1", "rouge-2", "rouge-l", "rouge average"))
    sources = (
        Source(
            "test",
            names=("cnndm_test.jsonl", "cnn_dailymail/test.jsonl", "summeval_cnndm_test_100.jsonl"),
            where="CNN/DailyMail, non-anonymised, as lines of {article, highlights}",
        ),
    )

    def __init__(self, form: Form) -> None:
        self.form = form
        self.protocol = f"cnndm.{form}"
        self.summary = _SUMMARIES[form]

    def read(self, files: Mapping[str, Path], encoder: RequestEncoder) -> Sequence[Example]:
        """Return one example an article."""
        rows = read_json_rows(files["test"], _content, "lines of {article, highlights}")
        return numbered((row | {"number": number}, row["article"]) for number, row in enumerate(rows, start=1))

    def requests(self, example: Example, encoder: RequestEncoder) -> Sequence[GenerationRequest]:
        """Return the article, its end cut if it does not fit, and the hint."""
        if self.form in {"lead-3", "random-3"}:
            return []
        hint = encoder.encode("\nTL;DR:" if self.form == "tldr" else "\n")
        article, number = encoder.encode(example.content["article"]), example.content["number"]
        return [generation(article, hint, _TOKENS, encoder, temperature=1.0, top_k=_TOP_K, seed=number)]

    def score(self, example: Example, answers: Sequence[Answer], encoder: RequestEncoder) -> dict[str, Any]:
        """Return ROUGE of the three sentences."""
        article = sentences(example.content["article"])
        if self.form == "lead-3":
            chosen = article[:_SENTENCES]
        elif self.form == "random-3":
            random = Random(example.content["number"])
            chosen = random.sample(article, min(_SENTENCES, len(article)))
        else:
            (answer,) = answers
            assert isinstance(answer, Generated)
            chosen = sentences(answer.text)[:_SENTENCES]
        text = "\n".join(chosen)
        return rouge(text, example.content["highlights"]) | {"text": text}


def _content(row: Mapping[str, Any]) -> dict[str, Any]:
    several = isinstance(row["highlights"], list)
    text = "\n".join(texts_of(row, "highlights")) if several else text_of(row, "highlights")
    article = text_of(row, "article").strip()
    return {"id": str(row.get("id", "")), "article": article, "highlights": "\n".join(sentences(text))}


def sentences(text: str) -> list[str]:
    """Split a text into sentences after . ! ? and at line breaks."""
    return [part.strip() for part in _END.split(text) if part.strip()]


TASKS = [Summaries(form) for form in ("tldr", "no-hint", "lead-3", "random-3")]
