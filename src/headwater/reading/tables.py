"""Read users' tables as streams: CSV, TSV, JSON Lines, JSON, Parquet, Arrow and Excel workbooks.

Text is UTF-8, or in the encoding that the caller names; a byte-order mark is dropped. Text formats may be
compressed: .gz, .zst, .xz, .bz2. One row at a time is in memory (Parquet and Arrow: a batch of rows; JSON and
workbooks: the file). Every error names the file and the line or row.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path, PurePath
from typing import Any

from headwater.errors import DataError
from headwater.reading.arrow import ParquetTable, arrow_batches, batch_rows, saved_files, text_columns
from headwater.reading.files import parse_json
from headwater.reading.separated import csv_records, separated_table, tab_records
from headwater.reading.table_rows import OnBroken, OpenTable, Row, heads, refuse
from headwater.reading.text import check_unpacked, read_lines, text_blocks, unpacked_suffix
from headwater.reading.workbook import Workbook

_JSON_LINES = (".jsonl", ".ndjson")
_TABLES = (".csv", ".tsv", ".tab", ".xlsx", ".json", *_JSON_LINES, ".parquet", ".arrow")
FORMATS = ".csv, .tsv, .xlsx, .jsonl (or .ndjson), .json, .parquet or .arrow"
_BATCH_ROWS = 256


def is_table(path: PurePath) -> bool:
    """Return whether a file is a table, by the suffix of its name."""
    return unpacked_suffix(path) in _TABLES


def open_table(
    path: Path,
    columns: Sequence[str] = (),
    encoding: str | None = None,
    named: Sequence[str] = (),
    on_broken: OnBroken = refuse,
) -> OpenTable:
    """Open a table; the suffix of its name says its format. A folder is one that `datasets.save_to_disk` wrote.

    Of a Parquet file read only `columns` that hold text, if any are given. In a JSON list of texts each text
    becomes a row with the column `columns[0]`. `encoding` as in `text_blocks`. `named`: columns as a user names
    them. `data.text` is a value in the column `data`; `title,body` joins two columns; `Sheet2!text` is a column of
    that sheet of a workbook. If one is the number of a column, from 1, and the first row does not have it as a
    name, the table has no header: its columns are named "1", "2", …, and the first row is a row. `on_broken` is
    called with the error of a line that is not JSON, or of a row with another number of fields; the row is skipped
    unless it raises. Raises DataError for a file that cannot be read, or if two of `columns` (of all columns if
    none are given) have the same name.
    """
    suffix = unpacked_suffix(path)
    if path.is_dir():
        if not (files := saved_files(path)):
            raise DataError(f"{path} is a folder", expected=f"a file: {FORMATS}")
        table = _arrow(files)
    elif suffix == ".parquet":
        table = _parquet(path, columns)
    elif suffix == ".arrow":
        table = _arrow([path])
    elif suffix in _JSON_LINES:
        table = _json(path, _json_lines(path, encoding, on_broken), on_broken)
    elif suffix == ".json":
        items = _json_items(path, columns[0] if columns else "text", encoding, on_broken)
        table = _json(path, items, on_broken)
    elif suffix == ".xlsx":
        book = Workbook(path, named)
        left = f"{path}: the sheet {book.sheet!r} is read, not {', '.join(map(repr, book.others))}"
        notes = [left] if book.others else []
        table = separated_table(path, book.records, named, on_broken, notes, counts_sheet_rows=True)
    elif suffix == ".csv":
        table = separated_table(path, partial(csv_records, path, encoding), named, on_broken)
    elif suffix in {".tsv", ".tab"} or (suffix == ".txt" and _has_tabs(path, encoding)):
        table = separated_table(path, partial(tab_records, path, encoding), named, on_broken)
    else:
        raise DataError(
            f"{path} has the ending {suffix or '(none)'!r}",
            expected=FORMATS,
            repair="Save the table as .xlsx or CSV, or a .txt with tabs between its columns",
        )
    wanted = {name for name in columns or table.columns if name}
    twice = next((name for name, count in Counter(table.columns).items() if count > 1 and name in wanted), None)
    if twice is not None:
        raise DataError(f"{path} has two columns named {twice[:40]!r}", expected="a name for each column")
    table.add_named(named, path)
    return table


def _has_tabs(path: Path, encoding: str | None) -> bool:
    """Return whether the first line of a text file has columns."""
    return "\t" in next(filter(None, map(str.strip, read_lines(path, encoding))), "")


def _json(path: Path, items: Iterator[tuple[int, str, Any]], on_broken: OnBroken) -> OpenTable:
    def rows() -> Iterator[tuple[int, Row]]:
        for number, where, item in items:
            if not isinstance(item, dict):
                on_broken(DataError(f"{path} {where} is {json.dumps(item)[:40]}", expected="a JSON object"))
                continue
            yield number, item

    iterator = rows()
    first = next(iterator, None)
    if first is None:
        return OpenTable([], [], iterator)
    texts = [name for name, value in first[1].items() if value is None or isinstance(value, str)]
    return OpenTable(list(first[1]), texts, chain([first], iterator), uniform=False)


def _parquet(path: Path, columns: Sequence[str]) -> OpenTable:
    file = ParquetTable(path)
    texts = text_columns(file.schema)
    own = {name for name in file.schema.names if name not in columns}
    read = [name for name in columns if name in texts]
    read += [head for name in columns if name not in file.schema.names for head in heads(name) if head in own]
    return _of_batches(path, file.schema, file.batches(_BATCH_ROWS, list(dict.fromkeys(read)) or None))


def _arrow(files: Sequence[Path]) -> OpenTable:
    opened = [arrow_batches(file, _BATCH_ROWS) for file in files]
    return _of_batches(files[0], opened[0][0], chain.from_iterable(batches for _, batches in opened))


def _of_batches(path: Path, schema: Any, batches: Iterator[Any]) -> OpenTable:
    return OpenTable(schema.names, text_columns(schema), enumerate(batch_rows(path, schema, batches), 1))


def _json_lines(path: Path, encoding: str | None, on_broken: OnBroken) -> Iterator[tuple[int, str, Any]]:
    """Yield each row's number, its place in messages, and its value; skip one that is not JSON.

    Blank lines have no number. `on_broken` may raise the error of a line that is skipped.
    """
    row = 0
    for number, line in enumerate(read_lines(path, encoding), 1):
        if not line.strip():
            continue
        row += 1
        try:
            value = parse_json(line)
        except json.JSONDecodeError as failure:
            seen = f"{path} line {number:,} is not JSON: {failure.msg} (column {failure.colno})"
            repair = "Correct or remove that line"
            on_broken(DataError(seen, expected="one JSON object a line", repair=repair))
        else:
            yield row, f"line {number:,}", value


def _json_items(
    path: Path, column: str, encoding: str | None, on_broken: OnBroken
) -> Iterator[tuple[int, str, Any]]:
    """Yield each item's number, its place in messages, and the item.

    The file has a list of objects or texts, one object, objects that are one a line, or what `_rows` returns.
    """
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
            yield from _json_lines(path, encoding, on_broken)
            return
        raise DataError(
            f"{path} is not JSON: {error.msg} (line {error.lineno:,}, column {error.colno:,})",
            repair="Correct that line",
        ) from None
    for number, item in enumerate(_rows(content), 1):
        yield number, f"item {number:,}", {column: item} if isinstance(item, str) else item


def _rows(content: Any) -> list[Any]:
    """Return the rows of a JSON value: of a list, of columns by name, of {"data": rows}, or of records by id."""
    if isinstance(content, list):
        return content
    parts = list(content.values()) if isinstance(content, dict) else []
    if len(parts) > 1 and all(isinstance(part, list) for part in parts) and len({*map(len, parts)}) == 1:
        return [dict(zip(content, values, strict=True)) for values in zip(*parts, strict=True)]
    if parts and isinstance(content.get("data"), list):
        return list(content["data"])
    if not parts or not all(isinstance(part, dict) for part in parts):
        return [content]
    numbers = list(parts[0])  # by which pandas keys the values of a column
    if all(map(str.isdecimal, numbers)) and all(list(part) == numbers for part in parts):
        return [dict(zip(content, values, strict=True)) for values in zip(*map(dict.values, parts), strict=True)]
    return [{"id": name, **part} for name, part in content.items()]
