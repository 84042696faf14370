"""Multiple choice: the right one of several answers after a context, by likelihood.

A question is scored in several ways, each a protocol:

`.total` takes the answer with the highest log-probability;
`.mean` takes that with the highest mean token log-probability (GPT-1 section 5, as for RACE), over its own tokens;
`.per-character` divides the log-probability by the answer's characters (`acc_norm` of lm-evaluation-harness);
`.gain` takes the answer whose log-probability the context raises most: log P(answer | context) − log P(answer).

GPT-1's tokenizer has no token before a text. There the first token of log P(answer) costs as much as a uniform
draw from the vocabulary, as in `held_out`. This cost is the same for every answer, so the comparison omits it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from headwater.errors import DataError
from headwater.evaluation.data_files import Source, another_format, text_of, texts_of
from headwater.evaluation.protocols import ChoiceTask, Example, Metric, Scored, TaskFile
from headwater.evaluation.request_encoder import ContinuationRequest, RequestEncoder
from headwater.finetuning import Labels, Raw
from headwater.reading import open_table

Scoring = Literal["total", "mean", "per-character", "gain"]
# Of each way of scoring: what `summary` says of it.
_SUMMARIES: Mapping[Scoring, str] = {
    "total": "log-probability",
    "mean": "mean token log-probability",
    "per-character": "log-probability per character",
    "gain": "log-probability gained from the context",
}
_COLUMN = re.compile(r"\{([^{}]+)\}")
# Reads the questions of a file; their content has a context, answers, and the index of the right one as "label".
Questions = Callable[[Path], Iterable[Example]]


class AnswerChoice(ChoiceTask):
    """A protocol that scores the questions of one file in one way.

    keys: under which an example's content has the text before the answers, and the list of answers.
    separator: the text between the two, a space by default.
    chance: the accuracy of random guessing; None computes it from the number of answers of each example.
    encoding: how a context and an answer become tokens. "pair" encodes both as one text. "cut" does, too, and cuts
    the end of an answer that is longer than the model's context. "separate" encodes each by itself.
    """

    def __init__(
        self,
        benchmark: str,
        protocol: str,
        scoring: Scoring,
        questions: Questions,
        source: Source,
        *,
        summary: str,
        keys: tuple[str, str] = ("context", "answers"),
        separator: str = " ",
        chance: float | None = None,
        encoding: Literal["pair", "cut", "separate"] = "pair",
    ) -> None:
        self.benchmark, self.protocol, self.summary = benchmark, protocol, summary
        self.scoring, self.by_mean, self.sources = scoring, scoring == "mean", (source,)
        self.metrics = (Metric("accuracy", chance=chance),)
        self._questions, self._separator = questions, separator
        self._context_key, self.answers_key = keys
        self._encoding = encoding

    def read(self, files: Mapping[str, Path], encoder: RequestEncoder) -> Sequence[Example]:
        """Return one example per question."""
        return list(self._questions(files[self.sources[0].role]))

    def requests(self, example: Example, encoder: RequestEncoder) -> Sequence[ContinuationRequest]:
        """Return each answer after the context and, for `.gain`, by itself.

        Raises DataError if the right answer is unknown, or an answer has no tokens of its own.
        """
        context, answers = example.content[self._context_key], example.content[self.answers_key]
        own_tokens = self.by_mean and self._encoding != "separate"
        if example.content["label"] is None or (own_tokens and not all(answer.strip() for answer in answers)):
            what = "the right answer is unknown" if example.content["label"] is None else "an answer is empty"
            raise DataError(what, expected="answers and the right one")
        asked = [self._encode(encoder, context, f"{self._separator}{answer}", own_tokens) for answer in answers]
        if self.scoring == "gain":
            # The same tokens as after the context, so that a cut answer is compared with itself.
            least = 2 if encoder.start is None else 1  # without a start the first token has no score
            alone = [request.continuation for request in asked if len(request.continuation) >= least]
            asked += [encoder.after_start(ids) for ids in alone]
        return asked

    def values(self, example: Example, answers: Sequence[Scored]) -> list[float]:
        """Return the value of each answer; see the module."""
        if self.scoring == "gain":
            count = len(example.content[self.answers_key])
            after, alone = answers[:count], list(answers[count:])
            least = 1 if len(alone) == count else 2  # an answer of one token was not asked for by itself
            return [
                answer.total - (alone.pop(0).total if len(answer.log_probabilities) >= least else 0.0)
                for answer in after
            ]
        values = super().values(example, answers)
        if self.scoring == "per-character":
            texts = example.content[self.answers_key]
            return [value / len(text) for value, text in zip(values, texts, strict=True)]
        return values

    def _encode(self, encoder: RequestEncoder, context: str, answer: str, own_tokens: bool) -> ContinuationRequest:
        if self._encoding == "separate":
            head = encoder.encode(context)
            return encoder.cut((*head, *encoder.encode(answer)), len(head))
        return encoder.pair(context, answer, own_tokens=own_tokens, cut=self._encoding == "cut")


class ChoiceFile(TaskFile):
    """A task file of the kind `choice`."""

    kind: Literal["choice"]
    labels: str = ""
    """The task of a labels folder, which is read instead of `files`."""
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
    readings: tuple[Scoring, ...] = ("total", "mean")
    """The ways to choose; each is a protocol."""

    def tasks(self) -> list[ChoiceTask]:
        """Return a protocol for each way of scoring."""
        source = Source(
            "labels",
            names=self.files,
            kind="labels" if self.labels else "",
            settings={"task": self.labels} if self.labels else {},
            where=self.where,
        )
        return [
            AnswerChoice(
                self.benchmark,
                f"{self.benchmark}.{scoring}",
                scoring,
                self._questions,
                source,
                summary=f"{self.summary}, by {_SUMMARIES[scoring]}",
                keys=("prompt", "answers"),
                separator=self.separator,
                encoding="cut",
            )
            for scoring in self.readings
        ]

    def _questions(self, path: Path) -> Iterator[Example]:
        if path.is_dir():
            path /= "validation.jsonl"
        for count, (number, row) in enumerate(open_table(path).rows, start=1):
            content = self._content(row, number, path)
            yield Example(str(count), content, text=content["answers"][content["label"]])

    def _content(self, row: Mapping[str, Any], number: int, path: Path) -> dict[str, Any]:
        columns = self.answers
        try:
            prompt = _COLUMN.sub(lambda match: text_of(row, match[1]), self.context)
            several = texts_of(row, columns) if isinstance(columns, str) else [text_of(row, c) for c in columns]
            label = row[self.label]
        except (KeyError, TypeError) as error:
            columns_of = f"the columns of {self.benchmark}"
            raise another_format(f"{path} row {number:,}", error, columns_of) from None
        if len(several) < 2 or not all(answer.strip() for answer in several):
            raise DataError(f"{path} row {number:,} lacks an answer", expected="two or more")
        if label in (None, ""):
            raise DataError(f"{path} row {number:,} has no label", expected="the right answer")
        meaning = Labels(target="answer", first_answer=self.first_answer)
        right = meaning.target_of(Raw(("", "", *several), label, number), str(path))
        return {"prompt": prompt, "answers": several, "label": int(right or 0)}
