"""Split CSV and tab-separated text into records, tell a header from a row, and return rows by column."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

from headwater.errors import DataError, counted
from headwater.reading.encoding import filtered
from headwater.reading.parquet import check_columns
from headwater.reading.remote import AnyFile
from headwater.reading.text import read_lines, unpacked_suffix

# One CSV field: longer than any novel. An unclosed quote makes one field of all that follows it.
FIELD_CHARACTERS = 1 << 24
_SEPARATORS = ",;\t|"
_SEP_LINE = re.compile(r'^"?sep=([^"\r])"?\r?$', re.IGNORECASE)  # how Excel is told the separator
# Lines that decide the separator of a header with several, and rows that a first row is compared with.
_JUDGED_LINES, _JUDGED_ROWS = 50, 100
BEGINNING = 10  # records in which the names of the columns are looked for if the first does not have them
# A name of a column is shorter than this, in characters and words.
_NAME_CHARACTERS, _NAME_WORDS = 40, 5
_NUMBER = re.compile(r"[-+]?\d+([.,]\d+)?")


def csv_records(path: AnyFile, encoding: str | None) -> Iterator[list[str]]:
    """Yield the fields of each row, none for a blank line.

    A first line `sep=;` names the separator. Else it is the first of comma, semicolon, tab and bar that the header
    has; of several, one that splits the next rows into as many fields.
    """
    lines = read_lines(path, encoding)
    beginning: list[str] = []
    while (not beginning or not beginning[-1].strip()) and (line := next(lines, None)) is not None:
        beginning.append(line)
    if found := _SEP_LINE.match(beginning[-1]):
        beginning, separator = [""] * len(beginning), found[1]  # blank, so that errors count its line
    else:
        header = beginning.pop()
        judged = [header, *islice(lines, _JUDGED_LINES)]
        separator = _separator(judged)
        beginning += judged
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


def _separator(lines: Sequence[str]) -> str:
    header = re.sub(r'"[^"]*("|$)', "", lines[0])
    candidates = [mark for mark in _SEPARATORS if mark in header]
    if len(candidates) > 1:
        for mark in candidates:
            reader = csv.reader((line + "\n" for line in lines), delimiter=mark)
            try:
                records = list(reader)
            except csv.Error:
                continue
            if len(lines) > _JUDGED_LINES:
                records = records[:-1]  # the last may be the beginning of a longer one
            if len({len(record) for record in records if record}) == 1:
                return mark
    return next(iter(candidates), ",")


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
        repair = "Convert line ends, as with: " + filtered(path, r"tr '\r' '\n'")
    return DataError(f"{path} has {what} in the row of line {line:,}", repair=repair)


def tab_records(path: AnyFile, encoding: str | None) -> Iterator[list[str]]:
    """Split lines at tabs; yield no fields for a blank line.

    A field that is quoted as in a spreadsheet is unquoted; other quotes are literal.
    """
    for line in read_lines(path, encoding):
        line = line.rstrip("\r")
        yield [_unquoted(field) for field in line.split("\t")] if line else []


def _unquoted(field: str) -> str:
    if len(field) >= 2 and field[0] == field[-1] == '"':
        inner = field[1:-1]
        if '"' not in inner.replace('""', ""):
            return inner.replace('""', '"')
    return field


Rows = Iterator[tuple[int, Mapping[str, Any]]]


def separated_rows(
    path: AnyFile, read: Callable[[], Iterator[list[Any]]], named: Sequence[str]
) -> tuple[list[str], Rows, Callable[[], list[str] | None], Callable[[], list[list[str]]]]:
    """Return the columns, the rows, `first_row` and `beginning` of a table, see `tables.OpenTable`.

    `read` reads its records from the first, none for a blank line. `named` as in `open_table`.
    """
    records = read()
    first = next(filter(None, records), [])
    check_columns(path, len(first))
    names = ["" if name is None else str(name).strip() for name in first]
    numbers = [str(number) for number in range(1, len(first) + 1)]
    header = not ({*named} & {*numbers}) - {*names}
    columns = _distinct(names) if header else numbers

    def rows() -> Rows:
        rest = records if header else chain([first], records)
        for number, record in enumerate(_without_blanks(rest, len(columns)), 1):
            if len(record) != len(columns):
                start = str(record[0])[:40]
                raise DataError(
                    f"{path} row {number:,} has {counted(len(record), 'field')}, beginning {start!r}",
                    expected=f"{len(columns)}, one for each column{' name' if header else ' of the first row'}",
                    repair=_repair(path, record, len(columns)),
                )
            yield number, dict(zip(columns, record, strict=True))

    def again() -> Iterator[list[str]]:
        return (["" if value is None else str(value) for value in record] for record in read() if record)

    def first_row() -> list[str] | None:
        left = again()
        return values if (values := next(left, [])) and _is_row(values, left) else None

    return columns, rows(), first_row, lambda: list(islice(again(), BEGINNING))


def _repair(path: AnyFile, record: list[Any], columns: int) -> str:
    if len(record) == columns + 1 and record[-1] == "":
        return "End the first line with a separator, as the rows end, or remove theirs"
    if len(record) == columns + 1 and _NUMBER.fullmatch(str(record[0])):
        return "If each row begins with its number, as R writes tables, begin the first line with a separator"
    if unpacked_suffix(path) in {".tsv", ".tab"}:
        return "Save the table as CSV if a text has a tab or a line end"
    return "Put fields that contain the separator, a quote or a line end in double quotes"


def _without_blanks(records: Iterator[list[Any]], columns: int) -> Iterator[list[Any]]:
    """Drop blank lines. In a table with one column they are empty rows, except at the end of the file."""
    blanks = 0
    for record in records:
        if record:
            yield from [[""]] * blanks
            yield record
            blanks = 0
        else:
            blanks += columns == 1


def _distinct(columns: list[str]) -> list[str]:
    """Name unnamed columns by their position, except the first, so that no value is lost."""
    taken, named, unnamed = set(columns), list[str](), 0
    for number, name in enumerate(columns, 1):
        own = name
        if not name:
            unnamed += 1
            if unnamed > 1:
                own = f"column {number}"
                while own in taken:
                    own += "_"
        named.append(own)
    return named


def _is_row(first: Sequence[str], rows: Iterator[Sequence[str]]) -> bool:
    """Return whether the first record of a table is a row like the others, not the names of its columns.

    It is a row if it has a number, a text too long for a name, the same value twice, or a value that the same
    column has in one of the next rows.
    """
    values = [value.strip() for value in first]
    for value in values:
        if len(value) > _NAME_CHARACTERS or len(value.split()) > _NAME_WORDS or _NUMBER.fullmatch(value):
            return True
    if any(count > 1 for value, count in Counter(values).items() if value):
        return True
    for row in islice(rows, _JUDGED_ROWS):
        if any(value and value == other.strip() for value, other in zip(values, row, strict=False)):
            return True
    return False
