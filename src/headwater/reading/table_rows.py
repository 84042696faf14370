"""A table that is open: its columns and its rows, and columns that a user names by a path or several names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from headwater.errors import DataError

Row = Mapping[str, Any]
OnBroken = Callable[[DataError], None]
_MISSING = object()


@dataclass
class OpenTable:
    """Column names, those of the columns that hold text, and the rows as (number from 1, values by column).

    An empty file has no columns. uniform: whether all rows have these columns; those of JSON are the first row's.
    notes: sentences about what the table has and the rows leave out, such as other sheets. first_row returns the
    first row if it is a row like the others, so that the table has no header; else None.
    """

    columns: list[str]
    texts: list[str]
    rows: Iterator[tuple[int, Row]]
    uniform: bool = True
    notes: list[str] = field(default_factory=list)
    first_row: Callable[[], list[str] | None] = lambda: None

    def all_columns(self, limit: int | None = None) -> list[str]:
        """Return the names of the columns, the first row's first; of JSON, read all rows or the first `limit`."""
        if self.uniform:
            return self.columns
        return list(dict.fromkeys(name for _, row in islice(self.rows, limit) for name in row))

    def add_named(self, named: Iterable[str], path: object) -> None:
        """Add columns that are named by a path (`data.text`), with their sheet, or as several (`title,body`)."""
        own = {*self.columns}
        added = [name for name in dict.fromkeys(named) if name not in own and own.issuperset(heads(name))]
        added = [name for name in added if {*",.!"} & {*name}]
        if added:
            self.columns, self.texts = [*self.columns, *added], [*self.texts, *added]
            self.rows = _with_values(self.rows, added, path)


def heads(name: str) -> list[str]:
    """Return the columns of the file that a user's name of a column is made from."""
    return [part.rpartition("!")[2].partition(".")[0] for part in name.split(",")]


def refuse(error: DataError) -> None:
    """Raise the error of a broken row."""
    raise error


def _with_values(rows: Iterator[tuple[int, Row]], names: Sequence[str], path: object) -> Iterator[tuple[int, Row]]:
    for number, row in rows:
        values = {name: _value(row, name, f"{path} row {number:,}") for name in names}
        yield number, {**row, **{name: value for name, value in values.items() if value is not _MISSING}}


def _value(row: Row, name: str, where: str) -> Any:
    """Return the value at a path, or the texts at several with a blank line between two."""
    paths = name.split(",")
    if len(paths) == 1:
        return _value_at(row, name)
    values = [value for path in paths if (value := _value_at(row, path)) not in (None, _MISSING, "")]
    for value in values:
        if not isinstance(value, str | int | float):
            raise DataError(f"{where} has a {type(value).__name__} in {name!r}", expected="texts to join")
    return "\n\n".join(map(str, values)) if values else None


def _value_at(row: Row, path: str) -> Any:
    """Return the value of `name`, `sheet!name` or `name.key.0`: a key of an object, a position in a list."""
    if path in row:
        return row[path]
    value: Any = row
    for key in path.rpartition("!")[2].split("."):
        if isinstance(value, Mapping) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        else:
            return _MISSING if value is not None else None
    return value
