"""The corpus folder: documents in Parquet files, written and read as a stream, and the funnel of its build.

The columns are `id, text, source, url, date, language`, then one nullable text column for each label of any
document. Files are compressed with zstd; the sizes of shards and row groups keep memory at a few dozen megabytes
for a corpus of any size. The sources decide what a document is. A funnel counts, with examples, what a build or a
crawl leaves out, and why.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.errors import DataError, FolderError
from headwater.reading import ParquetTable
from headwater.storage import folder_files, storage_errors

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

COLUMNS = ("id", "text", "source", "url", "date", "language")
SHARD_BYTES = 256 * 1024**2  # UTF-8 bytes of text in one Parquet file
GROUP_BYTES = 8 * 1024**2  # in one row group, which a reader has in memory
GROUP_DOCUMENTS = 8192
DOCUMENT_BYTES = 2**31 - 2  # Arrow counts the bytes of a text column in 32 bits
_BATCH_DOCUMENTS = 1024
EXAMPLES = 10
NAMES = 1000  # that are counted one by one; a hostile source could name any number
_EXAMPLE_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class Document:
    """One document; each label becomes a column. Unknown fields are empty."""

    id: str
    text: str
    source: str = ""
    url: str = ""
    date: str = ""
    language: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


def make_id(*parts: str) -> str:
    """Return a document's id: 32 hexadecimal digits of a hash of the parts that identify it."""
    return _digest(parts).hex()[:32]


def rank(*parts: str | int) -> int:
    """Return a uniform 64-bit hash of parts: a pseudo-random order that depends only on them."""
    return int.from_bytes(_digest(map(str, parts))[:8], "big")


def _digest(parts: Iterable[str]) -> bytes:
    return hashlib.sha256("\x00".join(parts).encode("utf-8", "surrogatepass")).digest()


def write_documents(documents: Iterable[Document], folder: Path, labels: Sequence[str] = ()) -> int:
    """Write `documents` into `folder` as documents-00000.parquet, …; return their number.

    All shards have a column for each of `labels`; raises ValueError for a document with another one.
    """
    import pyarrow.parquet

    schema, before, count = _schema(labels), 0, 0

    def shard_of(document: Document) -> int:
        nonlocal before
        begin, before = before, before + len(document.text.encode())
        return begin // SHARD_BYTES

    with storage_errors(folder):
        for number, (_, shard) in enumerate(groupby(documents, shard_of)):
            with pyarrow.parquet.ParquetWriter(folder / shard_name(number), schema, compression="zstd") as writer:
                for group in grouped(shard):
                    writer.write_table(_table(group, schema))
                    count += len(group)
        if not count:
            pyarrow.parquet.ParquetWriter(folder / shard_name(0), schema, compression="zstd").close()
    return count


