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

from headwater.evaluation.agreement import rouge, rouge_scorer
from headwater.evaluation.data_files import Source
from headwater.evaluation.json_lines import json_lines, text_of, texts_of
from headwater.evaluation.protocols import Answer, Example, Generated, GenerationRequest, Metric, Task
from headwater.evaluation.reader import Reader
from headwater.evaluation.tasks.written import fitted

Reading = Literal["tldr", "no-hint", "lead-3", "random-3"]
_TOKENS, _TOP_K, _SENTENCES = 100, 2, 3
_END = re.compile(r"(?<=[.!?])[\"')]*\s+|\n+")


_SUMMARIES: Mapping[Reading, str] = {
    "tldr": "summary after TL;DR:, top-k 2, first three sentences",
    "no-hint": "the same without TL;DR:",
    "lead-3": "the article's first three sentences",
    "random-3": "three sentences of the article",
}


class Summaries(Task):
    """ROUGE of three sentences against the highlights."""

    benchmark = "cnndm"
    needs = (rouge_scorer,)
    metrics = tuple(Metric(name) for name in ("rouge-1", "rouge-2", "rouge-l", "rouge average"))
    sources = (
        Source(
            "test",
            names=("cnndm_test.jsonl", "cnn_dailymail/test.jsonl", "summeval_cnndm_test_100.jsonl"),
            where="CNN/DailyMail, non-anonymised, as lines of {article, highlights}",
        ),
    )

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.protocol = f"cnndm.{reading}"
        self.summary = _SUMMARIES[reading]
        self.inferred = "how sentences are split; ROUGE's version and stemmer"
        if reading != "lead-3":
            self.inferred += "; the seed"
        self.scored, self.from_paper = "three sentences of the article", "the baseline; ROUGE F1"
        if reading in {"tldr", "no-hint"}:
            self.scored = "the first three sentences written"
            self.from_paper = "100 tokens, top-k 2, three sentences; ROUGE F1"

    def read(self, files: Mapping[str, Path], reader: Reader) -> Sequence[Example]:
        """Return one example an article."""
        rows = json_lines(files["test"], _content, "lines of {article, highlights}")
        return [
            Example(str(number), row | {"number": number}, text=row["article"])
            for number, row in enumerate(rows, start=1)
        ]

    def requests(self, example: Example, reader: Reader) -> Sequence[GenerationRequest]:
        """Return the article, its end cut if it does not fit, and the hint."""
        if self.reading in {"lead-3", "random-3"}:
            return []
        hint = reader.encode("\nTL;DR:" if self.reading == "tldr" else "\n")
        prompt = fitted(reader.encode(example.content["article"]), hint, _TOKENS, reader)
        number = example.content["number"]
        return [GenerationRequest(prompt, _TOKENS, temperature=1.0, top_k=_TOP_K, seed=number)]

    def score(self, example: Example, answers: Sequence[Answer], reader: Reader) -> dict[str, Any]:
        """Return ROUGE of the three sentences."""
        article = sentences(example.content["article"])
        if self.reading == "lead-3":
            chosen = article[:_SENTENCES]
        elif self.reading == "random-3":
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


TASKS = [Summaries(reading) for reading in ("tldr", "no-hint", "lead-3", "random-3")]
