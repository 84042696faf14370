"""Multiple choice, as a task file describes it: the right one of several answers by likelihood.

Each row of the file has a context, answers and the right one. One question is read in several ways:

`.total` takes the answer with the highest log-probability;
`.mean` takes that with the highest mean token log-probability (GPT-1 section 5, as for RACE), over its own tokens;
`.per-character` divides the log-probability by the answer's characters (`acc_norm` of lm-evaluation-harness);
`.gain` takes the answer whose log-probability the context raises most: log P(answer | context) − log P(answer).

GPT-1's tokenizer has no token before a text. There the first token of log P(answer) costs as much as a uniform
draw from the vocabulary, as in `held_out`. This cost is the same for every answer, so the comparison omits it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from headwater.config import Config
from headwater.errors import DataError
from headwater.evaluation.data_files import Source
from headwater.evaluation.json_lines import text_of, texts_of
from headwater.evaluation.protocols import ChoiceTask, Example, Metric, Scored
from headwater.evaluation.reader import ContinuationRequest, Reader
from headwater.finetuning import Labels, Raw
from headwater.reading import open_table

Reading = Literal["total", "mean", "per-character", "gain"]
# What `summary` and `scored` say of each reading.
_READINGS: Mapping[Reading, tuple[str, str]] = {
    "total": ("log-probability", "its log-probability"),
    "mean": ("mean token log-probability", "the mean log-probability of its own tokens"),
    "per-character": ("log-probability per character", "its log-probability, divided by its characters"),
    "gain": ("log-probability gained from the context", "log P(answer | context) − log P(answer)"),
}
_COLUMN = re.compile(r"\{([^{}]+)\}")


class ChoiceFile(Config):
    """A task file of the kind `choice`."""

    kind: Literal["choice"]
    benchmark: str
    """Beginning of the protocols' names."""
    summary: str
    """What is asked, in one line."""
    files: tuple[str, ...] = ()
    """Names of the file, best first: .jsonl, .json, .csv, .tsv or .parquet."""
    labels: str = ""
    """The task of a labels folder, which is read instead of `files`."""
    where: str = ""
    """Where to get the file."""
    context: str = "{context}"
    """The text before the answers; {NAME} is a column."""
    answers: str | tuple[str, ...] = "answers"
    """The column with a list of answers, or several columns."""
    label: str = "label"
    """The column of the right answer: its number, letter or text."""
    first_answer: int = 0
    """The number of the first answer."""
    separator: str = " "
    """The text between context and answer."""
    begins: bool = False
    """Whether the context is the beginning of a document."""
    readings: tuple[Reading, ...] = ("total", "mean")
    """The ways to choose; each is a protocol."""
    from_paper: str = ""
    """The choices that a paper states."""
    inferred: str = ""
    """The choices that it leaves open."""


class FileChoice(ChoiceTask):
    """One reading of a task file."""

    metrics = (Metric("accuracy"),)
    _role: ClassVar[str] = "labels"

    def __init__(self, described: ChoiceFile, reading: Reading) -> None:
        self.described, self.reading, self.by_mean = described, reading, reading == "mean"
        self.benchmark, self.protocol = described.benchmark, f"{described.benchmark}.{reading}"
        how, scored = _READINGS[reading]
        self.summary, self.scored = f"{described.summary}, by {how}", f"each answer: {scored}"
        self.from_paper, self.inferred = described.from_paper, described.inferred
        self.sources = (
            Source(
                self._role,
                names=described.files,
                kind="labels" if described.labels else "",
                settings={"task": described.labels} if described.labels else {},
                where=described.where,
            ),
        )

    def read(self, files: Mapping[str, Path], reader: Reader) -> Sequence[Example]:
        """Return one example a row."""
        path = files[self._role]
        if path.is_dir():
            path /= "validation.jsonl"
        contents = [self._content(row, number, path) for number, row in open_table(path).rows]
        return [
            Example(str(number), content, text=content["answers"][content["label"]])
            for number, content in enumerate(contents, start=1)
        ]

    def requests(self, example: Example, reader: Reader) -> Sequence[ContinuationRequest]:
        """Return each answer after the prompt and, for `.gain`, by itself; cut to the model's context."""
        prompt, answers = example.content["prompt"], example.content["answers"]
        asked = [
            reader.pair_cut(
                prompt,
                f"{self.described.separator}{answer}",
                begins=self.described.begins,
                own_tokens=self.reading == "mean",
            )
            for answer in answers
        ]
        if self.reading == "gain":
            # The same tokens as after the prompt, so that a cut answer is compared with itself.
            least = 2 if reader.start is None else 1  # without a start the first token has no score
            alone = [request.continuation for request in asked if len(request.continuation) >= least]
            asked += [reader.after_start(ids) for ids in alone]
        return asked

    def values(self, example: Example, answers: Sequence[Scored]) -> list[float]:
        """Return the value of each answer; see `_READINGS`."""
        texts = example.content["answers"]
        if self.reading == "gain":
            after, alone = answers[: len(texts)], list(answers[len(texts) :])
            least = 1 if len(alone) == len(texts) else 2  # an answer of one token was not asked for by itself
            return [
                answer.total - (alone.pop(0).total if len(answer.log_probabilities) >= least else 0.0)
                for answer in after
            ]
        values = super().values(example, answers)
        if self.reading == "per-character":
            return [value / len(text) for value, text in zip(values, texts, strict=True)]
        return values

    def chance(self, metric: str, examples: Sequence[Example]) -> float:
        """Return the mean over the examples, which may have different numbers of answers."""
        return sum(1 / len(example.content["answers"]) for example in examples) / len(examples)

    def _content(self, row: Mapping[str, Any], number: int, path: Path) -> dict[str, Any]:
        columns = self.described.answers
        try:
            prompt = _COLUMN.sub(lambda match: text_of(row, match[1]), self.described.context)
            several = texts_of(row, columns) if isinstance(columns, str) else [text_of(row, c) for c in columns]
            label = row[self.described.label]
        except (KeyError, TypeError) as error:
            raise DataError(
                f"{path} row {number:,} has another format: {error!r}", expected=f"the columns of {self.benchmark}"
            ) from None
        if len(several) < 2 or not all(answer.strip() for answer in several):
            raise DataError(f"{path} row {number:,} lacks an answer", expected="two or more")
        if label in (None, ""):
            raise DataError(f"{path} row {number:,} has no label", expected="the right answer")
        meaning = Labels(target="answer", first_answer=self.described.first_answer)
        right = meaning.target_of(Raw(("", "", *several), label, number), str(path))
        return {"prompt": prompt, "answers": several, "label": int(right or 0)}
