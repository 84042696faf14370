"""The last word of a passage, given all words before it, as LAMBADA asks for it (Paperno et al. 2016).

`last-token` scores only its last token, given all text and tokens before it; `whole-word` scores all its tokens.
Accuracy: every scored token is the most probable one. Perplexity is e to the mean negative log-probability of what
is scored, one answer a passage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from headwater.errors import DataError
from headwater.evaluation.data_files import Source, read_json_rows, text_of
from headwater.evaluation.figures import Figure
from headwater.evaluation.protocols import Answer, Example, Metric, Scored, Task, TaskFile, TaskRequest, numbered
from headwater.evaluation.request_encoder import ContinuationRequest, RequestEncoder

Scoring = Literal["last-token", "whole-word"]


class LastWord(Task):
    """A protocol that scores the last word of each passage of one file."""

    def __init__(
        self, benchmark: str, protocol: str, passages: Callable[[Path], list[str]], source: Source, *, summary: str
    ) -> None:
        self.benchmark, self.protocol, self.summary = benchmark, protocol, summary
        self.sources = (source,)
        self.metrics = (Metric("accuracy"), Metric("perplexity", higher_is_better=False))
        self._passages = passages

    def read(self, files: Mapping[str, Path], encoder: RequestEncoder) -> Sequence[Example]:
        """Return one example a passage."""
        texts = self._passages(files[self.sources[0].role])
        parts = (text.rpartition(" ") for text in texts)
        contents = ({"context": context, "word": f" {word}"} for context, _, word in parts)
        return numbered(zip(contents, texts, strict=True))

    def requests(self, example: Example, encoder: RequestEncoder) -> Sequence[TaskRequest]:
        """Ask for the word, or its last token, after its passage; raise DataError without a passage before it."""
        request = word_after_passage(example, encoder)
        if self.protocol.endswith(".last-token"):
            ids = request.context + request.continuation
            request = ContinuationRequest(ids[:-1], ids[-1:])
        return [request]

    def score(self, example: Example, answers: Sequence[Answer], encoder: RequestEncoder) -> dict[str, Any]:
        """Return whether the word is predicted, and its log-probability."""
        word = answers[0]
        assert isinstance(word, Scored)
        return {"log_probability": word.total, "accuracy": float(all(word.is_greedy))}

    def summarise(self, records: Sequence[Mapping[str, Any]]) -> list[Figure]:
        """Return accuracy, and the perplexity of what was scored."""
        figures = [Figure.share("accuracy", [record["accuracy"] for record in records])]
        if len(self.metrics) > 1:
            figures.append(Figure.mean("perplexity", [-record["log_probability"] for record in records]))
        return figures


def word_after_passage(example: Example, encoder: RequestEncoder) -> ContinuationRequest:
    """Return the request for the last word after its passage; raise DataError if one of them is missing."""
    if not example.content["context"].strip() or not example.content["word"].strip():
        raise DataError(f"{example.text!r} does not have two words", expected="a passage")
    return encoder.pair(example.content["context"], example.content["word"])


class LastWordFile(TaskFile):
    """A task file of the kind `last-word`."""

    kind: Literal["last-word"]
    text: str = "text"
    """The column of the passage."""
    readings: tuple[Scoring, ...] = ("whole-word",)
    """What is scored; each is a protocol."""

    def tasks(self) -> list[LastWord]:
        """Return a protocol for each reading."""
        source = Source("passages", names=self.files, where=self.where)
        summary = self.summary or "last word of a passage"
        return [
            LastWord(
                self.benchmark,
                f"{self.benchmark}.{reading}",
                self._passages,
                source,
                summary=f"{summary}, {reading}",
            )
            for reading in self.readings
        ]

    def _passages(self, path: Path) -> list[str]:
        return read_json_rows(path, lambda row: text_of(row, self.text).strip(), f"the column {self.text}")
