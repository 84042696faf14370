"""What a corpus holds, in one pass over it: `headwater corpus stats`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from headwater.corpus.folder import COLUMNS, shard_paths

PERCENTILES = (1, 10, 50, 90, 99)
TOP = 10
# A column with more distinct values than this is a name for each document, not a class of documents.
_DISTINCT = 100_000


def statistics(corpus: Path, top: int = TOP) -> dict[str, Any]:
    """Documents, bytes, characters, length distribution, and the commonest languages, sources and labels.

    Keys: documents, bytes (UTF-8, of text), characters, characters_per_document (minimum, percentiles as
    "p50", maximum, mean), counts (column -> {"distinct": int | None where beyond counting, "top": [[value,
    documents], …]}); empty values are not counted.
    """
    import numpy
    import pyarrow.compute
    import pyarrow.parquet

    total_bytes = 0
    lengths: list[Any] = []
    counters: dict[str, Counter[str] | None] = {}
    for path in shard_paths(corpus):
        with pyarrow.parquet.ParquetFile(path) as file:
            names = [n for n in file.schema_arrow.names if n not in COLUMNS or n in {"source", "language"}]
            for batch in file.iter_batches(batch_size=4096, columns=["text", *names]):
                text = batch.column("text")
                total_bytes += pyarrow.compute.sum(pyarrow.compute.binary_length(text)).as_py() or 0
                lengths.append(pyarrow.compute.utf8_length(text).to_numpy())
                for name in names:
                    _count(counters, name, batch.column(name))
    every = numpy.concatenate(lengths) if lengths else numpy.zeros(0, dtype=numpy.int32)
    return {
        "documents": len(every),
        "bytes": total_bytes,
        "characters": int(every.sum()),
        "characters_per_document": _distribution(every),
        "counts": {name: _summary(counter, top) for name, counter in counters.items() if counter != {}},
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
    import numpy

    if not len(lengths):
        return {}
    values = numpy.percentile(lengths, PERCENTILES, method="nearest")
    return {
        "minimum": int(lengths.min()),
        **{f"p{percent}": int(value) for percent, value in zip(PERCENTILES, values, strict=True)},
        "maximum": int(lengths.max()),
        "mean": round(float(lengths.mean()), 1),
    }


def _summary(counter: Counter[str] | None, top: int) -> dict[str, Any]:
    if counter is None:
        return {"distinct": None, "top": []}
    ordered = sorted(counter.items(), key=lambda item: (-item[1], item[0]))
    return {"distinct": len(ordered), "top": [[value, count] for value, count in ordered[:top]]}
