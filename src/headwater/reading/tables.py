"""Read users' text files and tables as streams: plain text, CSV, TSV, JSON Lines, JSON and Parquet.

Text is UTF-8, or in the encoding that the caller names; a byte-order mark is dropped. All but Parquet may be
compressed: .gz, .zst, .xz, .bz2. One row at a time is in memory (Parquet: a batch of rows; JSON: the file). Every
error names the file and the line or row.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from headwater.errors import DataError, counted
from headwater.reading.files import file_error, parse_json
from headwater.reading.remote import AnyFile, open_parquet
from headwater.reading.text import check_unpacked, read_lines, text_blocks, unpacked_suffix

_JSON_LINES = (".jsonl", ".ndjson")
FORMATS = ".csv, .tsv, .jsonl (or .ndjson), .json or .parquet"
# One CSV field: longer than any novel. An unclosed quote makes one field of all that follows it.
FIELD_CHARACTERS = 1 << 24
_BATCH_ROWS = 256


def is_table(path: AnyFile) -> bool:
    """Return whether a file is a table, by the suffix of its name."""
    return unpacked_suffix(path) in {".csv", ".tsv", ".json", ".parquet", *_JSON_LINES}


class OpenTable(NamedTuple):
    """Column names, those of the columns that hold text, and the rows as (number from 1, values by column).

    An empty file has no columns. uniform: whether all rows have these columns; those of JSON are the first row's.
    """

    columns: list[str]
    texts: list[str]
    rows: Iterator[tuple[int, Mapping[str, Any]]]
    uniform: bool = True


def open_table(path: AnyFile, columns: Sequence[str] = (), encoding: str | None = None) -> OpenTable:
    """Open a table; the suffix of its name says its format.

    Of a Parquet file read only `columns` that hold text, if any are given. In a JSON list of texts each text
    becomes a row with the column `columns[0]`. `encoding` as in `text_blocks`. Raises DataError for a file or row
    that cannot be read, or if two of `columns` (of all columns if none are given) have the same name.
    """
    table = _opened(path, columns, encoding)
    wanted = {name for name in columns or table.columns if name}
    twice = next((name for name in table.columns if name in wanted and table.columns.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"{path} has two columns named {twice!r}", expected="a name for each column")
    return table


def table_columns(path: AnyFile, limit: int | None = None, encoding: str | None = None) -> list[str]:
    """Return the names of a table's columns; of JSON, those of all rows, or of the first `limit`.

    The first row's come first. Raises DataError as `open_table`.
    """
    table = open_table(path, encoding=encoding)
    if table.uniform:
        return table.columns
    return list(dict.fromkeys(name for _, row in islice(table.rows, limit) for name in row))


def _opened(path: AnyFile, columns: Sequence[str], encoding: str | None) -> OpenTable:
    suffix = unpacked_suffix(path)
    if suffix == ".parquet":
        return _parquet(path, columns)
    if suffix in _JSON_LINES:
        return _json(path, _json_lines(path, encoding))
    if suffix == ".json":
        return _json(path, _json_items(path, columns[0] if columns else "text", encoding))
    if suffix == ".csv":
        return _separated(path, _csv_records(path, encoding))
    if suffix in {".tsv", ".tab"}:
        return _separated(path, (_tab_fields(line) for line in read_lines(path, encoding)))
    if isinstance(path, Path) and path.is_dir():
        raise DataError(f"{path} is a folder", expected=f"a file: {FORMATS}")
    raise DataError(f"{path} has the ending {suffix or '(none)'!r}", expected=FORMATS)


def _separated(path: AnyFile, records: Iterator[list[str]]) -> OpenTable:
    columns = _distinct([name.strip() for name in next(filter(None, records), [])])

    def rows() -> Iterator[tuple[int, Mapping[str, Any]]]:
        for number, record in enumerate(_without_blanks(records, len(columns)), 1):
            if len(record) != len(columns):
                raise DataError(
                    f"{path} row {number:,} has {counted(len(record), 'field')}, beginning {record[0][:40]!r}",
                    expected=f"{len(columns)}, one for each column name",
                    repair="Put fields that contain the separator, a quote or a line end in double quotes",
                )
            yield number, dict(zip(columns, record, strict=True))

    return OpenTable(columns, columns, rows())


def _distinct(columns: list[str]) -> list[str]:
    """Name unnamed columns by their position, except the first, so that no value is lost."""
    named: list[str] = []
    for place, name in enumerate(columns, 1):
        own = name
        if not name and "" in named:
            own = f"column {place}"
            while own in columns:
                own += "_"
        named.append(own)
    return named


def _without_blanks(records: Iterator[list[str]], columns: int) -> Iterator[list[str]]:
    """Drop blank lines. In a table with one column they are empty rows, except at the end of the file."""
    blanks = 0
    for record in records:
        if record:
            yield from [[""]] * blanks
            yield record
            blanks = 0
        else:
            blanks += columns == 1


def _csv_records(path: AnyFile, encoding: str | None) -> Iterator[list[str]]:
    """Yield the fields of each row, none for a blank line.

    The separator is a comma; if the header has none, a semicolon; else a tab.
    """
    lines = read_lines(path, encoding)
    beginning: list[str] = []
    while (not beginning or not beginning[-1].strip()) and (line := next(lines, None)) is not None:
        beginning.append(line)
    header = re.sub(r'"[^"]*("|$)', "", beginning[-1])
    separator = next((mark for mark in ",;\t" if mark in header), ",")
    reader = csv.reader((line + "\n" for line in chain(beginning, lines)), delimiter=separator, strict=True)
    while True:
        number = reader.line_num + 1
        limit = csv.field_size_limit(FIELD_CHARACTERS)  # the limit is the process's: set it for this row alone
        try:
            record = next(reader, None)
        except csv.Error as error:
            raise _csv_error(path, number, str(error)) from None
        finally:
            csv.field_size_limit(limit)
        if record is None:
            return
        yield record


def _csv_error(path: AnyFile, line: int, reason: str) -> DataError:
    """Return the error for the row that begins in `line`, from the message of Python's csv module."""
    close = "Close the double quote, write a quote inside quotes twice, or store such texts as JSON Lines"
    if "field limit" in reason:
        what, repair = f"a field of more than {FIELD_CHARACTERS:,} characters", close
    elif "unexpected end" in reason:
        what, repair = "a quote that is never closed", close
    elif "expected after" in reason:
        what, repair = "text after the closing quote of a field", "Write a quote inside quotes twice"
    else:
        what = "a carriage return without a line feed outside quotes"
        repair = f"Convert line ends, as with: tr '\\r' '\\n' < {path} > converted{path.suffix}"
    return DataError(f"{path} has {what} in the row of line {line:,}", repair=repair)


