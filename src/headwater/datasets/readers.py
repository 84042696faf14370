"""Read the official files of labelled sets, and common redistributions.

Each reader yields `Raw` rows with the label in the set's own words, and raises DataError or one of
`storage.files.MALFORMED` for a file that differs from the release. Known traps: MRPC begins with a byte-order mark
and has literal quotes; rows of the original STS-B may have two more fields; newlines break some rows of GLUE's
QQP; a copy of QQP has bytes that are not UTF-8, which become U+FFFD; SNLI marks pairs without a majority label
with "-"; Story Cloze files may repeat their header.
"""

from __future__ import annotations

import ast
import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from headwater.datasets.rows import Raw
from headwater.errors import DataError, counted
from headwater.storage import parse_json

Reader = Callable[[Path], Iterator[Raw]]


def tab_separated(
    texts: Sequence[str],
    label: str | None,
    *,
    header: Sequence[str] | None = None,
    quoted: bool = False,
    names: Mapping[str, str] | None = None,
    has_broken_rows: bool = False,
) -> Reader:
    """Return a reader of tab-separated files.

    texts, label: names of columns (label None: hidden). header: the columns of a file without a header line.
    quoted: quotes are CSV's, else literal. names: class names by the file's labels. has_broken_rows: rows of too
    few fields, the pieces of a row with a newline in a text, are yielded without texts instead of refused.
    """

    def read(path: Path) -> Iterator[Raw]:
        records = _records(path, quoted)
        columns = list(header) if header else [name.strip() for name in next(records, [])]
        missing = [name for name in [*texts, *([label] if label else [])] if name not in columns]
        if missing:
            raise DataError(f"{path} has no column {missing[0]!r}; it has {', '.join(map(repr, columns))}")
        for number, record in enumerate(records, 1):
            if len(record) < len(columns):
                if has_broken_rows:
                    yield Raw((), None, number)
                    continue
                raise DataError(
                    f"{path} row {number:,} has {counted(len(record), 'field')}",
                    expected=f"{len(columns)} or more",
                )
            row = dict(zip(columns, record, strict=False))
            value = row[label] if label else None
            if value is not None and names is not None:
                value = _named(value, names, path, number)
            yield Raw(tuple(row[name] for name in texts), None if value in {"", "-"} else value, number)

    return read


def json_lines(texts: Sequence[str], label: str) -> Reader:
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
    for record in _records(path, quoted=False):
        if record[0] in {"Quality", "index"}:
            hidden = record[0] == "index"
            continue
        number += 1
        if len(record) != 5:
            raise DataError(f"{path} row {number:,} has {counted(len(record), 'field')}", expected="5")
        yield Raw((record[3], record[4]), None if hidden else record[0], number)


def stsb_original(path: Path) -> Iterator[Raw]:
    """Read STSbenchmark: genre, file, year, number, score, two sentences, sometimes their sources."""
    for number, record in enumerate(_records(path, quoted=False), 1):
        if len(record) < 7:
            raise DataError(f"{path} row {number:,} has {counted(len(record), 'field')}", expected="7 or 9")
        yield Raw((record[5], record[6]), record[4], number)


def story_cloze(path: Path) -> Iterator[Raw]:
    """Read Story Cloze: four sentences, which become one context, two endings, the right one's number."""
    number = 0
    for record in csv.reader(_text_lines(path), strict=True):
        if not record or record[0] == "InputStoryid":
            continue
        number += 1
        if len(record) not in {7, 8} or not all(record[5:7]):
            raise DataError(f"{path} row {number:,} lacks a field", expected="a story with two endings")
        label = ("1", "2").index(record[7]) if len(record) == 8 else None
        yield Raw((" ".join(record[1:5]), "", record[5], record[6]), label, number)


def fetched(path: Path) -> Iterator[Raw]:
    """Read a part that `hub` fetched."""
    for number, row in _objects(path):
        yield row_of_json(row["segments"], row["label"], number)


def race_folder(path: Path) -> Iterator[Raw]:
    """Read a folder of the official RACE, or of several parts: one JSON file an article."""
    number = 0
    # By name, so that the first rows of a folder with both levels are of both.
    for file in sorted(path.rglob("*.txt"), key=lambda file: (file.name, file)):
        article = parse_json(file.read_text(encoding="utf-8"))
        questions = zip(article["questions"], article["options"], article["answers"], strict=True)
        for question, options, answer in questions:
            number += 1
            yield _question(article["article"], question, options, answer, number)


def race_lines(path: Path) -> Iterator[Raw]:
    """Read RACE with one question a line; options are a list, or a list as Python source."""
    for number, row in _objects(path):
        options = row["options"]
        if isinstance(options, str):
            options = ast.literal_eval(options)
        yield _question(row["article"], row["question"], options, row["answer"], number)


_RACE_PROMPT = re.compile(
    r"<passage>:\n(?P<passage>.*?)\n+<question>:\n(?P<question>.*?)\n+<options>:\n(?P<options>.*?)\n+<answer>:",
    re.DOTALL,
)


def race_prompts(path: Path) -> Iterator[Raw]:
    """Read RACE questions in chat prompts with marked parts."""
    for number, row in _objects(path):
        turn = row["conversation"][0]
        found = _RACE_PROMPT.search(turn["human"])
        if found is None:
            raise DataError(f"{path} row {number:,} lacks <passage>, <question> or <options>")
        options = re.split(r"\n(?=[B-H] )", found["options"])
        answers = [option[2:].strip() for option in options]
        if not all(answers):
            answers = [answer or "-" for answer in answers]  # RACE has a few blank options
        yield _question(found["passage"], found["question"], answers, turn["assistant"].strip(), number)


def _question(document: str, question: str, answers: Sequence[str], letter: str, number: int) -> Raw:
    """Return a row of RACE; `letter` is that of the right answer."""
    return row_of_json([document, question, *answers], letter_index(letter, len(answers)), number)


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


def _named(value: str, names: Mapping[str, str], path: Path, number: int) -> str:
    if value not in names:
        raise DataError(
            f"{path} row {number:,} has the label {value!r}", expected=", ".join(repr(name) for name in names)
        )
    return names[value]


def _text_lines(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as handle:
        yield from handle


def _records(path: Path, quoted: bool) -> Iterator[list[str]]:
    if quoted:
        yield from csv.reader(_text_lines(path), delimiter="\t", strict=True)
        return
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
