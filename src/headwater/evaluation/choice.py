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
from statistics import fmean
from typing import Any, Literal

from headwater.errors import DataError
from headwater.evaluation.data_files import Source, another_format, text_of, texts_of
from headwater.evaluation.protocols import Answer, Example, Metric, Scored, Task, TaskFile
from headwater.evaluation.request_encoder import ContinuationRequest, RequestEncoder
from headwater.finetuning import Labels, Raw
from headwater.reading import open_table

Scoring = Literal["total", "mean", "per-character", "gain"]
# Of each way of scoring: what `summary` says of it.
SUMMARIES: Mapping[Scoring, str] = {
    "total": "log-probability",
    "mean": "mean token log-probability",
    "per-character": "log-probability per character",
    "gain": "log-probability gained from the context",
}
_COLUMN = re.compile(r"\{([^{}]+)\}")
# Reads the questions of a file; their content has a context, answers, and the index of the right one as "label".
Questions = Callable[[Path], Iterable[Example]]


# Returns what is asked of the model: the answers of an example, in their order.
Ask = Callable[[Example, RequestEncoder], list[ContinuationRequest]]


class Choice(Task):
    """A protocol that chooses the most likely of several answers, on the questions of one file.

    scoring: see the module. ask: by default each answer after the context.
    separator: the text between the two, a space by default.
    cut: whether the end of an answer that is longer than the model's context is cut.
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
        ask: Ask | None = None,
        separator: str = " ",
        cut: bool = False,
    ) -> None:
        self.benchmark, self.protocol, self.summary = benchmark, protocol, summary
        self.scoring, self.sources = scoring, (source,)
        self.metrics = (Metric("accuracy"),)
        self._questions, self._ask, self._separator = questions, ask or self._answers, separator
        self._cut = cut

    def read(self, files: Mapping[str, Path], encoder: RequestEncoder) -> Sequence[Example]:
        """Return one example per question."""
        return list(self._questions(files[self.sources[0].role]))

    def requests(self, example: Example, encoder: RequestEncoder) -> Sequence[ContinuationRequest]:
        """Return what is asked for each answer and, for `.gain`, each answer by itself.

        Raises DataError if the right answer is unknown, or an answer has no tokens of its own.
        """
        if example.content["label"] is None:
            raise DataError("the right answer is unknown", expected="answers and the right one")
        requests = self._ask(example, encoder)
        if self.scoring == "gain":
            # Without a start the first token has no score.
            least = 2 if encoder.tokenizer.start_of_text is None else 1
            # The same tokens as after the context, so that a cut answer is compared with itself.
            alone = [request.continuation for request in requests if len(request.continuation) >= least]
            requests += [encoder.after_start(ids) for ids in alone]
        return requests

    def chance(self, metric: str, examples: Sequence[Example]) -> float:
        """Return the accuracy of random guessing, the mean over the examples."""
        return fmean(1 / len(example.content["answers"]) for example in examples)

    def score(self, example: Example, answers: Sequence[Answer], encoder: RequestEncoder) -> dict[str, Any]:
        """Return whether the chosen answer, the first one with the largest value, is the right one."""
        values = self._values(example, [answer for answer in answers if isinstance(answer, Scored)])
        chosen, label = max(range(len(values)), key=values.__getitem__), example.content["label"]
        return {"accuracy": float(chosen == label), "chosen": chosen, "label": label}

    def _values(self, example: Example, answers: Sequence[Scored]) -> list[float]:
        """Return the value of each answer; see the module."""
        if self.scoring == "mean":
            return [answer.mean for answer in answers]
        if self.scoring == "gain":
            count = len(example.content["answers"])
            after, alone = answers[:count], list(answers[count:])
            least = 1 if len(alone) == count else 2  # an answer of one token was not asked for by itself
            return [
                answer.total - (alone.pop(0).total if len(answer.log_probabilities) >= least else 0.0)
                for answer in after
            ]
        totals = [answer.total for answer in answers]
        if self.scoring == "per-character":
            texts = example.content["answers"]
            return [total / len(text) for total, text in zip(totals, texts, strict=True)]
        return totals

    def _answers(self, example: Example, encoder: RequestEncoder) -> list[ContinuationRequest]:
        """Return each answer after the context."""
        context, answers = example.content["context"], example.content["answers"]
        own_tokens = self.scoring == "mean"
        if own_tokens and not all(answer.strip() for answer in answers):
            raise DataError("an answer is empty", expected="answers and the right one")
        texts = [f"{self._separator}{answer}" for answer in answers]
        return [encoder.pair(context, text, own_tokens=own_tokens, cut=self._cut) for text in texts]


class ChoiceFile(TaskFile):
    """A task file of the kind `choice`."""

    kind: Literal["choice"]
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

    def tasks(self) -> list[Choice]:
        """Return a protocol for each way of scoring."""
        source = Source("rows", names=self.files, where=self.where)
        return [
            Choice(
                self.benchmark,
                f"{self.benchmark}.{scoring}",
                scoring,
                self._questions,
                source,
                summary=f"{self.summary}, by {SUMMARIES[scoring]}",
                separator=self.separator,
                cut=True,
            )
            for scoring in self.readings
        ]

    def _questions(self, path: Path) -> Iterator[Example]:
        for count, (number, row) in enumerate(open_table(path).rows, start=1):
            content = self._content(row, number, path)
            text = f"{content['context']}{self.separator}{content['answers'][content['label']]}"
            yield Example(str(count), content, text=text)

    def _content(self, row: Mapping[str, Any], number: int, path: Path) -> dict[str, Any]:
        columns = self.answers
        try:
            context = _COLUMN.sub(lambda match: text_of(row, match[1]), self.context)
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
        return {"context": context, "answers": several, "label": int(right or 0)}
