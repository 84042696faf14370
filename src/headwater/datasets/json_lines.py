"""Read a JSON Lines file with a function for each line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from headwater.errors import DataError
from headwater.storage.files import MALFORMED, parse_json, read_text

Taken = TypeVar("Taken")


def json_lines(path: Path, take: Callable[[Any], Taken], expected: str) -> list[Taken]:
    """Return `take(value)` of each line that is not empty; raise DataError for the first line that it rejects."""
    found = []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            found.append(take(parse_json(line)))
        except MALFORMED as error:
            raise DataError(f"{path} line {number:,} has another format: {error!r}", expected=expected) from None
    return found
