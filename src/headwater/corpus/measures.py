"""Measure a corpus in one pass: `headwater corpus stats`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy

from headwater.corpus.folder import COLUMNS, shard_paths
from headwater.corpus.web.urls import host_of
from headwater.reading import ParquetTable

PERCENTILES = (1, 10, 50, 90, 99)
TOP = 10
UNKNOWN = "<UNK>"  # GPT-2, section 3.1: this string occurs 26 times in WebText's 40 billion bytes
# A column with more distinct values identifies documents instead of grouping them.
_DISTINCT = 1_000_000
_DISTINCT_WORDS = 5_000_000  # where the growth curve ends


def statistics(corpus: str | Path) -> dict[str, Any]:
    """Return sizes, lengths, vocabulary growth, and the most common languages, sources and labels.

    `corpus` is a folder or a URL. Keys: documents, bytes (UTF-8, of text), characters, characters_per_document
    (minimum, percentiles as "p50", maximum, mean), lengths ([[least characters, documents], …], each bound twice
    the one before), vocabulary ([[words read, distinct words], …], words by white space in lower case, at each
    doubling and at the end), unknown (how often the string <UNK> occurs), counts (column or "host" ->
    {"distinct": int, None for too many to count, "top": [[value, documents], …]}; empty values are not counted).
    """
    import pyarrow.compute

    total_bytes = unknown = 0
    lengths: list[Any] = []
    vocabulary = _Vocabulary()
    counters: dict[str, Counter[str] | None] = {}
    for path in shard_paths(corpus):
        with ParquetTable(path) as file:
            names = [n for n in file.schema.names if n not in COLUMNS or n in {"source", "language"}]
            for batch in file.batches(1024, ["text", "url", *names]):
                text = batch.column("text")
                total_bytes += pyarrow.compute.sum(pyarrow.compute.binary_length(text)).as_py() or 0
                lengths.append(pyarrow.compute.utf8_length(text).to_numpy())
                for name in names:
                    _count(counters, name, batch.column(name))
                hosts = [host_of(url).removeprefix("www.") for url in batch.column("url").to_pylist()]
                _count(counters, "host", pyarrow.array(hosts, pyarrow.string()))
                for document in text.to_pylist():
                    vocabulary.add(document)
                    unknown += document.count(UNKNOWN)
    every = numpy.concatenate(lengths) if lengths else numpy.zeros(0, dtype=numpy.int32)
    return {
        "documents": len(every),
        "bytes": total_bytes,
        "characters": int(every.sum()),
        "characters_per_document": _distribution(every),
        "lengths": _histogram(every),
        "vocabulary": vocabulary.growth(),
        "unknown": unknown,
        "counts": {name: _summary(counter) for name, counter in counters.items() if counter != {}},
    }


class _Vocabulary:
    """Number of distinct words at each doubling of the words read."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._words = 0
        self._next = 1024
        self._growth: list[list[int]] = []

    def add(self, text: str) -> None:
        if len(self._seen) > _DISTINCT_WORDS:
            return
        words = text.lower().split()
        self._words += len(words)
        self._seen.update(words)
        if self._words >= self._next:
            self._growth.append([self._words, len(self._seen)])
            self._next = 2 * self._words

    def growth(self) -> list[list[int]]:
        end = [self._words, len(self._seen)]
        return self._growth if not self._words or self._growth[-1:] == [end] else [*self._growth, end]


def _count(counters: dict[str, Counter[str] | None], name: str, column: Any) -> None:
    counter = counters.setdefault(name, Counter())
    if counter is None:
        return
    for entry in column.value_counts().to_pylist():
        if entry["values"]:
            counter[entry["values"]] += entry["counts"]
    if len(counter) > _DISTINCT:
        counters[name] = None


def _distribution(lengths: Any) -> dict[str, float]:
    if not len(lengths):
        return {}
    values = numpy.percentile(lengths, PERCENTILES, method="nearest")
    return {
        "minimum": int(lengths.min()),
        **{f"p{percent}": int(value) for percent, value in zip(PERCENTILES, values, strict=True)},
        "maximum": int(lengths.max()),
        "mean": round(float(lengths.mean()), 1),
    }


def _histogram(lengths: Any) -> list[list[int]]:
    """Return [[minimum, documents], …] for lengths between powers of two; 0 counts as 1."""
    if not len(lengths):
        return []
    powers = numpy.log2(numpy.maximum(lengths, 1)).astype(int)
    counts = numpy.bincount(powers)
    first = int(powers.min())
    return [[2**power, int(counts[power])] for power in range(first, len(counts))]


def _summary(counter: Counter[str] | None) -> dict[str, Any]:
    if counter is None:
        return {"distinct": None, "top": []}
    ordered = sorted(counter.items(), key=lambda item: (-item[1], item[0]))
    return {"distinct": len(ordered), "top": [[value, count] for value, count in ordered[:TOP]]}
