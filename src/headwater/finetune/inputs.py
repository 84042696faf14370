"""The four input transformations: how a task's texts become sequences that a language model can read.

GPT-1 (Radford et al. 2018), section 3.3 and figure 1. With start, delimiter `$` and extract tokens:

    classify    start text extract
    entail      start premise $ hypothesis extract
    similarity  start first $ second extract  and  start second $ first extract
    choice      start context question $ answer extract, one sequence an answer

A sequence that is longer than the model's context loses tokens from the end of its longest segment first, never
start, delimiter, extract, the question or an answer; all answers of a question keep the same context. Reading
tables is left to `table` and `examples`, batching to `batches`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from headwater.datasets.rows import Task
from headwater.errors import DataError, MismatchError

if TYPE_CHECKING:
    from headwater.tokenizer import Tokenizer

# How many examples are tokenized at a time: enough for the tokenizer's threads, little enough to stream.
_CHUNK = 1_024


@dataclass(frozen=True, slots=True)
class TaskExample:
    """One row as a task sees it.

    segments: (text,), (premise, hypothesis), (first, second) or (context, question, *answers). target: the class,
    the right answer (both as an index) or the score; None where not known. row: where it stood, for messages (1 is
    the first row of data).
    """

    segments: tuple[str, ...]
    target: float | None = None
    row: int = 0


class TaskTokens(NamedTuple):
    """Ids of the three tokens that fine-tuning adds."""

    start: int
    delimiter: int
    extract: int

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> TaskTokens:
        """The ids in a tokenizer that has them; raises MismatchError for one without."""
        start, delimiter, extract = tokenizer.start, tokenizer.delimiter, tokenizer.extract
        if start is None or delimiter is None or extract is None:
            raise MismatchError(
                "the tokenizer has no start, delimiter and extract tokens",
                expected="the tokenizer of a fine-tuned model, or tokenizer.with_task_tokens()",
            )
        return cls(start, delimiter, extract)


class Arranged(NamedTuple):
    """The sequences of one example, and how many tokens were cut from it."""

    sequences: list[list[int]]
    cut: int


def arrange(task: Task, segments: Sequence[Sequence[int]], tokens: TaskTokens, context: int) -> Arranged:
    """The sequences of one example from its tokenized segments, none longer than `context`.

    Raises DataError when not even a shortened example fits, as when an answer alone fills the context.
    """
    if task == "classify":
        return classification(segments[0], tokens, context)
    if task == "entail":
        return entailment(segments[0], segments[1], tokens, context)
    if task == "similarity":
        return similarity(segments[0], segments[1], tokens, context)
    return multiple_choice(segments[0], segments[1], segments[2:], tokens, context)


def classification(text: Sequence[int], tokens: TaskTokens, context: int) -> Arranged:
    """[start; text; extract]."""
    (kept,) = shorten([len(text)], _room(context - 2))
    return Arranged([[tokens.start, *text[:kept], tokens.extract]], len(text) - kept)


def entailment(premise: Sequence[int], hypothesis: Sequence[int], tokens: TaskTokens, context: int) -> Arranged:
    """[start; premise; $; hypothesis; extract]."""
    first, second = shorten([len(premise), len(hypothesis)], _room(context - 3))
    cut = len(premise) + len(hypothesis) - first - second
    return Arranged([_pair(premise[:first], hypothesis[:second], tokens)], cut)


def similarity(first: Sequence[int], second: Sequence[int], tokens: TaskTokens, context: int) -> Arranged:
    """Both orders, as there is no natural one: the two extract vectors are added before the head."""
    kept_first, kept_second = shorten([len(first), len(second)], _room(context - 3))
    cut = len(first) + len(second) - kept_first - kept_second
    first, second = first[:kept_first], second[:kept_second]
    return Arranged([_pair(first, second, tokens), _pair(second, first, tokens)], cut)


def multiple_choice(
    story: Sequence[int],
    question: Sequence[int],
    answers: Sequence[Sequence[int]],
    tokens: TaskTokens,
    context: int,
) -> Arranged:
    """[start; story; question; $; answer; extract] for each answer; only the story is ever shortened."""
    fixed = 3 + len(question) + max(len(answer) for answer in answers)
    if fixed > context:
        raise DataError(
            f"question and answer have {fixed - 3:,} tokens",
            expected=f"at most {context - 3:,}, the model's context without its three task tokens",
            repair="Shorten them, or use a model with a longer context",
        )
    kept = min(len(story), context - fixed)
    before = [*story[:kept], *question]
    return Arranged([_pair(before, answer, tokens) for answer in answers], len(story) - kept)


def shorten(lengths: Sequence[int], room: int) -> list[int]:
    """Lengths that fit into `room` together: token by token from the longest, of equal ones the last."""
    kept = list(lengths)
    excess = sum(kept) - room
    while excess > 0:
        longest = max(kept)
        ties = [place for place, length in enumerate(kept) if length == longest]
        below = max((length for length in kept if length < longest), default=0)
        if (longest - below) * len(ties) <= excess:
            for place in ties:
                kept[place] = below
            excess -= (longest - below) * len(ties)
        else:
            each, extra = divmod(excess, len(ties))
            for rank, place in enumerate(reversed(ties)):
                kept[place] -= each + (rank < extra)
            excess = 0
    return kept


def _room(room: int) -> int:
    if room < 1:
        raise DataError("the model's context has no room for a text beside the task tokens")
    return room


def _pair(first: Sequence[int], second: Sequence[int], tokens: TaskTokens) -> list[int]:
    return [tokens.start, *first, tokens.delimiter, *second, tokens.extract]


@dataclass
class Truncation:
    """How much was cut: examples cut, tokens cut, and the first row that lost some."""

    examples: int = 0
    tokens: int = 0
    first_row: int | None = None

    def add(self, cut: int, row: int) -> None:
        """Count one example."""
        if cut:
            self.examples += 1
            self.tokens += cut
            self.first_row = row if self.first_row is None else self.first_row

    def sentence(self, total: int) -> str:
        """One sentence for a person; empty when nothing was cut."""
        if not self.examples:
            return ""
        return (
            f"{self.examples:,} of {total:,} rows are longer than the model's context and were shortened, by "
            f"{self.tokens:,} tokens in all; the first is row {self.first_row:,}"
        )


@dataclass(frozen=True)
class Encoded:
    """Examples as sequences of ids, flat, so that half a million of them fit in memory.

    ids: int32, all sequences one after another; starts: (sequences + 1,) int64, where each begins; first:
    (examples + 1,) int64, the first sequence of each example; targets: (examples,) float64, NaN where unknown;
    cut: (examples,) int32, the tokens that each lost to fit the context; outputs: (tokens, layers + 1, width)
    float16, what a frozen base gives for each token (`features`).
    """

    ids: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int64]
    first: npt.NDArray[np.int64]
    targets: npt.NDArray[np.float64]
    truncation: Truncation = field(default_factory=Truncation)
    cut: npt.NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    outputs: npt.NDArray[np.float16] | None = None

    def __len__(self) -> int:
        return len(self.first) - 1

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """(sequences,) tokens of each sequence."""
        return np.diff(self.starts)

    @property
    def longest(self) -> npt.NDArray[np.int64]:
        """(examples,) tokens of each example's longest sequence."""
        if not len(self):
            return np.zeros(0, dtype=np.int64)
        return np.maximum.reduceat(self.lengths, self.first[:-1])

    def sequence(self, number: int) -> list[int]:
        """The ids of one sequence."""
        return [int(i) for i in self.ids[self.starts[number] : self.starts[number + 1]]]


