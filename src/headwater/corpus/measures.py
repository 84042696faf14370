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


def statistics(corpus: Path) -> dict[str, Any]:
    """Return sizes, lengths, and the most common languages, sources, hosts and labels.

    Keys: documents, bytes (UTF-8, of text), characters, characters_per_document (minimum, percentiles as "p50",
    maximum, mean), unknown (how often the string <UNK> occurs), counts (column or
    "host" -> {"distinct": int, None for too many to count, "top": [[value, documents], …]}; empty values are not
    counted).
    """
    import pyarrow.compute

    total_bytes = unknown = 0
    lengths: list[Any] = []
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
                unknown += pyarrow.compute.sum(pyarrow.compute.count_substring(text, UNKNOWN)).as_py() or 0
    every = numpy.concatenate(lengths) if lengths else numpy.zeros(0, dtype=numpy.int32)
    return {
        "documents": len(every),
        "bytes": total_bytes,
        "characters": int(every.sum()),
        "characters_per_document": _distribution(every),
        "unknown": unknown,
        "counts": {name: _summary(counter) for name, counter in counters.items() if counter != {}},
    }


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


def _summary(counter: Counter[str] | None) -> dict[str, Any]:
    if counter is None:
        return {"distinct": None, "top": []}
    ordered = sorted(counter.items(), key=lambda item: (-item[1], item[0]))
    return {"distinct": len(ordered), "top": [[value, count] for value, count in ordered[:TOP]]}
