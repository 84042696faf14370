"""Rows of a user's table: CSV, TSV, JSON Lines or Parquet, streamed, with messages that name the row.

What the columns mean is left to `examples`. Nothing here holds more than one row (Parquet: one batch of rows).
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from headwater.errors import DataError, counted
from headwater.storage.files import parse_json

Row = Mapping[str, Any]
FORMATS = ".csv, .tsv, .jsonl (or .ndjson) or .parquet"
# A CSV field may be as long as a book; csv's own limit is 131,072 characters.
_FIELD_LIMIT = 1 << 28


class OpenTable(NamedTuple):
    """Column names, and the rows behind them: (row number from 1, values by column)."""

    columns: list[str]
    rows: Iterator[tuple[int, Row]]


def open_table(path: Path) -> OpenTable:
    """Open a table by the ending of its name.

    Raises DataError for a file that is missing, binary, not UTF-8, empty, or has a row of another shape, naming
    the row or line.
    """
    ending = path.suffix.lower()
    if ending == ".parquet":
        return _parquet(path)
    if ending in {".jsonl", ".ndjson"}:
        return _json_lines(path)
    if ending == ".csv":
        return _separated(path, csv.reader(_lines(path)))
    if ending in {".tsv", ".tab"}:
        return _separated(path, (_tab_fields(line) for line in _lines(path)))
    raise DataError(f"{path} has the ending {ending or '(none)'!r}", expected=FORMATS)


def _lines(path: Path) -> Iterator[str]:
    """Decoded lines with their line ends, which may stand inside a quoted field; a byte-order mark is dropped."""
    if not path.is_file():
        reason = "is a folder" if path.is_dir() else "does not exist"
        raise DataError(f"{path} {reason}", expected="a file", repair="Check the path")
    with path.open("rb") as handle:
        for number, line in enumerate(handle, 1):
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
                if line[:2] in {b"\xff\xfe", b"\xfe\xff"}:
                    raise _not_utf8(path, f"{path} is UTF-16", "utf-16")
            if b"\x00" in line:
                raise DataError(f"{path} is a binary file", expected=f"text: {FORMATS}")
            try:
                yield line.decode("utf-8")
            except UnicodeDecodeError as error:
                byte = line[error.start]
                raise _not_utf8(
                    path, f"{path} is not UTF-8: byte 0x{byte:02x} in line {number:,}", "latin1"
                ) from None


def _not_utf8(path: Path, seen: str, encoding: str) -> DataError:
    return DataError(
        seen,
        expected="UTF-8 text throughout",
        repair=f"Convert it, as with: iconv -f {encoding} -t utf-8 {path} > converted{path.suffix}",
    )


def _tab_fields(line: str) -> list[str]:
    """Fields of one line; one that is quoted as a spreadsheet does it is unquoted, other quotes are literal."""
    return [_unquoted(field) for field in line.rstrip("\r\n").split("\t")]


def _unquoted(field: str) -> str:
    if len(field) >= 2 and field[0] == field[-1] == '"':
        inner = field[1:-1]
        if '"' not in inner.replace('""', ""):
            return inner.replace('""', '"')
    return field


def _separated(path: Path, records: Iterable[list[str]]) -> OpenTable:
    csv.field_size_limit(_FIELD_LIMIT)
    iterator = _checked(path, iter(records))
    header = next(iterator, None)
    if not header or not any(name.strip() for name in header):
        raise DataError(f"{path} is empty", expected="a line of column names and rows below it")
    columns = [name.strip() for name in header]
    twice = next((name for name in columns if name and columns.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"{path} has two columns named {twice!r}", expected="a name for each column")

    def rows() -> Iterator[tuple[int, Row]]:
        number = 0
        for record in iterator:
            if not record or record == [""]:
                continue
            number += 1
            if len(record) != len(columns):
                raise DataError(
                    f"{path} row {number:,} has {counted(len(record), 'field')}, beginning {_beginning(record)}",
                    expected=f"{len(columns)}, one for each column name",
                    repair="Put fields that hold the separator, a quote or a line end in double quotes",
                )
            yield number, dict(zip(columns, record, strict=True))

    return OpenTable(columns, rows())


def _checked(path: Path, records: Iterator[list[str]]) -> Iterator[list[str]]:
    try:
        yield from records
    except csv.Error as error:
        raise DataError(f"{path} cannot be read as CSV: {error}") from None


def _json_lines(path: Path) -> OpenTable:
    def rows() -> Iterator[tuple[int, Row]]:
        number = 0
        for line_number, line in enumerate(_lines(path), 1):
            if not line.strip():
                continue
            number += 1
            try:
                row = parse_json(line)
            except json.JSONDecodeError as error:
                raise DataError(
                    f"{path} line {line_number:,} is not JSON: {error.msg}", expected="one JSON object a line"
                ) from None
            if not isinstance(row, dict):
                raise DataError(
                    f"{path} line {line_number:,} is a {type(row).__name__}",
                    expected="one JSON object a line",
                )
            yield number, row

    iterator = rows()
    first = next(iterator, None)
    if first is None:
        raise DataError(f"{path} is empty", expected="one JSON object a line")
    return OpenTable(list(first[1]), chain([first], iterator))


def _parquet(path: Path) -> OpenTable:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        raise DataError(f"{path} does not exist", repair="Check the path")
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read as Parquet: {error}") from None

    def rows() -> Iterator[tuple[int, Row]]:
        number = 0
        try:
            for batch in file.iter_batches(batch_size=1_024):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise DataError(f"{path} cannot be read as Parquet behind row {number:,}: {error}") from None

    return OpenTable(list(file.schema_arrow.names), rows())


def _beginning(record: Sequence[str]) -> str:
    return repr(record[0][:40]) if record else "empty"
