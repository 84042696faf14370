"""Language modelling on a long text, as a task file describes it: by word, byte or character.

The score is e to the total negative log-likelihood divided by the number of the benchmark's *original* units
(Radford et al. 2019, section 3.1; in bits for bytes and characters): words between white space and line ends,
whatever the model's tokens are. The text is one stream after `<|endoftext|>`, scored in sliding windows. The paper
does not specify them, so `window` and `stride` are settings that are stored with the result.

`.tokens` uses the file as it is, `.detokenized` the output of the invertible de-tokenizer. The number of lines
that it does not restore is stored with the result.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from headwater.errors import DataError
from headwater.evaluation.config import EvaluateConfig
from headwater.evaluation.data_files import Source
from headwater.evaluation.detokenize import DETOKENIZERS, Detokenizer, DetokenizerName
from headwater.evaluation.figures import Figure
from headwater.evaluation.protocols import Answer, Example, Metric, Scored, Task, TaskFile
from headwater.evaluation.request_encoder import ContinuationRequest, RequestEncoder
from headwater.reading import decode_text, read_bytes
from headwater.storage import Progress

Unit = Literal["word", "byte", "character"]
# Of each unit: the metric, and the name of the protocol for the file as it is.
_UNITS: Mapping[Unit, tuple[str, str]] = {
    "word": ("perplexity", "tokens"),
    "byte": ("bits per byte", "bytes"),
    "character": ("bits per character", "characters"),
}


class PerplexityFile(TaskFile):
    """A task file of the kind `perplexity`."""

    kind: Literal["perplexity"]
    unit: Unit = "word"
    """What the loss is divided by."""
    detokenizer: DetokenizerName | None = None
    """Score the text also without its tokenisation."""
    last_bytes: int | None = Field(default=None, ge=1)
    """Use only the end of the file."""

    @model_validator(mode="after")
    def _has_a_unit_for_the_detokenizer(self) -> Self:
        if self.detokenizer is not None and self.unit != "word":
            raise ValueError(f"detokenizer is for unit = word, and unit is {self.unit}")
        return self

    def tasks(self) -> list[Task]:
        """Return a protocol for the text as it is and, with a de-tokenizer, one for its output."""
        plain: list[Task] = [Perplexity(self)]
        return plain if self.detokenizer is None else [*plain, Perplexity(self, DETOKENIZERS[self.detokenizer])]


class Perplexity(Task):
    """One text, whose windows are the examples."""

    in_windows = True

    def __init__(self, described: PerplexityFile, detokenizer: Detokenizer | None = None) -> None:
        self.described, self.detokenizer = described, detokenizer
        self.benchmark, self.unit = described.benchmark, described.unit
        self.sources = (Source("test", names=described.files, where=described.where),)
        metric, form = _UNITS[self.unit]
        self.metrics = (Metric(metric, higher_is_better=False),)
        if self.detokenizer is not None:
            form = "detokenized"
        self.protocol = f"{self.benchmark}.{form}"
        summary = described.summary or f"{metric} of the test text"
        self.summary = f"{summary}, {form}, through sliding windows"

    def read(self, files: Mapping[str, Path], encoder: RequestEncoder) -> Sequence[Example]:
        """Return the windows, each with its share of the text's units."""
        text, units = self._text(files["test"])
        ids = encoder.encode(text)
        share = units / max(1, len(ids))
        windows = encoder.windows(ids)
        if not windows:
            raise DataError(f"{files['test']} is empty", expected="the test text")
        return [
            Example(
                str(number),
                {"request": window, "units": share * len(window.continuation)},
                text=encoder.tokenizer.decode(window.continuation),
            )
            for number, window in enumerate(windows)
        ]

    def requests(self, example: Example, encoder: RequestEncoder) -> Sequence[ContinuationRequest]:
        """Return the window."""
        return [example.content["request"]]

    def score(self, example: Example, answers: Sequence[Answer], encoder: RequestEncoder) -> dict[str, Any]:
        """Return the negative log-likelihood of the window's tokens in nats."""
        (answer,) = answers
        assert isinstance(answer, Scored)
        return {"nats": -answer.total, "tokens": len(answer.log_probabilities), "units": example.content["units"]}

    def is_published_set(self, files: Mapping[str, Path], examples: Sequence[Example]) -> bool:
        """Return whether the part of the file that is scored, or the number of its units, is the published one."""
        known, units = self.published_set, round(sum(example.content["units"] for example in examples))
        if "sha256" in known:
            return hashlib.sha256(self._bytes(files["test"])).hexdigest() == known["sha256"]
        return units == known.get("size", units)

    def scored_texts(self, files: Mapping[str, Path], examples: Sequence[Example]) -> Iterable[str]:
        """Return the whole text; that of an example is what its tokens spell."""
        return [self._text(files["test"])[0]]

    def summarise(self, records: Sequence[Mapping[str, Any]]) -> list[Figure]:
        """Return the score over all units, with its standard error over windows."""
        nats, units = ([float(record[key]) for record in records] for key in ("nats", "units"))
        tokens = sum(record["tokens"] for record in records)
        details = {"units": round(math.fsum(units)), "tokens": tokens, "nats per token": math.fsum(nats) / tokens}
        amounts = nats if self.unit == "word" else [value / math.log(2) for value in nats]
        return [Figure.ratio(self.metrics[0].name, amounts, units, **details)]

    def details(
        self, files: Mapping[str, Path], examples: Sequence[Example], config: EvaluateConfig, progress: Progress
    ) -> dict[str, Any]:
        """Return the number of lines that the de-tokenizer cannot invert."""
        if self.detokenizer is None:
            return {}
        return self.detokenizer.count_exceptions(_lines(decode_text(self._bytes(files["test"]), files["test"])))

    def _bytes(self, path: Path) -> bytes:
        """Return the part of the file that is scored; by word and character it begins with a whole character."""
        raw, last = read_bytes(path), self.described.last_bytes
        if last is None or last >= len(raw):
            return raw
        start = len(raw) - last
        while self.unit != "byte" and start < len(raw) and raw[start] & 0xC0 == 0x80:  # inside a character
            start += 1
        return raw[start:]

    def _text(self, path: Path) -> tuple[str, int]:
        """Return the text to score, and the number of its original units."""
        raw = self._bytes(path)
        if self.unit != "word":
            # A test part may begin inside a character, whose bytes are counted too.
            text = raw.decode("utf-8", errors="replace") if self.unit == "byte" else decode_text(raw, path)
            return text, len(raw) if self.unit == "byte" else len(text)
        text = decode_text(raw, path)
        units = len(text.split()) + text.count("\n")
        if self.detokenizer is not None:
            end = "\n" if text.endswith("\n") else ""
            text = "\n".join(map(self.detokenizer.detokenize, _lines(text))) + end
        return text, units


def _lines(text: str) -> list[str]:
    """Return the lines of a file, each without its end."""
    return text.removesuffix("\n").split("\n")
