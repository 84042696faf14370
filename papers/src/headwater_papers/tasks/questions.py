"""RACE zero-shot as in GPT-1, and Story Cloze in the same way.

GPT-1 (Radford et al. 2018, section 5): the answer with the highest mean token log-probability given document and
question. The mean is over the answer's own tokens: the newline between question and answer is not scored. A blank
in a RACE question ("_") is kept; the answer is on a line of its own. If document and question are longer than the
context, the beginning of the document is cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from headwater.evaluation import Choice, Example, Source
from headwater_papers.task_sets import read_questions


def _questions(separator: str, path: Path) -> Iterator[Example]:
    for row in read_questions(path):
        document, question, *answers = row.segments
        context = f"{document}{separator}{question}" if question else document
        label = int(row.label) if isinstance(row.label, str | int | float) else None
        text = context if label is None else f"{context}{separator}{answers[label]}"
        yield Example(str(row.row), {"context": context, "answers": answers, "label": label}, text=text)


def _race(part: str, questions: str, *names: str) -> Choice:
    return Choice(
        f"race{part}",
        f"race{part}.mean",
        "mean",
        partial(_questions, "\n"),
        Source("test", names=names, where="RACE, cs.cmu.edu/~glai1/data/race"),
        summary=f"the answer to a question on a text ({questions}), by mean token log-probability",
        separator="\n",
    )


TASKS = [
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
    ),
]
