"""Read Parquet and Arrow files: batches of bounded memory, and what their columns mean.

A block of a Parquet column may repeat one long value, or extend the value before it (the encoding
DELTA_BYTE_ARRAY): a few bytes stand for gigabytes. The sizes in the metadata decide how many rows a batch has, and
what is refused.

A DECIMAL is a number; a BINARY column without an annotation, as Spark and Impala write text, is a text where it is
UTF-8; the integers of a `ClassLabel` of the library `datasets` are the names that the file's own metadata has.
Folders of `datasets.save_to_disk` have the same columns in Arrow's own format.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from headwater.errors import DataError, StorageError
from headwater.reading.files import FileLimits, file_error, read_object

_TEXTS = {"string", "large_string", "string_view"}
_BYTES = {"binary", "large_binary", "binary_view"}
_STATE, _SPLITS = "state.json", "dataset_dict.json"  # of `datasets.save_to_disk`


class ParquetTable:
    """An open Parquet file; use it as a context manager.

    schema: pyarrow's, with the names and types of the columns.
    """

    def __init__(self, path: Path) -> None:
        """Open the file; raises DataError if it cannot be read."""
        import pyarrow.parquet

        self.path = path
        with _readable(self.path, "Parquet"):
            self._file = pyarrow.parquet.ParquetFile(path)
            self._bytes = path.stat().st_size
            self.schema, self._metadata = self._file.schema_arrow, self._file.metadata
            self.schema.names  # may not be UTF-8  # noqa: B018

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def batches(self, rows: int, columns: Sequence[str] | None = None) -> Iterator[Any]:
        """Yield pyarrow's record batches of at most `rows` rows of one row group, of all or the named columns.

        Raises DataError for what cannot be read, and for a file that unpacks to far more than its size.
        """
        total = 0
        with _readable(self.path, "Parquet"):
            for group in range(self._metadata.num_row_groups):
                missing = self._metadata.row_group(group).num_rows
                for batch in self._file.iter_batches(min(rows, self._most_rows(group, columns)), [group], columns):
                    total += batch.nbytes
                    self._limit("bytes", total, FileLimits.TABLE_BYTES, self._bytes)
                    batch.validate(full=True)  # a text that is not UTF-8 fails here, not at the reader
                    missing -= batch.num_rows
                    yield batch
                if missing:
                    raise OSError(f"{missing:,} rows of its metadata are missing")

    def _most_rows(self, group: int, columns: Sequence[str] | None) -> int:
        """Return the most rows of a batch; raise DataError for a column that unpacks to far more than its size."""
        most_rows = FileLimits.BATCH_BYTES
        metadata = self._metadata.row_group(group)
        for number in range(self._metadata.num_columns):
            chunk, column = metadata.column(number), self._metadata.schema.column(number)
            if columns is not None and not any(f"{column.path}.".startswith(f"{read}.") for read in columns):
                continue
            packed, unpacked = chunk.total_compressed_size, int(chunk.total_uncompressed_size)
            name = repr(column.path[:40])
            self._limit(f"bytes in the column {name}", unpacked, FileLimits.COLUMN_BYTES, packed)
            repeated = _repeated_bytes(chunk) if "BYTE_ARRAY" in column.physical_type else 0
            if repeated * chunk.num_values > FileLimits.TABLE_BYTES:
                self._limit(f"bytes that repeat in the column {name}", repeated, FileLimits.REPEATED_BYTES, packed)
            longest = max(1, repeated, unpacked // max(1, chunk.num_values))
            most_rows = min(most_rows, FileLimits.BATCH_BYTES // longest)
        return max(1, most_rows)

    def _limit(self, items: str, seen: int, most: int, packed: int) -> None:
        most = max(most, FileLimits.ARROW_RATIO * packed)
        if seen > most:
            raise DataError(
                f"{self.path} has {seen:,} {items}",
                expected=f"at most {most:,} in a file of {self._bytes:,} bytes",
                repair="If it is not a compression bomb, save it again in several files",
            )


@contextmanager
def _readable(path: Path, format_name: str) -> Iterator[None]:
    """Turn the errors of pyarrow and of the file into DataError."""
    import pyarrow

    try:
        yield
    except (OSError, pyarrow.ArrowException, UnicodeDecodeError) as error:
        if isinstance(error, OSError):
            failure = file_error(path, error)
            if isinstance(error, FileNotFoundError) or isinstance(failure, StorageError):
                raise failure from None
        reason = str(error).partition("\n")[0]
        raise DataError(
            f"{path} cannot be read as {format_name}: {reason}", repair="Make the file again"
        ) from None


def _repeated_bytes(chunk: Any) -> int:
    """Return a limit on the bytes of a value that the column may repeat at little cost, by the metadata."""
    if "DELTA_BYTE_ARRAY" in chunk.encodings:  # each value may extend the one before it
        return int(chunk.total_uncompressed_size)
    dictionary = chunk.data_page_offset - (chunk.dictionary_page_offset or chunk.data_page_offset)
    return int(chunk.total_uncompressed_size * dictionary / max(1, chunk.total_compressed_size))


def text_columns(schema: Any) -> list[str]:
    """Return the columns of text: plain, large, as categories (pandas) or views (Polars); then those of bytes."""
    import pyarrow

    kinds = [f.type.value_type if isinstance(f.type, pyarrow.DictionaryType) else f.type for f in schema]
    texts, raw = (
        [n for n, kind in zip(schema.names, kinds, strict=True) if str(kind) in k] for k in (_TEXTS, _BYTES)
    )
    return texts + raw


def batch_rows(path: Path, schema: Any, batches: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Yield the rows of record batches of a file, with what the columns of `schema` mean.

    Times that Python does not have, such as nanoseconds, become text. Raises DataError for lists of these.
    """
    import pyarrow

    classes = _class_names(schema.metadata or {})
    for batch in batches:
        names = batch.schema.names
        columns = []
        for name, column in zip(names, batch.columns, strict=True):
            try:
                columns.append(_values(column, classes.get(name)))
            except pyarrow.ArrowException as error:
                raise DataError(
                    f"{path}: the column {name!r} cannot be read: {error}"[:300], repair="Write it as text"
                ) from None
        yield from (dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True))