def grouped(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """Yield documents in groups that a writer or reader has in memory."""
    group: list[Document] = []
    size = 0
    for document in documents:
        group.append(document)
        size += len(document.text.encode())
        if size >= GROUP_BYTES or len(group) >= GROUP_DOCUMENTS:
            yield group
            group, size = [], 0
    if group:
        yield group


def _table(group: list[Document], schema: Any) -> Any:
    import pyarrow

    labels = schema.names[len(COLUMNS) :]
    if unknown := {label for document in group for label in document.labels} - {*labels}:
        raise ValueError(f"a document has the label {min(unknown)!r}, expected {labels}")
    columns: dict[str, list[Any]] = {name: [getattr(document, name) for document in group] for name in COLUMNS}
    columns |= {label: [document.labels.get(label) for document in group] for label in labels}
    return pyarrow.table(columns, schema=schema)


def shard_starts(sizes: npt.NDArray[np.int64]) -> list[int]:
    """Return the number of the first document of each shard that `write_documents` would write.

    sizes: bytes of each document's text, (documents,), 0 for one that is not written.
    """
    import numpy as np

    written = np.flatnonzero(sizes)
    shards = (sizes.cumsum() - sizes)[written] // SHARD_BYTES
    return [0, *written[np.unique(shards, return_index=True)[1]][1:].tolist()]


def read_documents(corpus: Path) -> Iterator[Document]:
    """Stream the documents of a corpus folder, or of one of its files, in their order.

    Raises FolderError if the folder is missing, incomplete, damaged or of another kind.
    """
    for path in [corpus] if corpus.is_file() else shard_paths(corpus):
        yield from read_shard(path)


def read_shard(path: Path) -> Iterator[Document]:
    """Stream the documents of one Parquet file that `write_documents` wrote."""
    with ParquetTable(path) as file:
        labels = [name for name in file.schema.names if name not in COLUMNS]
        for batch in file.batches(_BATCH_DOCUMENTS):
            fields = [batch.column(name).to_pylist() for name in COLUMNS]
            values = [batch.column(name).to_pylist() for name in labels]
            for number, (identity, text, source, url, date, language) in enumerate(zip(*fields, strict=True)):
                own = {n: column[number] for n, column in zip(labels, values, strict=True)} if labels else {}
                own = {name: value for name, value in own.items() if value is not None}
                yield Document(identity, text, source, url, date, language, own)


def shard_paths(corpus: Path) -> list[Path]:
    """Check a corpus folder and return its Parquet files in order."""
    paths = folder_files(corpus, "corpus", ".parquet")
    if not paths:
        raise FolderError(f"{corpus} contains no documents", repair="Make it again with: headwater corpus build")
    return paths


def shard_name(index: int) -> str:
    """Return the name of the Parquet file with this number."""
    return f"documents-{index:05d}.parquet"


def _schema(labels: Sequence[str]) -> Any:
    import pyarrow

    clash = [label for label in labels if label in COLUMNS]
    if clash:
        raise ValueError(f"a label cannot have the name of the column {clash[0]!r}")
    fields = [pyarrow.field(name, pyarrow.string(), nullable=False) for name in COLUMNS]
    fields += [pyarrow.field(label, pyarrow.string(), nullable=True) for label in labels]
    return pyarrow.schema(fields)


class Tally(dict[str, dict[str, Any]]):
    """Counts by name, {name: {count: number, "examples": […]}}, with the first EXAMPLES of each.

    Names beyond NAMES are counted as "other".
    """

    def add(self, name: str, example: Any = "", **counts: int) -> None:
        """Add to the counts of a name, by default 1 to its `count`; keep the example if there are few."""
        merge(self, {name: {**(counts or {"count": 1}), "examples": [example] if example else []}})

    def total(self, name: str, count: str = "count") -> int:
        """Return a count of a name; 0 if nothing was added to it."""
        return int(self.get(name, {}).get(count, 0))


def merge(total: dict[str, Any], part: Mapping[str, Any]) -> None:
    """Add the counts, lists and dictionaries of `part`, the next part of the work, to `total`."""
    for name, value in part.items():
        if isinstance(total, Tally) and name not in total and len(total) >= NAMES:
            name = "other"
        if isinstance(value, dict) and value:
            merge(total.setdefault(name, {}), value)
        elif isinstance(value, list):
            listed = total.setdefault(name, [])
            listed += value[: EXAMPLES - len(listed)] if name == "examples" else value
        elif isinstance(value, int):
            total[name] = total.get(name, 0) + value


def size_of(document: Document) -> dict[str, int]:
    """Return the counts of one document: itself, and the UTF-8 bytes of its text."""
    return {"documents": 1, "bytes": len(document.text.encode("utf-8", "replace"))}


def example_of(document: Document) -> dict[str, str]:
    """Return a document as an example: where it is from, and its beginning."""
    return {"source": document.source, "url": document.url, "text": document.text[:_EXAMPLE_CHARACTERS]}


@dataclass
class Funnel:
    """What a task, or all tasks of a build, read, kept and left out, in plain values.

    removed: by step, in their order, and by rule; notes: for the user; aside: pages and files without usable text;
    encodings: pages of each; left_out: rows, records and markup that no document has; labels: documents with each,
    in their order; composed: documents that had another Unicode form; replaced: documents with U+FFFD.
    """

    read: dict[str, int] = field(default_factory=lambda: {"documents": 0, "bytes": 0})
    kept: dict[str, int] = field(default_factory=lambda: {"documents": 0, "bytes": 0})
    removed: dict[str, Tally] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    aside: list[dict[str, str]] = field(default_factory=list)
    encodings: dict[str, int] = field(default_factory=dict)
    left_out: Tally = field(default_factory=Tally)
    labels: dict[str, int] = field(default_factory=dict)
    composed: int = 0
    replaced: int = 0

    def set_aside(self, name: str, error: DataError, documents: int = 0) -> None:
        """Record a file that could not be read, or not beyond this number of documents."""
        reason = error.seen if not documents else f"used up to document {documents:,}: {error.seen}"
        self.aside.append({"source": name, "page": "", "reason": reason})
        self.notes.append(f"Left out{f' after document {documents:,}' if documents else ''}: {error}")
