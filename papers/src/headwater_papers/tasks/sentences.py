"""GPT-1's zero-shot reading of two sets of single sentences (Radford et al. 2018, section 5, figure 2).

SST-2: the token *very* is appended, and the more probable of *positive* and *negative* is the answer;
`sst-2.whole-word` also allows vocabularies that split these words. CoLA: a sentence is acceptable if its mean
token log-probability is above a threshold. The paper does not say how it chose the threshold; here it is the one
with the best Matthews correlation on training sentences, and it is stored with the result.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from headwater.display import counted
from headwater.errors import DataError
from headwater.evaluation import (
    Answer,
    Choice,
    ContinuationRequest,
    Example,
    Figure,
    Metric,
    RequestEncoder,
    Scored,
    Source,
    Task,
    TaskRequest,
    numbered,
)
from headwater.finetuning import confusion_matrix, matthews
from headwater.reading import read_text

_LABELS = ("negative", "positive")  # in the order of SST-2's labels
_TUNED_ON = 2_000  # training sentences, enough to choose one threshold
_COLA = ("source", "label", "star", "sentence")  # its columns, which have no header


def _sentiment(protocol: str, summary: str, *, whole_word: bool) -> Choice:
    return Choice(
        "sst-2",
        protocol,
        "total",
        _sentences,
        Source(
            "test",
            names=("SST-2/dev.tsv", "sst2/glue/dev.tsv", "sst2/sentences/dev.tsv"),
            where="GLUE's SST-2, gluebenchmark.com/tasks",
        ),
        summary=summary,
        ask=partial(label_words, whole_word),
    )


def _sentences(path: Path) -> list[Example]:
    """Return the development sentences, whose labels are public."""
    header = read_text(path).partition("\n")[0].rstrip("\r").split("\t")
    text = "text_a" if "text_a" in header else "sentence"
    named = {text, "label"} <= set(header)
    rows = _rows(path, header if named else (text, "label"), skipped=int(named))
    return numbered(
        ({"sentence": row[text].strip(), "answers": _LABELS, "label": _label(row["label"], path)}, row[text])
        for row in rows
    )


def label_words(whole_word: bool, example: Example, encoder: RequestEncoder) -> list[ContinuationRequest]:
    """Return each label word after the sentence and *very*; raise DataError for one of several tokens.

    whole_word: a word may have several tokens.
    """
    asked = [encoder.pair(f"{example.content['sentence']} very", f" {word}") for word in _LABELS]
    for word, request in zip(_LABELS, asked, strict=True):
        if not whole_word and len(request.continuation) != 1:
            raise DataError(
                f"the word {word!r} is {len(request.continuation)} tokens in this vocabulary",
                expected="one, since the protocol compares two single tokens",
            )
    return asked


class Acceptability(Task):
    """CoLA by mean token log-probability and a threshold."""

    benchmark = "cola"
    protocol = "cola.mean-log-probability"
    summary = (
        "acceptable or not, by mean token log-probability against a threshold tuned on the training sentences"
    )
    metrics = (Metric("matthews", chance=0.0), Metric("accuracy"))
    sources = (
        Source("train", names=("CoLA/train.tsv", "cola/in_domain_train.tsv"), where="nyu-mll.github.io/CoLA"),
        Source("test", names=("CoLA/dev.tsv", "cola/in_domain_dev.tsv"), where="nyu-mll.github.io/CoLA"),
        Source("more", names=("cola/out_of_domain_dev.tsv",), needed=False),
    )

    def read(self, files: Mapping[str, Path], encoder: RequestEncoder) -> Sequence[Example]:
        """Return development sentences, in and out of domain, then those for tuning the threshold.

        GLUE's file has both domains; only the original release has one for each.
        """
        parts: dict[str, list[dict[str, Any]]] = {}
        in_parts = files["test"].name == "in_domain_dev.tsv"
        for role in ("test", "more", "train") if in_parts else ("test", "train"):
            if role in files:
                rows = islice(_rows(files[role], _COLA), _TUNED_ON if role == "train" else None)
                parts[role] = [
                    {"sentence": row["sentence"], "label": _label(row["label"], files[role])} for row in rows
                ]
        available = sum(len(rows) for role, rows in parts.items() if role != "train")
        # What overlaps with the training text is left out of the score, not of the tuning: that has no text.
        return [
            Example(
                f"{role} {number}",
                {**row, "tuned": role == "train", "available": available},
                text="" if role == "train" else row["sentence"],
            )
            for role, rows in parts.items()
            for number, row in enumerate(rows, start=1)
        ]

    def limited(self, examples: Sequence[Example], limit: int | None) -> Sequence[Example]:
        """Return the first `limit` development sentences, and as many for tuning."""
        parts: tuple[list[Example], list[Example]] = ([], [])
        for example in examples:
            parts[example.content["tuned"]].append(example)
        return [*parts[0][:limit], *parts[1][:limit]]

    def requests(self, example: Example, encoder: RequestEncoder) -> Sequence[TaskRequest]:
        """Return the whole sentence."""
        return [encoder.after_start(encoder.encode(example.content["sentence"]))]

    def score(self, example: Example, answers: Sequence[Answer], encoder: RequestEncoder) -> dict[str, Any]:
        """Return the sentence's mean token log-probability."""
        (answer,) = answers
        assert isinstance(answer, Scored)
        kept = {key: example.content[key] for key in ("label", "tuned", "available")}
        return {"value": answer.mean, **kept}

    def summarise(self, records: Sequence[Mapping[str, Any]]) -> list[Figure]:
        """Return Matthews' correlation and accuracy at the tuned threshold.

        Raises DataError if there are no development sentences.
        """
        threshold, tuned = best_threshold([(r["value"], r["label"]) for r in records if r["tuned"]])
        measured = [record for record in records if not record["tuned"]]
        if not measured:
            raise DataError("there are no development sentences to measure")
        chosen = np.array([record["value"] > threshold for record in measured], dtype=np.int64)
        labels = np.array([record["label"] for record in measured], dtype=np.int64)
        details: dict[str, Any] = {"threshold": threshold, "matthews on the tuning sentences": tuned}
        if len(measured) < measured[0]["available"]:
            details |= {"first": len(measured), "available": measured[0]["available"]}
        value = float(matthews(confusion_matrix(labels, chosen, 2)))
        # Fisher's approximation for a correlation.
        error = (1 - value**2) / math.sqrt(len(measured) - 1) if len(measured) > 1 else None
        right = (chosen == labels).astype(float).tolist()
        return [
            Figure("matthews", value, error, len(measured), details),
            Figure.share("accuracy", right, **details),
        ]


