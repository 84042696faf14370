"""Read a JSON Lines file with a function for each row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from headwater.errors import MALFORMED, DataError
from headwater.reading import open_table

Taken = TypeVar("Taken")


def text_of(row: Mapping[str, Any], key: str) -> str:
    """Return a text of a row; raise TypeError for another value, such as null."""
    value = row[key]
    if not isinstance(value, str):
        raise TypeError(f"{key} is {value!r:.60}, not text")
    return value


def texts_of(row: Mapping[str, Any], key: str) -> list[str]:
    """Return a list of texts of a row; raise TypeError for another value, such as a single text."""
    values = row[key]
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TypeError(f"{key} is {values!r:.60}, not a list of texts")
    return values


def read_json_rows(path: Path, take: Callable[[Mapping[str, Any]], Taken], expected: str) -> list[Taken]:
    """Return `take(row)` of each row of a JSON Lines file; raise DataError for the first row that it rejects."""
    values = []
    for number, row in open_table(path).rows:
        try:
            values.append(take(row))
        except DataError:
            raise
        except MALFORMED as error:
            raise another_format(f"{path} row {number:,}", error, expected) from None
    return values


def another_format(where: str, error: BaseException, expected: str) -> DataError:
    """Return the error about a row. A set is not scored without it: fewer questions are another benchmark."""
    why = f"it has no {error}" if isinstance(error, KeyError) else str(error)
    return DataError(
        f"{where} has another format: {why}",
        expected=expected,
        repair="Correct that line; none is left out of a set",
    )
