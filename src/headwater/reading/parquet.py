"""Read Parquet files in batches of bounded memory, also where a few bytes of the file stand for gigabytes.

A page may repeat one long value, or extend the value before it (the encoding DELTA_BYTE_ARRAY). The sizes in the
metadata and in the headers of pages bound what a batch needs before it is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from headwater.errors import DataError
from headwater.reading.files import file_error
from headwater.reading.remote import AnyFile, RemoteFile

MOST_COLUMNS = 10_000
_BATCH_BYTES = 1 << 26
_COLUMN_BYTES = 1 << 30  # of one column in one row group, or `_RATIO` for each packed byte
_DICTIONARY_BYTES, _REPEATED_BYTES = (
    1 << 24,
    1 << 28,
)  # of a dictionary whose values may come to more than the second
_TABLE_BYTES = 1 << 30  # of all values, or `_RATIO` for each byte of the file
_ROWS = 1 << 20  # or `_RATIO` for each byte of the file
_NESTED_VALUES = 1 << 27  # in the lists of one row group
_RATIO = 256
_HEADER_BYTES, _DEPTH = (
    (1 << 9, 1 << 20),
    3,
)  # read of a page's header, at first and if it is longer; of structures
# The field of a data page's header, of each version, that has its encoding.
_ENCODINGS, _DELTA_BYTE_ARRAY = ((5, 2), (8, 4)), 7
# How the header of a page begins: its type, then its unpacked size, as integers in Thrift's compact form.
_DICTIONARY_PAGE, _DATA_PAGES, _VARINT_BYTES = b"\x15\x04\x15", (b"\x15\x00\x15", b"\x15\x06\x15"), 5


class ParquetTable:
    """An open Parquet file; use it as a context manager.

    schema: pyarrow's, with the names and types of the columns.
    """

    def __init__(self, path: AnyFile) -> None:
        """Open the file; raises DataError if it cannot be read, or has more columns or rows than are accepted."""
        import pyarrow.parquet

        self.path, self._rows = path, 0
        try:
            self._source = path.open("rb") if isinstance(path, RemoteFile) else path
            self._file = pyarrow.parquet.ParquetFile(self._source)
            self._bytes = path.stat().st_size
        except FileNotFoundError as error:
            raise file_error(path, error) from None
        except (pyarrow.ArrowException, OSError) as error:
            raise self._unreadable(error) from None
        self.schema, self._metadata = self._file.schema_arrow, self._file.metadata
        check_columns(path, self._metadata.num_columns)
        self._limit("rows", self._metadata.num_rows, _ROWS, self._bytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def batches(self, rows: int, columns: Sequence[str] | None = None) -> Iterator[Any]:
        """Yield pyarrow's record batches of at most `rows` rows of one row group, of all or the named columns.

        Raises DataError for what cannot be read, and for a file that unpacks to far more than its size.
        """
        import pyarrow.parquet

        total = 0
        try:
            for group in range(self._metadata.num_row_groups):
                most, nested = self._bounds(group, columns)
                missing = self._metadata.row_group(group).num_rows
                file = self._file
                if nested:
                    file = pyarrow.parquet.ParquetFile(self._source, read_dictionary=nested)
                for batch in file.iter_batches(min(rows, most), [group], columns):
                    size = sum(map(_value_bytes, batch.columns))
                    if nested:
                        self._limit("bytes in the lists of a few rows", size, _REPEATED_BYTES, self._bytes)
                    total += size
                    self._limit("bytes", total, _TABLE_BYTES, self._bytes)
                    self._rows += batch.num_rows
                    missing -= batch.num_rows
                    yield batch
                if missing:
                    raise OSError(f"{missing:,} rows of its metadata are missing")
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            raise self._unreadable(error) from None

    def _bounds(self, group: int, columns: Sequence[str] | None) -> tuple[int, list[str]]:
        """Return the most rows of a batch, and the lists of texts whose places in a dictionary are read first."""
        most, nested = _BATCH_BYTES, []
        metadata = self._metadata.row_group(group)
        for number in range(self._metadata.num_columns):
            chunk, column = metadata.column(number), self._metadata.schema.column(number)
            if columns is not None and not any(f"{column.path}.".startswith(f"{read}.") for read in columns):
                continue
            name = repr(column.path[:40])
            packed, (unpacked, extends) = chunk.total_compressed_size, self._pages(chunk)
            self._limit(f"bytes in the column {name}", unpacked, _COLUMN_BYTES, packed)
            has_bytes = column.physical_type in {"BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"}
            value = 0
            if has_bytes:
                value = unpacked if extends else self._longest(chunk, unpacked)
            if value * chunk.num_values > _REPEATED_BYTES:
                self._limit(f"bytes that repeat in the column {name}", value, _DICTIONARY_BYTES, packed)
            if column.max_repetition_level:
                self._limit(f"values in the lists of {name}", chunk.num_values, _NESTED_VALUES, packed)
                if value * chunk.num_values > _BATCH_BYTES:
                    nested.append(column.path)
            value = max(value, unpacked // max(1, chunk.num_values))  # of plain values the average counts
            if value and not column.max_repetition_level:
                most = max(1, min(most, _BATCH_BYTES // value))
        return most, nested

    def _longest(self, chunk: Any, unpacked: int) -> int:
        """Return a limit on the bytes of a value that takes less than its bytes in the file; 0 if none does."""
        handle = self.path.open("rb") if isinstance(self._source, Path) else self._source
        try:
            handle.seek(_first_page(chunk))
            header = handle.read(len(_DICTIONARY_PAGE) + _VARINT_BYTES)
        finally:
            if handle is not self._source:
                handle.close()
        if not header.startswith(_DICTIONARY_PAGE):
            return 0 if header.startswith(_DATA_PAGES) else unpacked
        with suppress(IndexError):
            return _integer(header, len(_DICTIONARY_PAGE))[0] >> 1
        return unpacked

    def _pages(self, chunk: Any) -> tuple[int, bool]:
        """Return the bytes that a column of a row group unpacks to, and whether values extend those before them.

        Of a file on this machine the headers of all pages are read: the metadata may claim less.
        """
        claimed = int(chunk.total_uncompressed_size)
        extends = "DELTA_BYTE_ARRAY" in chunk.encodings
        if not isinstance(self._source, Path):
            return claimed, extends
        place, total = _first_page(chunk), 0
        end = min(place + chunk.total_compressed_size, self._bytes)
        with self._source.open("rb") as handle:
            while place < end:
                for size in _HEADER_BYTES:
                    handle.seek(place)
                    with suppress(IndexError):  # the header is longer, as it may contain two values
                        length, unpacked, packed, extended = _page_sizes(handle.read(size))
                        break
                else:
                    raise OSError("the header of a page cannot be read")
                place += length + packed
                total += length + unpacked
                extends |= extended
        return max(claimed, total), extends

    def _limit(self, what: str, seen: int, most: int, packed: int) -> None:
        most = max(most, _RATIO * packed)
        if seen > most:
            raise DataError(
                f"{self.path} has {seen:,} {what}",
                expected=f"at most {most:,} in a file of {self._bytes:,} bytes",
                repair="If it is not a compression bomb, save it again in several files",
            )

    def _unreadable(self, error: Exception) -> DataError:
        reason = str(error).partition("\n")[0]
        where = f" after row {self._rows:,}" if self._rows else ""
        return DataError(f"{self.path} cannot be read as Parquet{where}: {reason}", repair="Make the file again")


def _first_page(chunk: Any) -> int:
    # In a row group without rows, an offset is 0 where there is no page.
    return min(filter(None, (chunk.dictionary_page_offset, chunk.data_page_offset)), default=0)


def _page_sizes(header: bytes) -> tuple[int, int, int, bool]:
    """Return the length of a page's header, the page's sizes, and whether its values extend others.

    header: Thrift's compact form, and what follows it. Raises IndexError if it is cut, OSError for another form.
    """
    fields: dict[int | tuple[int, int], int] = {}
    length = _end_of_structure(header, 0, fields)
    unpacked, packed = fields.get(2, 1), fields.get(3, 1)
    if unpacked & 1 or packed & 1:  # absent or negative
        raise OSError("the header of a page has no sizes")
    return length, unpacked >> 1, packed >> 1, any(fields.get(at) == 2 * _DELTA_BYTE_ARRAY for at in _ENCODINGS)


def _end_of_structure(data: bytes, place: int, fields: dict[Any, int], depth: int = 0) -> int:
    """Return where a Thrift structure ends; store integers, also of inner ones, zigzag: twice the value."""
    number = 0
    while head := data[place]:
        place += 1
        kind, step = head & 15, head >> 4
        if not step:  # the field's number follows
            twice, place = _integer(data, place)
            number = twice >> 1
        number += step
        if kind in {4, 5, 6}:
            fields[number], place = _integer(data, place)
        elif kind == 8:  # bytes
            length, place = _integer(data, place)
            place += length
        elif kind == 12 and depth < _DEPTH:
            inner: dict[Any, int] = {}
            place = _end_of_structure(data, place, inner, depth + 1)
            fields |= {(number, key): value for key, value in inner.items()}
        elif kind not in {1, 2}:
            raise OSError("the header of a page cannot be read")
    return place + 1


def _integer(data: bytes, place: int) -> tuple[int, int]:
    """Return a variable-length integer without a sign, and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
    raise OSError("the header of a page cannot be read")


def check_columns(table: object, number: int) -> None:
    """Raise DataError if a table, or one row of it, has more than MOST_COLUMNS columns."""
    if number > MOST_COLUMNS:
        raise DataError(
            f"{table} has {number:,} columns",
            expected=f"at most {MOST_COLUMNS:,}",
            repair="Keep those that are read",
        )


def _value_bytes(array: Any) -> int:
    """Return the bytes of an array's values, where a dictionary is used once for each value."""
    import pyarrow
    import pyarrow.compute

    if isinstance(array, pyarrow.DictionaryArray):
        try:
            lengths = pyarrow.compute.binary_length(array.dictionary)
        except pyarrow.ArrowNotImplementedError:  # its values have one size
            return int(array.nbytes)
        return int(pyarrow.compute.sum(lengths.take(array.indices)).as_py() or 0)
    if isinstance(array, pyarrow.MapArray):
        return _value_bytes(array.keys) + _value_bytes(array.items)
    if isinstance(array, pyarrow.ListArray | pyarrow.LargeListArray | pyarrow.FixedSizeListArray):
        return _value_bytes(array.flatten())
    if isinstance(array, pyarrow.StructArray):
        return sum(map(_value_bytes, array.flatten()))
    return int(array.nbytes)
