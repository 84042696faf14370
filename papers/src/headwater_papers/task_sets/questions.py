"""Read the questions of RACE and Story Cloze: the official files, and common redistributions of RACE."""

from __future__ import annotations

import ast
import csv
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from headwater.errors import DataError
from headwater.evaluation import read_json_rows
from headwater.finetuning import Raw
from headwater.reading import parse_json, read_text


def read_questions(path: Path) -> Iterator[Raw]:
    """Yield the questions of RACE (a folder, JSON Lines, or chat prompts) or of Story Cloze (CSV).

    Segments: document, question, answers; label: the right answer's index, None if it is hidden. Raises DataError
    or one of `errors.MALFORMED` for a file that differs from the release.
    """
    if path.suffix == ".csv":
        return _story_cloze(path)
    if path.is_dir():
        return _race_folder(path)
    with path.open(encoding="utf-8") as lines:
        return _race_prompts(path) if '"conversation"' in lines.readline() else _race_lines(path)


def _story_cloze(path: Path) -> Iterator[Raw]:
    """Read Story Cloze: four sentences, which become one context, two endings, the right one's number."""
    number = 0
    with io.StringIO(read_text(path), newline="") as lines:
        for record in csv.reader(lines, strict=True):
            if not record or record[0] == "InputStoryid":
                continue
            number += 1
            if len(record) not in {7, 8} or not all(record[5:7]):
                raise DataError(f"{path} row {number:,} lacks a field", expected="a story with two endings")
            label = ("1", "2").index(record[7]) if len(record) == 8 else None
            yield Raw((" ".join(record[1:5]), "", record[5], record[6]), label, number)


def _race_folder(path: Path) -> Iterator[Raw]:
    """Read a folder of the official RACE, or of several parts: one JSON file an article."""
    number = 0
    # By name, so that the first rows of a folder with both levels are of both.
    for file in sorted(path.rglob("*.txt"), key=lambda file: (file.name, file)):
        article = parse_json(file.read_text(encoding="utf-8"))
        questions = zip(article["questions"], article["options"], article["answers"], strict=True)
        for question, options, answer in questions:
            number += 1
            yield _question(article["article"], question, options, answer, number)


def _race_lines(path: Path) -> Iterator[Raw]:
    """Read RACE with one question a line; options are a list, or a list as Python source."""
    for number, row in enumerate(read_json_rows(path, dict, "one question a line"), start=1):
        options = row["options"]
        if isinstance(options, str):
            options = ast.literal_eval(options)
        yield _question(row["article"], row["question"], options, row["answer"], number)


_RACE_PROMPT = re.compile(
    r"<passage>:\n(?P<passage>.*?)\n+<question>:\n(?P<question>.*?)\n+<options>:\n(?P<options>.*?)\n+<answer>:",
    re.DOTALL,
)


def _race_prompts(path: Path) -> Iterator[Raw]:
    """Read RACE questions in chat prompts with marked parts."""
    for number, row in enumerate(read_json_rows(path, dict, "one prompt a line"), start=1):
        turn = row["conversation"][0]
        parts = _RACE_PROMPT.search(turn["human"])
        if parts is None:
            raise DataError(f"{path} row {number:,} lacks <passage>, <question> or <options>")
        options = re.split(r"\n(?=[B-H] )", parts["options"])
        answers = [option[2:].strip() for option in options]
        if not all(answers):
            answers = [answer or "-" for answer in answers]  # RACE has a few blank options
        yield _question(parts["passage"], parts["question"], answers, turn["assistant"].strip(), number)


def _question(document: str, question: str, answers: Sequence[str], letter: str, number: int) -> Raw:
    """Return a row of RACE; `letter` is that of the right answer."""
    letters = [chr(ord("A") + index) for index in range(len(answers))]
    if letter not in letters:
        raise ValueError(f"the right answer is {letter!r}, expected a letter from A to {letters[-1]}")
    segments = (document, question, *answers)
    for value in segments:
        if not isinstance(value, str):
            raise TypeError(f"{value!r} in row {number:,} is not a text")
    return Raw(segments, letters.index(letter), number)
