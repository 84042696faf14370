"""Split CSV and tab-separated text into records, tell a header from a row, and return rows by column."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from headwater.display import counted
from headwater.errors import DataError
from headwater.reading.files import FileLimits
from headwater.reading.table_rows import OnBroken, OpenTable, Row
from headwater.reading.text import read_lines, unpacked_suffix

_SEPARATORS = ",;\t|"
_SEP_LINE = re.compile(r'^"?sep=([^"\r])"?\r?$', re.IGNORECASE)  # how Excel is told the separator
_QUOTED = re.compile(r'((?:[^"]+|"")*)(")?')  # the rest of a field after its opening quote, in one line
# What spreadsheets show in place of a value.
_ERRORS = {
    *("#N/A", "#VALUE!", "#REF!", "#DIV/0!", "#NUM!", "#NAME?", "#NULL!", "#SPILL!", "#CALC!", "#FIELD!"),
    *("#BLOCKED!", "#CONNECT!", "#BUSY!", "#UNKNOWN!", "#GETTING_DATA"),
}
# Lines that decide the separator of a header with several, and rows that a first row is compared with.
_JUDGED_LINES, _JUDGED_ROWS = 50, 100
# A name of a column is shorter than this, in characters and words.
_NAME_CHARACTERS, _NAME_WORDS = 40, 5
_NUMBER = re.compile(r"[-+]?\d+([.,]\d+)?")


def csv_records(path: Path, encoding: str | None) -> Iterator[list[str]]:
    """Yield the fields of each row, none for a blank line.

    A first line `sep=;` names the separator. Else it is the first of comma, semicolon, tab and bar that the header
    has; of several, one that splits the next rows into as many fields.
    """
    lines = read_lines(path, encoding)
    beginning: list[str] = []
    while (not beginning or not beginning[-1].strip()) and (line := next(lines, None)) is not None:
        beginning.append(line)
    if sep_line := _SEP_LINE.match(beginning[-1]):
        beginning, separator = [""] * len(beginning), sep_line[1]  # blank, so that errors count its line
    else:
        header = beginning.pop()
        judged = [header, *islice(lines, _JUDGED_LINES)]
        separator = _separator(judged, path)
        beginning += judged
    return split_csv(chain(beginning, lines), separator, path)


def split_csv(lines: Iterable[str], separator: str, path: Path) -> Iterator[list[str]]:
    """Yield the records of CSV lines as Python's strict `csv.reader` does; raise DataError for what it refuses.

    Its limit on the length of a field belongs to the process, so that two threads that read would change it.
    """
    rest = enumerate(lines, 1)
    for number, line in rest:
        begun, whole = number, line.rstrip("\r")
        if '"' not in whole and "\r" not in whole and len(whole) <= FileLimits.FIELD_CHARACTERS:
            yield whole.split(separator) if whole else []
            continue
        fields: list[str] = []
        position = 0
        while position <= len(line):
            if line.startswith('"', position):
                value, line, position = _quoted(line, position + 1, rest, path, begun)
                if not line[position:].rstrip("\r"):
                    position = len(line)
                elif not line.startswith(separator, position):
                    fault = "text after the closing quote of a field"
                    raise _csv_error(path, begun, fault, "Write a quote inside quotes twice")
            else:
                end = line.find(separator, position)
                value = line[position:].rstrip("\r") if end < 0 else line[position:end]
                position = len(line) if end < 0 else end
                if "\r" in value:
                    fault = "a carriage return without a line feed outside quotes"
                    raise _csv_error(path, begun, fault, r"Convert line ends, as with: tr '\r' '\n' < FILE")
                _check_field(len(value), path, begun, "Shorten or split this text, or store it as JSON Lines")
            fields.append(value)
            position += 1
        yield fields


def _quoted(
    line: str, position: int, rest: Iterator[tuple[int, str]], path: Path, begun: int
) -> tuple[str, str, int]:
    """Return a quoted field that begins at `position`, the line in which it ends, and where its quote ends."""
    parts: list[str] = []
    size = 0
    while True:
        match = _QUOTED.match(line, position)
        assert match is not None  # it matches an empty text, too
        parts.append(match[1].replace('""', '"'))
        size += len(match[1])
        _check_field(size, path, begun, _CLOSE)
        if match[2]:
            return "".join(parts), line, match.end()
        following = next(rest, None)
        if following is None:
            raise _csv_error(path, begun, "a quote that is never closed", _CLOSE)
        parts.append("\n")
        size += 1
        line, position = following[1], 0


_CLOSE = "Close the double quote, write a quote inside quotes twice, or store such texts as JSON Lines"


def _check_field(size: int, path: Path, begun: int, repair: str) -> None:
    if size > FileLimits.FIELD_CHARACTERS:
        raise _csv_error(path, begun, f"a field of more than {FileLimits.FIELD_CHARACTERS:,} characters", repair)


def _csv_error(path: Path, line: int, fault: str, repair: str) -> DataError:
    return DataError(f"{path} has {fault} in the row of line {line:,}", repair=repair)


def _separator(lines: Sequence[str], path: Path) -> str:
    header = re.sub(r'"[^"]*("|$)', "", lines[0])
    candidates = [mark for mark in _SEPARATORS if mark in header]
    for mark in candidates if len(candidates) > 1 else ():
        widths = set[int]()
        try:
            for record in split_csv(lines, mark, path):
                widths |= {len(record)} if record else set()
        except DataError:
            if len(lines) <= _JUDGED_LINES:  # else the last record may go on after these lines
                continue
        if len(widths) == 1:
            return mark
    return next(iter(candidates), ",")


def tab_records(path: Path, encoding: str | None) -> Iterator[list[str]]:
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


def separated_table(
    path: Path,
    read: Callable[[], Iterator[list[Any]]],
    named: Sequence[str],
    on_broken: OnBroken,
    notes: Sequence[str] = (),
    *,
    counts_sheet_rows: bool = False,
) -> OpenTable:
    """Return a table whose first record has the names of the columns, or that has no header.

    `read` returns all records, none for a blank line; others as in `open_table`. counts_sheet_rows: number the
    rows as a spreadsheet does, from the header and with blank ones.
    """
    records = ((number, record) for number, record in enumerate(read(), 1) if record)
    row, first = next(records, (0, []))
    names = ["" if name is None else str(name).strip() for name in first]
    columns = [str(number) for number in range(1, len(first) + 1)]
    has_header = not ({part for name in named for part in name.split(",")} & {*columns}) - {*names}
    numbered: Iterable[tuple[int, list[Any]]] = records if has_header else chain([(row, first)], records)
    if not counts_sheet_rows:
        numbered = enumerate((record for _, record in numbered), 1)
    if has_header:
        columns = [name or ("" if n == 1 else f"column {n}") for n, name in enumerate(names, 1)]

    def rows() -> Iterator[tuple[int, Row]]:
        for number, record in numbered:
            # Of a file that was appended.
            if has_header and len(names) > 1 and [str(value).strip() for value in record] == names:
                seen = f"{path} row {number:,} repeats the names of the columns"
                on_broken(DataError(seen, repair="Remove that line"))
            elif len(record) != len(columns):
                seen = (
                    f"{path} row {number:,} has {counted(len(record), 'field')}, beginning {str(record[0])[:40]!r}"
                )
                each = "for each column name" if has_header else "for each column of the first row"
                repair = "Put fields that contain the separator, a quote or a line end in double quotes"
                if unpacked_suffix(path) in {".tsv", ".tab"}:
                    repair = "Save the table as CSV if a text has a tab or a line end"
                on_broken(DataError(seen, expected=f"{len(columns)}, one {each}", repair=repair))
            else:
                yield number, dict(zip(columns, map(_cell, record), strict=True))

    return OpenTable(columns, columns, rows(), notes=[*notes], first_row=partial(_first_row, read))


class CellError:
    """An error that a spreadsheet shows in place of a value, such as #N/A: neither a text nor a label."""

    def __init__(self, shown: str) -> None:
        self._shown = shown

    def __str__(self) -> str:
        return self._shown


def _cell(value: Any) -> Any:
    return CellError(value) if isinstance(value, str) and value[:1] == "#" and value in _ERRORS else value


def _first_row(read: Callable[[], Iterator[list[Any]]]) -> list[str] | None:
    """Return the first record of a table if it is a row like the others, not the names of its columns; else None.

    It is a row if it has a number, the same value twice, a value that the same column has in one of the next rows,
    or one text too long for a name. Several may be the questions of a form.
    """
    rows = (["" if value is None else str(value).strip() for value in record] for record in read() if record)
    values = next(rows, [])
    others = (zip(values, row, strict=False) for row in islice(rows, _JUDGED_ROWS))
    is_row = (
        any(map(_NUMBER.fullmatch, values))
        or (len(values) == 1 and (len(values[0]) > _NAME_CHARACTERS or len(values[0].split()) > _NAME_WORDS))
        or any(count > 1 for value, count in Counter(values).items() if value)
        or any(value and value == other for value, other in chain.from_iterable(others))
    )
    return values if is_row else None
