"""Files of one JSON object a line: each taken apart by its task, a line that does not fit named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from headwater.errors import DataError
from headwater.storage.files import MALFORMED, parse_json, read_text

Taken = TypeVar("Taken")


def json_lines(path: Path, take: Callable[[Any], Taken], expected: str) -> list[Taken]:
    """What `take` makes of each line that is not empty; raises DataError naming the first that it cannot use."""
    found = []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            found.append(take(parse_json(line)))
        except MALFORMED as error:
            raise DataError(f"{path} line {number:,} has another format: {error!r}", expected=expected) from None
    return found