def best_threshold(scored: Sequence[tuple[float, int]]) -> tuple[float, float]:
    """Return the threshold with the best correlation between "above it" and the label, and that correlation."""
    if not scored:
        raise DataError("there are no training sentences to tune the threshold on")
    values, labels = np.array(sorted(scored)).T
    last = np.append(values[1:] > values[:-1], True)  # of equal values
    false_negative, below = np.cumsum(labels)[last], np.arange(1, len(labels) + 1)[last]
    true_negative = below - false_negative
    positives = labels.sum()
    false_positive, true_positive = len(labels) - positives - true_negative, positives - false_negative
    confusions = np.stack([true_negative, false_positive, false_negative, true_positive], axis=1)
    correlations = matthews(confusions.reshape(-1, 2, 2))
    value, correlation = max(zip(values[last], correlations, strict=True), key=lambda one: one[::-1])
    above = values[values > value]
    return float(value + (above[0] if len(above) else value)) / 2, float(correlation)


def _rows(path: Path, columns: Sequence[str], skipped: int = 0) -> Iterator[dict[str, str]]:
    """Yield the rows of a file with literal tabs, after `skipped` lines; raise DataError for a short one."""
    with io.StringIO(read_text(path), newline="") as lines:
        records = (stripped.split("\t") for line in lines if (stripped := line.rstrip("\r\n")))
        for number, record in enumerate(islice(records, skipped, None), start=1):
            if len(record) < len(columns):
                raise DataError(
                    f"{path} row {number:,} has {counted(len(record), 'field')}",
                    expected=f"{len(columns)} or more",
                )
            yield dict(zip(columns, record, strict=False))


def _label(value: str, path: Path) -> int:
    if value not in {"0", "1"}:
        raise DataError(f"{path} has the label {value!r}", expected="0 or 1")
    return int(value)


_VERY = "positive or negative after a sentence and the word very"
TASKS: list[Task] = [
    _sentiment("sst-2.very", _VERY, whole_word=False),
    _sentiment("sst-2.whole-word", f"{_VERY}, in any number of tokens", whole_word=True),
    Acceptability(),
]
