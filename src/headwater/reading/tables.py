"""Read users' tables as streams: CSV, TSV, JSON Lines, JSON, Parquet and Excel workbooks.

Text is UTF-8, or in the encoding that the caller names; a byte-order mark is dropped. All but Parquet and
workbooks may be compressed: .gz, .zst, .xz, .bz2. One row at a time is in memory (Parquet: a batch of rows; JSON
and workbooks: the file). Every error names the file and the line or row.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from io import BytesIO
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile, ZipFile

from headwater.errors import DataError, ResourceError, counted
from headwater.reading.files import read_bytes
from headwater.reading.json_items import json_items, json_lines
from headwater.reading.parquet import ParquetTable, check_columns
from headwater.reading.remote import AnyFile
from headwater.reading.separated import csv_records, separated_rows, tab_records
from headwater.reading.text import check_unpacked, unpacked_suffix

_JSON_LINES = (".jsonl", ".ndjson")
_SEPARATED = (".csv", ".tsv", ".tab", ".xlsx")
FORMATS = ".csv, .tsv, .xlsx, .jsonl (or .ndjson), .json or .parquet"
_BATCH_ROWS = 256
_WORKBOOK_ROWS = 1 << 20


def is_table(path: AnyFile) -> bool:
    """Return whether a file is a table, by the suffix of its name."""
    return unpacked_suffix(path) in {".csv", ".tsv", ".xlsx", ".json", ".parquet", *_JSON_LINES}


class OpenTable(NamedTuple):
    """Column names, those of the columns that hold text, and the rows as (number from 1, values by column).

    An empty file has no columns. uniform: whether all rows have these columns; those of JSON are the first row's.
    first_row: returns the first row if it is a row like the others, so that the table has no header; else None.
    beginning: returns the first records, the names among them, of a table whose first record has the names.
    """

    columns: list[str]
    texts: list[str]
    rows: Iterator[tuple[int, Mapping[str, Any]]]
    uniform: bool = True
    first_row: Callable[[], list[str] | None] = lambda: None
    beginning: Callable[[], list[list[str]]] = list

    def all_columns(self, limit: int | None = None) -> list[str]:
        """Return the names of the columns, the first row's first; of JSON, read all rows or the first `limit`."""
        if self.uniform:
            return self.columns
        names: dict[str, None] = {}
        for number, row in islice(self.rows, limit):
            names.update(dict.fromkeys(row))
            check_columns(f"the table's first {counted(number, 'row')}", len(names))
        return list(names)


def open_table(
    path: AnyFile, columns: Sequence[str] = (), encoding: str | None = None, named: Sequence[str] = ()
) -> OpenTable:
    """Open a table; the suffix of its name says its format.

    Of a Parquet file read only `columns` that hold text, if any are given. In a JSON list of texts each text
    becomes a row with the column `columns[0]`. `encoding` as in `text_blocks`. `named`: columns as a user names
    them; if one is the number of a column, from 1, and the first row does not have it as a name, the table has no
    header: its columns are named "1", "2", …, and the first row is a row. Raises DataError for a file or row that
    cannot be read, or if two of `columns` (of all columns if none are given) have the same name.
    """
    table = _opened(path, columns, encoding, named)
    wanted = {name for name in columns or table.columns if name}
    twice = next((name for name, count in Counter(table.columns).items() if count > 1 and name in wanted), None)
    if twice is not None:
        raise DataError(f"{path} has two columns named {twice[:40]!r}", expected="a name for each column")
    return table


