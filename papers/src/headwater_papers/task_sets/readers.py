"""Read the official files of labelled sets, and common redistributions.

Each reader yields `Raw` rows with the label in the set's own words, and raises DataError or one of
`errors.MALFORMED` for a file that differs from the release. Known traps: MRPC begins with a byte-order mark
and has literal quotes; rows of the original STS-B may have two more fields; newlines break some rows of GLUE's
QQP; a copy of QQP has bytes that are not UTF-8, which become U+FFFD; SNLI marks pairs without a majority label
with "-".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from headwater.display import counted
from headwater.errors import DataError
from headwater.finetuning import Raw
from headwater.reading import parse_json

TableReader = Callable[[Path], Iterator[Raw]]


def json_lines(texts: Sequence[str], label: str) -> TableReader:
    """Return a reader of JSON Lines with these keys."""

    def read(path: Path) -> Iterator[Raw]:
        for number, row in _objects(path):
            try:
                value = row[label]
                yield row_of_json([row[name] for name in texts], None if value == "-" else value, number)
            except KeyError as error:
                raise DataError(f"{path} row {number:,} has no key {error}") from None

    return read


def mrpc(path: Path) -> Iterator[Raw]:
    """Read MSR paraphrases: label, two ids, two sentences, literal quotes, with or without a header line.

    GLUE's test file has an index instead of the label.
    """
    hidden = False
    number = 0
    for record in _records(path):
        if record[0] in {"Quality", "index"}:
            hidden = record[0] == "index"
            continue
        number += 1
        if len(record) != 5:
            raise DataError(f"{path} row {number:,} has {counted(len(record), 'field')}", expected="5")
        yield Raw((record[3], record[4]), None if hidden else record[0], number)


def stsb_original(path: Path) -> Iterator[Raw]:
    """Read STSbenchmark: genre, file, year, number, score, two sentences, sometimes their sources."""
    for number, record in enumerate(_records(path), 1):
        if len(record) < 7:
            raise DataError(f"{path} row {number:,} has {counted(len(record), 'field')}", expected="7 or 9")
        yield Raw((record[5], record[6]), record[4], number)


def fetched(path: Path) -> Iterator[Raw]:
    """Read a part that `hub` fetched."""
    for number, row in _objects(path):
        yield row_of_json(row["segments"], row["label"], number)


def letter_index(letter: str, count: int) -> int:
    """Return the index of an answer by its letter; raise ValueError if none of `count` answers has this letter."""
    letters = [chr(ord("A") + place) for place in range(count)]
    if letter not in letters:
        raise ValueError(f"the right answer is {letter!r}, expected a letter from A to {letters[-1]}")
    return letters.index(letter)


def row_of_json(segments: Sequence[Any], label: Any, number: int) -> Raw:
    """Return a row from JSON values; raises TypeError unless they are texts and a label."""
    wrong = [value for value in segments if not isinstance(value, str)]
    if wrong or not isinstance(label, str | int | float | None):
        raise TypeError(f"{wrong[0] if wrong else label!r} in row {number:,} is neither a text nor a label")
    return Raw(tuple(segments), label, number)


def _text_lines(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as handle:
        yield from handle


def _records(path: Path) -> Iterator[list[str]]:
    for line in _text_lines(path):
        if stripped := line.rstrip("\r\n"):
            yield stripped.split("\t")


def _objects(path: Path) -> Iterator[tuple[int, Any]]:
    lines = (line for line in _text_lines(path) if line.strip())
    for number, line in enumerate(lines, 1):
        try:
            yield number, parse_json(line)
        except json.JSONDecodeError as error:
            seen = f"{path} row {number:,} is not JSON: {error.msg}"
            raise DataError(seen, repair="Get the set again") from None