def encode(
    examples: Iterable[TaskExample], task: Task, tokenizer: Tokenizer, context: int, *, name: str = ""
) -> Encoded:
    """Tokenize and arrange examples for a model with this context.

    Raises DataError naming the row that cannot be used, and the table it stands in where that has a `name`.
    """
    tokens = TaskTokens.of(tokenizer)
    parts: list[npt.NDArray[np.int32]] = []
    lengths: list[int] = []
    candidates: list[int] = []
    targets: list[float] = []
    cut: list[int] = []
    truncation = Truncation()
    for chunk in _chunks(examples):
        encoded = iter(_tokenized(chunk, task, tokenizer, name))
        flat: list[int] = []
        for example in chunk:
            segments = [next(encoded) for _ in example.segments]
            try:
                arranged = arrange(task, segments, tokens, context)
            except DataError as error:
                raise _in_row(error, example, name) from None
            truncation.add(arranged.cut, example.row)
            cut.append(arranged.cut)
            for sequence in arranged.sequences:
                flat += sequence
                lengths.append(len(sequence))
            candidates.append(len(arranged.sequences))
            targets.append(np.nan if example.target is None else example.target)
        parts.append(np.array(flat, dtype=np.int32))
    return Encoded(
        np.concatenate(parts) if parts else np.zeros(0, dtype=np.int32),
        np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]),
        np.concatenate([[0], np.cumsum(candidates, dtype=np.int64)]),
        np.array(targets, dtype=np.float64),
        truncation,
        np.array(cut, dtype=np.int32),
    )


def _tokenized(chunk: list[TaskExample], task: Task, tokenizer: Tokenizer, name: str) -> list[list[int]]:
    """Ids of all texts of the examples, one after another; raises DataError naming the row of a text without."""
    try:
        return tokenizer.encode_batch(
            [text for example in chunk for text in _texts(example, task, tokenizer.kind)]
        )
    except DataError:
        for example in chunk:
            for text in example.segments:
                try:
                    tokenizer.encode(text)
                except DataError as error:
                    raise _in_row(error, example, name) from None
        raise


def _in_row(error: DataError, example: TaskExample, name: str) -> DataError:
    where = f"{name} row {example.row:,}".lstrip()
    return DataError(f"{where}: {error.seen}", expected=error.expected, repair=error.repair)


def _texts(example: TaskExample, task: Task, kind: str) -> Iterable[str]:
    """The texts to tokenize. A byte-level tokenizer needs the space between context and question itself."""
    for place, text in enumerate(example.segments):
        glued = task == "choice" and place == 1 and kind == "gpt2" and text and example.segments[0]
        yield f" {text}" if glued else text


def _chunks(examples: Iterable[TaskExample]) -> Iterable[list[TaskExample]]:
    chunk: list[TaskExample] = []
    for example in examples:
        chunk.append(example)
        if len(chunk) == _CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