def _opened(path: AnyFile, columns: Sequence[str], encoding: str | None, named: Sequence[str]) -> OpenTable:
    suffix = unpacked_suffix(path)
    if suffix == ".parquet":
        return _parquet(path, columns)
    if suffix in _JSON_LINES:
        return _json(path, json_lines(path, encoding))
    if suffix == ".json":
        return _json(path, json_items(path, columns[0] if columns else "text", encoding))
    if suffix in _SEPARATED:
        columns, rows, first_row, beginning = separated_rows(path, partial(_records, path, encoding), named)
        return OpenTable(columns, columns, rows, first_row=first_row, beginning=beginning)
    if isinstance(path, Path) and path.is_dir():
        raise DataError(f"{path} is a folder", expected=f"a file: {FORMATS}")
    repair = "Open it in a spreadsheet program and save it as .xlsx or CSV" if suffix in {".xls", ".ods"} else ""
    raise DataError(f"{path} has the ending {suffix or '(none)'!r}", expected=FORMATS, repair=repair)


def _records(path: AnyFile, encoding: str | None) -> Iterator[list[Any]]:
    suffix = unpacked_suffix(path)
    if suffix == ".xlsx":
        return _workbook_records(path)
    return csv_records(path, encoding) if suffix == ".csv" else tab_records(path, encoding)


def _workbook_records(path: AnyFile) -> Iterator[list[Any]]:
    """Yield the values of each row of a workbook's first sheet, none for a blank row; dates are ISO texts."""
    try:
        import openpyxl
    except ImportError:
        raise ResourceError(
            f"{path} needs the package openpyxl",
            repair="Install it: pip install 'headwater[spreadsheet]'; or save the table as CSV",
        ) from None
    try:
        content = BytesIO(read_bytes(path))
        with ZipFile(content) as archive:
            check_unpacked(path, sum(part.file_size for part in archive.infolist()), is_packed=True)
        book = openpyxl.load_workbook(content, read_only=True, data_only=True)
        sheet = book.worksheets[0]
        sheet.reset_dimensions()  # a sheet of a few bytes may claim 2^34 cells, and each row would be filled up
        width = 0
        for number, cells in enumerate(sheet.iter_rows(values_only=True)):
            if number == _WORKBOOK_ROWS:
                raise DataError(f"{path} has more than {number:,} rows", expected="at most so many, as in Excel")
            row = [value.isoformat() if hasattr(value, "isoformat") else value for value in cells]
            filled = next((count for count in range(len(row), 0, -1) if row[count - 1] not in (None, "")), 0)
            width = width or filled  # of the header; rows end at their last filled cell
            yield (row[: max(width, filled)] + [None] * (width - len(row))) if filled else []
    except (OSError, KeyError, ValueError, IndexError, BadZipFile) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(
            f"{path} cannot be read as a workbook: {error}", repair="Save the table again, as .xlsx or CSV"
        ) from None


def _json(path: AnyFile, items: Iterator[tuple[str, Any]]) -> OpenTable:
    def rows() -> Iterator[tuple[int, Mapping[str, Any]]]:
        for number, (where, item) in enumerate(items, 1):
            if not isinstance(item, dict):
                raise DataError(f"{path} {where} is {json.dumps(item)[:40]}", expected="a JSON object")
            check_columns(f"{path} {where}", len(item))
            yield number, item

    iterator = rows()
    first = next(iterator, None)
    if first is None:
        return OpenTable([], [], iterator)
    texts = [name for name, value in first[1].items() if value is None or isinstance(value, str)]
    return OpenTable(list(first[1]), texts, chain([first], iterator), uniform=False)


def _parquet(path: AnyFile, columns: Sequence[str]) -> OpenTable:
    file = ParquetTable(path)
    texts = [column.name for column in file.schema if _is_text(column.type)]
    batches = file.batches(_BATCH_ROWS, [name for name in columns if name in texts] or None)
    rows = enumerate((row for batch in batches for row in batch.to_pylist()), 1)
    return OpenTable(file.schema.names, texts, rows)


def _is_text(kind: Any) -> bool:
    """Return whether a column type is text: plain, large, as categories (pandas) or views (Polars)."""
    import pyarrow

    kind = kind.value_type if isinstance(kind, pyarrow.DictionaryType) else kind
    return str(kind) in {"string", "large_string", "string_view"}
