"""Choose an answer or an ending: RACE zero-shot as in GPT-1, Story Cloze in the same way, and HellaSwag.

GPT-1 (Radford et al. 2018, section 5): the answer with the highest mean token log-probability given document and
question. The mean is over the answer's own tokens: the newline between question and answer is not scored. A blank
in a RACE question ("_") is kept; the answer is on a line of its own. If document and question are longer than the
context, the beginning of the document is cut.

HellaSwag (Zellers et al. 2019): choose the right one of four endings, on the official `hellaswag_val.jsonl`, as
lm-evaluation-harness does. The context is `activity_label: ctx_a ctx_b`, with ctx_b capitalized; the bracketed
marks of the WikiHow part are removed. `.total` takes the ending with the highest log-probability, `.per-character`
divides that by the ending's characters (`acc_norm`).
"""

from __future__ import annotations

import ast
import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from headwater.errors import DataError
from headwater.evaluation.choice import Choice, Scoring
from headwater.evaluation.data_files import Source, read_json_rows
from headwater.evaluation.protocols import Example, numbered
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


def _questions(separator: str, path: Path) -> Iterator[Example]:
    for row in read_questions(path):
        document, question, *answers = row.segments
        context = f"{document}{separator}{question}" if question else document
        label = int(row.label) if isinstance(row.label, str | int | float) else None
        yield Example(str(row.row), {"context": context, "answers": answers, "label": label}, text=context)


def _race(part: str, questions: str, *names: str) -> Choice:
    return Choice(
        f"race{part}",
        f"race{part}.mean",
        "mean",
        partial(_questions, "\n"),
        Source("test", names=names, where="RACE, cs.cmu.edu/~glai1/data/race"),
        summary=f"the answer to a question on a text ({questions}), by mean token log-probability",
        separator="\n",
        chance=1 / 4,
    )


ENDINGS = 4
_BRACKETS = re.compile(r"\[.*?\]")
_HELLASWAG_SUMMARIES: Mapping[Scoring, str] = {
    "total": "the log-probability of each ending",
    "per-character": "the log-probability of each ending, divided by its characters",
}


def _endings(path: Path) -> list[Example]:
    expected = f"activity_label, ctx_a, ctx_b, {ENDINGS} endings and label"
    return numbered((row, row["context"]) for row in read_json_rows(path, _ending_content, expected))


def _ending_content(row: Mapping[str, Any]) -> dict[str, Any]:
    label = int(row["label"])
    context = _without_marks(f"{row['activity_label']}: {row['ctx_a']} {row['ctx_b'].capitalize()}")
    endings = [_without_marks(ending) for ending in row["endings"]]
    if len(endings) != ENDINGS or not 0 <= label < ENDINGS:
        raise ValueError(f"{len(endings)} endings and label {label}")
    if not all(endings):
        raise ValueError("an ending is empty")
    return {"context": context, "endings": endings, "label": label}


def _without_marks(text: str) -> str:
    """Remove the WikiHow part's marks, such as `[header]`; `[title]` ends a sentence."""
    return _BRACKETS.sub("", text.strip().replace(" [title]", ". ")).replace("  ", " ")


def _hellaswag(scoring: Scoring) -> Choice:
    return Choice(
        "hellaswag",
        f"hellaswag.lm-eval.{scoring}",
        scoring,
        _endings,
        Source(
            "validation", names=("hellaswag_val.jsonl",), where="hellaswag_val.jsonl, github.com/rowanz/hellaswag"
        ),
        summary=f"the right one of four endings, as in lm-evaluation-harness, by {_HELLASWAG_SUMMARIES[scoring]}",
        keys=("context", "endings"),
        chance=1 / ENDINGS,
    )


TASKS = [
    _hellaswag("total"),
    _hellaswag("per-character"),
    _race("", "all of RACE's test part", "RACE/test/"),
    _race("-middle", "middle school", "RACE/test/middle/", "race_middle_test.jsonl"),
    _race("-high", "high school", "RACE/test/high/", "race_high_test.jsonl"),
    _race("-sample", "500 middle, 500 high", "race_1000_m500_h500.jsonl"),
    Choice(
        "story-cloze",
        "story-cloze.mean",
        "mean",
        partial(_questions, " "),
        Source("test", names=("cloze_test_test__spring2016.csv",), where="cs.rochester.edu/nlp/rocstories"),
        summary="the right ending of a story, by mean token log-probability",
        chance=1 / 2,
    ),
]