def _tab_fields(line: str) -> list[str]:
    """Split a line at tabs; return no fields for a blank line.

    A field that is quoted as in a spreadsheet is unquoted; other quotes are literal.
    """
    line = line.rstrip("\r")
    return [_unquoted(field) for field in line.split("\t")] if line else []


def _unquoted(field: str) -> str:
    if len(field) >= 2 and field[0] == field[-1] == '"':
        inner = field[1:-1]
        if '"' not in inner.replace('""', ""):
            return inner.replace('""', '"')
    return field


def _json(path: AnyFile, items: Iterator[tuple[str, Any]]) -> OpenTable:
    def rows() -> Iterator[tuple[int, Mapping[str, Any]]]:
        for number, (place, item) in enumerate(items, 1):
            if not isinstance(item, dict):
                raise DataError(f"{path} {place} is {json.dumps(item)[:40]}", expected="a JSON object")
            yield number, item

    iterator = rows()
    first = next(iterator, None)
    if first is None:
        return OpenTable([], [], iterator)
    texts = [name for name, value in first[1].items() if value is None or isinstance(value, str)]
    return OpenTable(list(first[1]), texts, chain([first], iterator), uniform=False)


def _json_lines(path: AnyFile, encoding: str | None) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(read_lines(path, encoding), 1):
        if not line.strip():
            continue
        try:
            yield f"line {number:,}", parse_json(line)
        except json.JSONDecodeError as error:
            raise DataError(
                f"{path} line {number:,} is not JSON: {error.msg}",
                expected="one JSON object a line",
                repair="Correct or remove that line",
            ) from None


def _json_items(path: AnyFile, column: str, encoding: str | None) -> Iterator[tuple[str, Any]]:
    """Yield the items of a list of objects or texts, one object, or objects that are one a line."""
    blocks: list[str] = []
    size = 0
    for block in text_blocks(path, encoding=encoding):
        blocks.append(block)
        size += len(block)
        check_unpacked(path, size)
    try:
        content = parse_json("".join(blocks))
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            yield from _json_lines(path, encoding)
            return
        raise DataError(
            f"{path} is not JSON: {error.msg} in line {error.lineno}", repair="Correct that line"
        ) from None
    for number, item in enumerate(content if isinstance(content, list) else [content], 1):
        yield f"item {number:,}", {column: item} if isinstance(item, str) else item


def _parquet(path: AnyFile, columns: Sequence[str]) -> OpenTable:
    import pyarrow

    def unreadable(error: Exception, after: int) -> DataError:
        reason = str(error).partition("\n")[0]
        place = f" after row {after:,}" if after else ""
        return DataError(f"{path} cannot be read as Parquet{place}: {reason}", repair="Make the file again")

    def rows() -> Iterator[tuple[int, Mapping[str, Any]]]:
        number = 0
        try:
            for batch in file.iter_batches(_BATCH_ROWS, columns=[n for n in columns if n in texts] or None):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            raise unreadable(error, number) from None

    try:
        file = open_parquet(path)
    except FileNotFoundError as error:
        raise file_error(path, error) from None
    except (pyarrow.ArrowException, OSError) as error:
        raise unreadable(error, 0) from None
    texts = [column.name for column in file.schema_arrow if _is_text(column.type)]
    return OpenTable(file.schema_arrow.names, texts, rows())


def _is_text(kind: Any) -> bool:
    """Return whether a column type is text: plain, large, as categories (pandas) or views (Polars)."""
    import pyarrow

    kind = kind.value_type if isinstance(kind, pyarrow.DictionaryType) else kind
    return str(kind) in {"string", "large_string", "string_view"}
