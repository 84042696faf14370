"""Read the records of an Excel workbook, as openpyxl does: the sheet with the table, merged cells in each row."""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection, Iterator
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

from headwater.display import counted
from headwater.errors import MALFORMED, DataError, ResourceError
from headwater.reading.files import FileLimits, read_bytes
from headwater.reading.text import check_unpacked

_MERGED = re.compile(rb'<(?:\w+:)?mergeCell\s+ref="([A-Z]{1,3}[0-9]{1,7}:[A-Z]{1,3}[0-9]{1,7})"')
# A cell with a formula, without a value or with an empty one; its reference is in the attributes.
_UNCOMPUTED = re.compile(
    rb"<(?:\w+:)?c\b(?![^<>]*\bt=\"str\")([^<>]*)>\s*<(?:\w+:)?f\b(?:[^<>]*/>|[^<>]*>[^<]*</(?:\w+:)?f>)"
    rb"\s*(?:(?:<(?:\w+:)?v\s*/>|<(?:\w+:)?v>\s*</(?:\w+:)?v>)\s*)?</(?:\w+:)?c>"
)
_FORMULA = re.compile(rb"<(?:\w+:)?f[\s/>]")
_REFERENCE = re.compile(rb'\br="([A-Z]+[0-9]+)"')
_UNREADABLE = (OSError, BadZipFile, zlib.error, RuntimeError, *MALFORMED)  # RuntimeError: of a cipher
_JUDGED_ROWS = 20  # of a sheet: two of them must have two cells each, if it is a table


class Workbook:
    """An open workbook. `sheet` is the name of the sheet that is read, `others` those of other sheets with cells.

    It is the one of a column that is named with its sheet, as `Sheet2!text`, else the first one whose first row
    has the columns `named`, else the first one that looks like a table.
    """

    def __init__(self, path: Path, named: Collection[str]) -> None:
        """Open the file; raises DataError for a damaged one, ResourceError without openpyxl."""
        try:
            from openpyxl.reader.excel import ExcelReader
        except ImportError:
            raise ResourceError(
                f"{path} needs the package openpyxl",
                repair="Install it: pip install 'headwater[spreadsheet]'; or save the table as CSV",
            ) from None
        self.path = path
        try:
            content = BytesIO(read_bytes(path))
            self._archive = ZipFile(content)
            check_unpacked(path, sum(part.file_size for part in self._archive.infolist()), is_packed=True)
            reader = ExcelReader(content, read_only=True, data_only=True)
            reader.read()
            self._parts = {sheet.name: relation.target for sheet, relation in reader.parser.find_sheets()}
            self._sheets = {sheet.title: sheet for sheet in reader.wb.worksheets}
            beginnings = {name: list(islice(self._rows(name), _JUDGED_ROWS)) for name in self._sheets}
        except _UNREADABLE as error:
            raise self._unreadable(error) from None
        filled = [name for name, rows in beginnings.items() if rows]
        tables = [name for name in filled if sum(_cells(row) > 1 for row in beginnings[name]) > 1]
        fitting = [n for n in filled if named and {*named} <= {str(cell).strip() for cell in beginnings[n][0]}]
        headers = {str(cell).strip() for name in filled for cell in beginnings[name][0]}
        sheets = [name.rpartition("!")[0] for name in named if "!" in name and name not in headers]
        if missing := {*sheets} - {*self._sheets}:
            raise DataError(f"{path} has no sheet {min(missing)!r}, only {', '.join(map(repr, self._sheets))}")
        self.sheet = next(iter([*sheets, *fitting, *tables, *filled, *self._sheets]), "")
        self.others = [name for name in filled if name != self.sheet]

    def records(self) -> Iterator[list[Any]]:
        """Yield the values of each row of the sheet, none for a blank row; dates are ISO texts.

        Raises DataError for formulas whose values are not in the file: a program that does not compute wrote it.
        """
        width = 0
        try:
            self._require_values()
            for row in self._rows(self.sheet, keep_blank=True):
                width = width or len(row)  # of the header; rows end at their last filled cell
                yield row + [None] * (width - len(row)) if row else []
        except _UNREADABLE as error:
            raise self._unreadable(error) from None

    def _rows(self, name: str, *, keep_blank: bool = False) -> Iterator[list[Any]]:
        if name not in self._sheets:
            return
        sheet = self._sheets[name]
        sheet.reset_dimensions()  # a sheet of a few bytes may claim 2^34 cells, and each row would be filled up
        merged = self._merged(name)
        repeated: dict[int, tuple[int, Any]] = {}  # by column: the last row of a merged range, and its value
        for number, cells in enumerate(sheet.iter_rows(values_only=True), 1):
            if number > FileLimits.WORKBOOK_ROWS:
                raise DataError(
                    f"{self.path} has more than {number - 1:,} rows", expected="at most so many, as in Excel"
                )
            row = [_as_shown(value) for value in cells]
            for column, (last, value) in [*repeated.items()]:
                if number > last:
                    del repeated[column]
                elif value is not None:
                    row += [None] * (column + 1 - len(row))
                    row[column] = value
            for column, last in merged.get(number, ()):
                repeated[column] = last, row[column] if column < len(row) else None
            while row and row[-1] in (None, ""):
                row.pop()
            if row or keep_blank:
                yield row

    def _require_values(self) -> None:
        """Raise DataError if no formula has a value; where some have one, the others give an empty text."""
        sheet = self._archive.read(self._parts[self.sheet]) if self.sheet else b""
        uncomputed = _UNCOMPUTED.findall(sheet)
        if uncomputed and len(uncomputed) == len(_FORMULA.findall(sheet)):
            reference = _REFERENCE.search(uncomputed[0])
            raise DataError(
                f"{self.path} has {counted(len(uncomputed), 'formula')} without a value, the first in "
                f"{reference[1].decode() if reference else 'a row'}",
                expected="a workbook with the values that the formulas give",
                repair="Open it in Excel or LibreOffice and save it again, or save the table as CSV",
            )

    def _merged(self, name: str) -> dict[int, list[tuple[int, int]]]:
        """Return the ranges of merged cells of several rows by their first row: (column from 0, last row)."""
        from openpyxl.utils import range_boundaries

        ranges: dict[int, list[tuple[int, int]]] = {}
        for match in _MERGED.finditer(self._archive.read(self._parts[name])):
            left, top, _, bottom = range_boundaries(match[1].decode())
            if bottom > top:
                ranges.setdefault(top, []).append((left - 1, bottom))
        return ranges

    def _unreadable(self, error: Exception) -> DataError:
        if isinstance(error, DataError):
            return error
        return DataError(
            f"{self.path} cannot be read as a workbook: {error}", repair="Save the table again, as .xlsx or CSV"
        )


def _cells(row: list[Any]) -> int:
    return sum(cell not in (None, "") for cell in row)


def _as_shown(value: Any) -> Any:
    """Return a cell's value: dates in ISO form, TRUE and FALSE as Excel spells them."""
    if isinstance(value, bool):
        return str(value).upper()
    return value.isoformat() if hasattr(value, "isoformat") else value
