"""The corpus folder: documents in Parquet files, written and read as a stream.

The columns are `id, text, source, url, date, language`, then one nullable text column for each label of any
document. Files are compressed with zstd; the sizes of shards and row groups keep memory at a few dozen megabytes
for a corpus of any size. The sources decide what a document is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater.errors import DataError, FolderError
from headwater.reading import AnyFile, ParquetTable
from headwater.storage import folder_files, storage_errors

COLUMNS = ("id", "text", "source", "url", "date", "language")
SHARD_BYTES = 256 * 1024**2  # UTF-8 bytes of text in one Parquet file
GROUP_BYTES = 8 * 1024**2  # in one row group, which a reader has in memory
GROUP_DOCUMENTS = 8192
DOCUMENT_BYTES = 2**31 - 2  # Arrow counts the bytes of a text column in 32 bits
_BATCH_DOCUMENTS = 1024


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


@dataclass(frozen=True, slots=True)
class CorpusSize:
    """Size of a corpus: `bytes` are UTF-8 bytes of text, `largest` those of the largest document.

    labels: the names of the documents' labels.
    """

    documents: int
    bytes: int
    largest: int
    labels: tuple[str, ...] = ()


def make_id(*parts: str) -> str:
    """Return a document's id: 32 hexadecimal digits of a hash of the parts that identify it."""
    return hashlib.sha256("\x00".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def write_documents(documents: Iterable[Document], folder: Path) -> int:
    """Write `documents` into `folder` as documents-00000.parquet, …; return their number.

    All shards have the same columns, one for each label of any document.
    """
    shards: list[tuple[Path, list[str]]] = []
    count = 0
    with storage_errors(folder):
        writer = _Shard(folder / _shard_name(0))
        for document in documents:
            if writer.bytes >= SHARD_BYTES:
                shards.append(writer.close())
                writer = _Shard(folder / _shard_name(len(shards)))
            writer.add(document)
            count += 1
        if count or not shards:
            shards.append(writer.close())
        labels = list(dict.fromkeys(label for _, own in shards for label in own))
        for path, own in shards:
            if own != labels:
                _add_columns(path, labels).close()
    return count


def read_documents(corpus: str | Path) -> Iterator[Document]:
    """Stream the documents of a corpus folder, local or remote, in their order.

    Raises FolderError if the folder is missing, incomplete, damaged or of another kind.
    """
    for path in shard_paths(corpus):
        yield from read_shard(path)


def read_shard(path: AnyFile) -> Iterator[Document]:
    """Stream the documents of one Parquet file that `write_documents` wrote."""
    with ParquetTable(path) as file:
        labels = _labels(file)
        for batch in file.batches(_BATCH_DOCUMENTS):
            fields = [batch.column(name).to_pylist() for name in COLUMNS]
            values = [batch.column(name).to_pylist() for name in labels]
            for number, (identity, text, source, url, date, language) in enumerate(zip(*fields, strict=True)):
                own = {n: column[number] for n, column in zip(labels, values, strict=True)} if labels else {}
                own = {name: value for name, value in own.items() if value is not None}
                yield Document(identity, text, source, url, date, language, own)


def measure(corpus: Path) -> CorpusSize:
    """Return the size of a corpus without decoding the texts."""
    import pyarrow.compute

    count = total = largest = 0
    labels: tuple[str, ...] = ()
    for path in shard_paths(corpus):
        with ParquetTable(path) as file:
            labels = _labels(file)
            for batch in file.batches(_BATCH_DOCUMENTS, ["text"]):
                lengths = pyarrow.compute.binary_length(batch.column(0))
                count += len(lengths)
                total += pyarrow.compute.sum(lengths).as_py() or 0
                largest = max(largest, pyarrow.compute.max(lengths).as_py() or 0)
    return CorpusSize(count, total, largest, labels)


def _labels(file: ParquetTable) -> tuple[str, ...]:
    return tuple(name for name in file.schema.names if name not in COLUMNS)


def shard_paths(corpus: str | Path) -> list[AnyFile]:
    """Check a corpus folder and return its Parquet files in order."""
    paths = folder_files(corpus, "corpus", ".parquet")
    if not paths:
        raise FolderError(f"{corpus} contains no documents", repair="Make it again with: headwater corpus build")
    return paths


class _Shard:
    """One Parquet file being written. It is rewritten if a later row group has a new label."""

    def __init__(self, path: Path) -> None:
        self.path, self.bytes = path, 0
        self._rows: list[Document] = []
        self._group_bytes = 0
        self._labels: list[str] = []
        self._writer: Any = None

    def add(self, document: Document) -> None:
        size = len(document.text.encode("utf-8"))
        if size > DOCUMENT_BYTES:
            raise DataError(
                f"a document of {document.source} has {size:,} bytes",
                expected=f"at most {DOCUMENT_BYTES:,}, which is Arrow's limit",
                repair="Cut the file, or write <|endoftext|> between its documents",
            )
        self._rows.append(document)
        self._group_bytes += size
        self.bytes += size
        if self._group_bytes >= GROUP_BYTES or len(self._rows) >= GROUP_DOCUMENTS:
            self._flush()

    def close(self) -> tuple[Path, list[str]]:
        self._flush()
        self._writer.close()
        return self.path, self._labels

    def _flush(self) -> None:
        import pyarrow

        if self._writer is not None and not self._rows:
            return
        new = dict.fromkeys(label for document in self._rows for label in document.labels)
        labels = list(dict.fromkeys([*self._labels, *new]))
        if self._writer is not None and labels != self._labels:
            self._writer.close()
            self._writer = _add_columns(self.path, labels)
        self._labels = labels
        schema = _schema(labels)
        if self._writer is None:
            self._writer = _open_writer(self.path, schema)
        columns: dict[str, list[str | None]] = {
            name: [getattr(document, name) for document in self._rows] for name in COLUMNS
        }
        columns |= {label: [document.labels.get(label) for document in self._rows] for label in labels}
        self._writer.write_table(pyarrow.table(columns, schema=schema))
        self._rows, self._group_bytes = [], 0


def _shard_name(index: int) -> str:
    return f"documents-{index:05d}.parquet"


def _schema(labels: list[str]) -> Any:
    import pyarrow

    clash = [label for label in labels if label in COLUMNS]
    if clash:
        raise ValueError(f"a label cannot have the name of the column {clash[0]!r}")
    fields = [pyarrow.field(name, pyarrow.string(), nullable=False) for name in COLUMNS]
    fields += [pyarrow.field(label, pyarrow.string(), nullable=True) for label in labels]
    return pyarrow.schema(fields)


def _open_writer(path: Path, schema: Any) -> Any:
    import pyarrow.parquet

    return pyarrow.parquet.ParquetWriter(path, schema, compression="zstd")


def _add_columns(path: Path, labels: list[str]) -> Any:
    """Rewrite `path`, row group by row group, with a column for each of `labels`; return its open writer.

    New columns are null.
    """
    import pyarrow.parquet

    schema = _schema(labels)
    old = path.with_suffix(".old")
    path.rename(old)
    writer = _open_writer(path, schema)
    with pyarrow.parquet.ParquetFile(old) as file:
        for index in range(file.num_row_groups):
            table = file.read_row_group(index)
            for label in labels:
                if label not in table.column_names:
                    table = table.append_column(label, pyarrow.nulls(len(table), pyarrow.string()))
            writer.write_table(table.select(schema.names).cast(schema))
    old.unlink()
    return writer
