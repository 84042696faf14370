"""Language modelling on a long text: WikiText, PTB and 1BW by word, enwik8 by byte, text8 by character.

The score is e to the total negative log-likelihood divided by the number of the benchmark's *original* units
(Radford et al. 2019, section 3.1; in bits for bytes and characters): words between white space and line ends,
whatever the model's tokens are. The text is one stream after `<|endoftext|>`, scored in sliding windows. The paper
does not specify them, so `window` and `stride` are settings that are stored with the result.

`.tokens` uses the file as it is, `.detokenized` the output of the invertible de-tokenizer. The number of lines
that it does not restore is stored with the result.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from headwater.errors import DataError
from headwater.evaluation.data_files import Source
from headwater.evaluation.detokenize import ONE_BILLION, PTB, WIKITEXT, Detokenizer
from headwater.evaluation.protocols import Answer, Example, Figure, Metric, Scored, Task, perplexity, ratio_error
from headwater.evaluation.reader import ContinuationRequest, Reader
from headwater.storage import decode_text, read_bytes

Unit = Literal["word", "byte", "character"]
_LAST = 5_000_000  # test part of enwik8 and text8: the last five million bytes of a hundred million
_METRICS = {"word": "perplexity", "byte": "bits per byte", "character": "bits per character"}
_PIECE = 1 << 20  # characters encoded at a time
_BETWEEN_WORDS = re.compile(r"[^\W_](?= [^\W_])")


class StreamTask(Task):
    """One text, whose windows are the examples."""

    def __init__(
        self,
        benchmark: str,
        reading: str,
        names: tuple[str, ...],
        where: str,
        unit: Unit = "word",
        detokenizer: Detokenizer | None = None,
    ) -> None:
        self.benchmark, self.unit, self.detokenizer = benchmark, unit, detokenizer
        self.protocol = f"{benchmark}.{reading}"
        self.sources = (Source("test", names=names, where=where),)
        self.metrics = (Metric(_METRICS[unit], higher_is_better=False),)

    def read(self, places: Mapping[str, Path], reader: Reader) -> Sequence[Example]:
        """Return the windows, each with its share of the text's units."""
        text, units = self._text(places["test"])
        ids: list[int] = []
        for piece in _pieces(text):
            ids += reader.encode(piece)
        share = units / max(1, len(ids))
        windows = reader.windows(ids)
        if not windows:
            raise DataError(f"{places['test']} is empty", expected="the test text")
        return [
            Example(
                str(number),
                {"request": window, "units": share * len(window.continuation)},
                text=reader.tokenizer.decode(window.continuation),
            )
            for number, window in enumerate(windows)
        ]

    def requests(self, example: Example, reader: Reader) -> Sequence[ContinuationRequest]:
        """Return the window."""
        return [example.content["request"]]

    def score(self, example: Example, answers: Sequence[Answer], reader: Reader) -> dict[str, Any]:
        """Return the negative log-likelihood of the window's tokens in nats."""
        (answer,) = answers
        assert isinstance(answer, Scored)
        return {"nats": -answer.total, "tokens": len(answer.log_probabilities), "units": example.content["units"]}

    def settings(self, reader: Reader) -> dict[str, Any]:
        """Return window and stride."""
        return {"window": reader.window, "stride": reader.stride}

    def summarise(self, records: Sequence[Mapping[str, Any]]) -> list[Figure]:
        """Return the score over all units, with its standard error over windows."""
        nats = [record["nats"] for record in records]
        units = [record["units"] for record in records]
        tokens = sum(record["tokens"] for record in records)
        rate = math.fsum(nats) / math.fsum(units)
        error = ratio_error(nats, units)
        details = {"units": round(math.fsum(units)), "tokens": tokens, "nats per token": math.fsum(nats) / tokens}
        (metric,) = self.metrics
        factor = 1 / math.log(2)  # of nats in bits
        value = rate * factor
        if self.unit == "word":
            value = factor = perplexity(rate)
        return [Figure(metric.name, value, None if error is None else factor * error, len(records), details)]

    def details(self, places: Mapping[str, Path], examples: Sequence[Example]) -> dict[str, Any]:
        """Return the number of lines that the de-tokenizer cannot invert."""
        if self.detokenizer is None:
            return {}
        return self.detokenizer.count_exceptions(_lines(decode_text(read_bytes(places["test"]), places["test"])))

    def _text(self, path: Path) -> tuple[str, int]:
        """Return the text to score, and the number of its original units."""
        raw = read_bytes(path)
        if self.unit != "word":
            raw = raw[-_LAST:]
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


def _pieces(text: str) -> list[str]:
    """Split the text at spaces between two words, which no token spans."""
    pieces = []
    start = 0
    while len(text) - start > _PIECE:
        end = start + _PIECE
        found = _BETWEEN_WORDS.search(text, end)
        end = found.end() if found else len(text)
        pieces.append(text[start:end])
        start = end
    return [*pieces, text[start:]]


_WIKI = "The WikiText distribution of Merity et al. 2016"
_WIKI_2 = ("wikitext-2/wiki.test.tokens", "wikitext2/wiki.test.tokens")
_WIKI_103 = ("wikitext-103/wiki.test.tokens", "wikitext103/wiki.test.tokens")
_WIKI_RAW = (
    "wikitext-103-raw/wiki.test.raw",
    "wikitext-2-raw/wiki.test.raw",
    "wikitext2/wiki.test.raw",
    "wiki.test.raw",
)
_PTB_FILE = ("ptb.test.txt",)
_PTB_WHERE = "Mikolov's preprocessed Penn Treebank, simple-examples.tgz; the text is LDC99T42"
_1BW = ("news.en.heldout-00000-of-00050",)
_1BW_WHERE = "The One Billion Word benchmark of Chelba et al. 2013, its first held-out shard"

TASKS = [
    StreamTask("wikitext-2", "tokens", _WIKI_2, _WIKI),
    StreamTask("wikitext-2", "detokenized", _WIKI_2, _WIKI, detokenizer=WIKITEXT),
    StreamTask("wikitext-103", "tokens", _WIKI_103, _WIKI),
    StreamTask("wikitext-103", "detokenized", _WIKI_103, _WIKI, detokenizer=WIKITEXT),
    # The raw test text is the same for both sets; it has the words that <unk> replaces.
    StreamTask("wikitext-raw", "tokens", _WIKI_RAW, _WIKI),
    StreamTask("wikitext-raw", "detokenized", _WIKI_RAW, _WIKI, detokenizer=WIKITEXT),
    StreamTask("ptb", "tokens", _PTB_FILE, _PTB_WHERE),
    StreamTask("ptb", "detokenized", _PTB_FILE, _PTB_WHERE, detokenizer=PTB),
    StreamTask("enwik8", "bytes", ("enwik8.test.5mb", "enwik8"), "mattmahoney.net/dc/enwik8.zip", unit="byte"),
    StreamTask(
        "text8", "characters", ("text8.test.5mb", "text8"), "mattmahoney.net/dc/text8.zip", unit="character"
    ),
    StreamTask("1bw", "tokens", _1BW, _1BW_WHERE),
    StreamTask("1bw", "detokenized", _1BW, _1BW_WHERE, detokenizer=ONE_BILLION),
]