def _values(column: Any, classes: Sequence[str] | None) -> list[Any]:
    import pyarrow

    kind = column.type
    if str(kind) in _BYTES:
        with suppress(pyarrow.ArrowInvalid):  # it is not text, such as images
            column = column.cast(pyarrow.large_string())
    try:
        values: list[Any] = column.to_pylist()
    except (ValueError, OverflowError):
        values = column.cast(pyarrow.string()).to_pylist()
    if pyarrow.types.is_decimal(kind):
        number = float if kind.scale > 0 else int
        return [None if value is None else number(value) for value in values]
    return values if classes is None else [_named(value, classes) for value in values]


def _class_names(metadata: dict[bytes, bytes]) -> dict[str, list[str]]:
    """Return the names of the classes of each column, from the metadata that `datasets` writes."""
    try:
        features = json.loads(metadata.get(b"huggingface", b"{}"))["info"]["features"]
        classes = {name: _names_of(feature) for name, feature in features.items()}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return {}
    return {name: names for name, names in classes.items() if names}


def _names_of(feature: Any) -> list[str]:
    if isinstance(feature, list):  # a list, as old versions write it
        feature = {"feature": feature[0]}
    if feature.get("_type") == "ClassLabel":
        return [str(name) for name in feature.get("names") or ()]
    return _names_of(feature["feature"]) if isinstance(feature.get("feature"), dict | list) else []


def _named(value: Any, names: Sequence[str]) -> Any:
    """Return the name of a class, None for -1, which means unlabelled; a list's names for a list."""
    if isinstance(value, list):
        return [_named(item, names) for item in value]
    if not isinstance(value, int) or not -1 <= value < len(names):
        return value
    return names[value] if value >= 0 else None


def arrow_batches(path: Path, rows: int) -> tuple[Any, Iterator[Any]]:
    """Return the schema of an Arrow file or stream, and its record batches of at most `rows` rows.

    Raises DataError for a file that cannot be read.
    """
    import pyarrow

    with _readable(path, "Arrow"):
        size = path.stat().st_size
        source = pyarrow.OSFile(str(path))  # a file that is cut while it is mapped would end the process
        is_file = source.read(6) == b"ARROW1"
        source.seek(0)
        reader = pyarrow.ipc.open_file(source) if is_file else pyarrow.ipc.open_stream(source)
        reader.schema.names  # may not be UTF-8  # noqa: B018

    def batches() -> Iterator[Any]:
        total = 0
        whole = (reader.get_batch(n) for n in range(reader.num_record_batches)) if is_file else reader
        with _readable(path, "Arrow"):
            for batch in whole:
                batch.validate(full=True)  # before its size is asked for, which may end the process
                total += batch.nbytes
                if total > max(FileLimits.TABLE_BYTES, FileLimits.ARROW_RATIO * size):
                    raise OSError(f"it unpacks to more than {total:,} bytes")
                for start in range(0, batch.num_rows, rows):
                    yield batch.slice(start, rows)
            if path.stat().st_size < size:  # a stream may end anywhere
                raise OSError(f"it was cut from {size:,} bytes while it was read")

    return reader.schema, batches()


def saved_files(folder: Path) -> list[Path]:
    """Return the files of a folder that `datasets.save_to_disk` wrote, in order; empty for another folder.

    Raises DataError for a folder of several splits.
    """
    if (folder / _SPLITS).is_file():
        splits = [str(name) for name in read_object(folder / _SPLITS).get("splits") or ()]
        raise DataError(
            f"{folder} has the splits {', '.join(splits)}",
            expected="the folder of one of them",
            repair=f"Name it: {folder / (splits or ['train'])[0]}",
        )
    listed = read_object(folder / _STATE).get("_data_files")
    names = [file.get("filename") for file in listed if isinstance(file, dict)] if isinstance(listed, list) else []
    return [folder / name for name in names if isinstance(name, str) and Path(name).name == name]
