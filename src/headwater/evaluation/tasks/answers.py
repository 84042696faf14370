"""Choose an answer or an ending: RACE zero-shot as in GPT-1, and Story Cloze in the same way.

GPT-1 (Radford et al. 2018, section 5): the answer with the highest mean token log-probability given document and
question. The mean is over the answer's own tokens: the newline between question and answer is not scored. A blank
in a RACE question ("_") is kept; the answer is on a line of its own. If document and question are longer than the
context, the beginning of the document is cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from headwater.errors import DataError
from headwater.evaluation.data_files import Source
from headwater.evaluation.protocols import ChoiceTask, Example, Metric
from headwater.evaluation.questions import read_questions
from headwater.evaluation.reader import ContinuationRequest, Reader


class Answers(ChoiceTask):
    """The right one among several answers by mean token log-probability."""

    by_mean = True
    scored = "the mean log-probability of each answer's own tokens; the largest is chosen"

    def __init__(
        self,
        benchmark: str,
        choices: int,
        joined_by: str,
        source: Source,
        *,
        summary: str,
        inferred: str,
        from_paper: str = "",
    ) -> None:
        self.summary, self.inferred, self.from_paper = summary, inferred, from_paper
        self.benchmark, self._joined_by = benchmark, joined_by
        self.protocol = f"{benchmark}.mean"
        self.metrics = (Metric("accuracy", chance=1 / choices),)
        self.sources = (source,)

    def read(self, files: Mapping[str, Path], reader: Reader) -> Sequence[Example]:
        """Return one example a question."""
        examples = []
        for row in read_questions(files["test"]):
            document, question, *answers = row.segments
            context = f"{document}{self._joined_by}{question}" if question else document
            label = int(row.label) if isinstance(row.label, str | int | float) else None
            content = {"context": context, "answers": answers, "label": label}
            examples.append(Example(str(row.row), content, text=context))
        return examples

    def requests(self, example: Example, reader: Reader) -> Sequence[ContinuationRequest]:
        """Ask for each answer after document and question; raise DataError for an empty answer or no label."""
        if example.content["label"] is None or not all(answer.strip() for answer in example.content["answers"]):
            what = "the right answer is unknown" if example.content["label"] is None else "an answer is empty"
            raise DataError(what, expected="answers and the right one")
        context = example.content["context"] + self._joined_by
        return [reader.pair(context, answer, own_tokens=True) for answer in example.content["answers"]]


def _race(part: str, questions: str, *names: str) -> Answers:
    return Answers(
        f"race{part}",
        4,
        "\n",
        Source("test", names=names, where="RACE, cs.cmu.edu/~glai1/data/race"),
        summary=f"the answer to a question on a text ({questions}), by mean token log-probability",
        inferred="a line break before the answer",
        from_paper="GPT-1: the highest mean token log-probability",
    )


TASKS = [
    _race("", "all of RACE's test part", "RACE/test/"),
    _race("-middle", "middle school", "RACE/test/middle/", "race_middle_test.jsonl"),
    _race("-high", "high school", "RACE/test/high/", "race_high_test.jsonl"),
    _race("-sample", "500 middle, 500 high", "race_1000_m500_h500.jsonl"),
    Answers(
        "story-cloze",
        2,
        " ",
        Source("test", names=("cloze_test_test__spring2016.csv",), where="cs.rochester.edu/nlp/rocstories"),
        summary="the right ending of a story, by mean token log-probability",
        inferred="a space before the answer; the protocol: GPT-1 fine-tunes on this set",
    ),
]
