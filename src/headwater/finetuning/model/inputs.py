"""The four input transformations: how a task's texts become sequences that a language model can read.

GPT-1 (Radford et al. 2018), section 3.3 and figure 1. With start, delimiter `$` and extract tokens:

    classify    start text extract
    entail      start premise $ hypothesis extract
    similarity  start first $ second extract  and  start second $ first extract
    choice      start context question $ answer extract, one sequence per answer

A sequence longer than the model's context loses tokens from the end of its longest segment first, never start,
delimiter, extract, the question or an answer; all answers of a question keep the same context. `rows.read` reads
tables, `batches` makes batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headwater.errors import DataError
from headwater.finetuning.rows.row import Raw, TaskName

if TYPE_CHECKING:
    from headwater.tokenizer import Tokenizer

# Rows and characters that are tokenized at a time: enough for the tokenizer's threads, few enough to stream.
_CHUNK, _CHUNK_CHARACTERS = 1_024, 1 << 23
# A text is cut to this many characters before it is tokenized, or to this many for each token of the context.
_TEXT_CHARACTERS, _TOKEN_CHARACTERS = 1 << 20, 256


class Frame(NamedTuple):
    """Ids before, between and after texts."""

    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]

    def pair(self, first: Sequence[int], second: Sequence[int]) -> list[int]:
        """Return the sequence of two texts."""
        return [*self.before, *first, *self.between, *second, *self.after]


class Arranged(NamedTuple):
    """The sequences of one row, and how many tokens were cut from it."""

    sequences: list[list[int]]
    cut: int


def arrange(
    task: TaskName, segments: Sequence[Sequence[int]], frame: Frame, context: int, *, apart: bool = False
) -> Arranged:
    """Return the sequences of one row from its tokenized segments, none longer than `context`.

    apart: each text is a sequence of its own, as the pooled head reads it.

    Raises DataError if not even a shortened row fits, as when an answer alone fills the context.
    """
    if apart:
        alone = [arrange("classify", [text], frame, context) for text in segments]
        return Arranged([part.sequences[0] for part in alone], sum(part.cut for part in alone))
    if task == "choice":
        return _arrange_answers(segments[0], segments[1], segments[2:], frame, context)
    free = context - len(frame.before) - len(frame.after) - (len(frame.between) if len(segments) > 1 else 0)
    if free < 1:
        raise DataError("the model's context is too short for a text and the task tokens")
    lengths = shorten([len(text) for text in segments], free)
    first, *second = (text[:length] for text, length in zip(segments, lengths, strict=True))
    cut = sum(map(len, segments)) - sum(lengths)
    if task == "classify":
        return Arranged([[*frame.before, *first, *frame.after]], cut)
    # Two similar texts have no natural order: both are read, and the two extract vectors are added before the
    # head.
    orders = [(first, second[0]), (second[0], first)] if task == "similarity" else [(first, second[0])]
    return Arranged([frame.pair(*order) for order in orders], cut)


def _arrange_answers(
    story: Sequence[int],
    question: Sequence[int],
    answers: Sequence[Sequence[int]],
    frame: Frame,
    context: int,
) -> Arranged:
    fixed = 3 + len(question) + max(len(answer) for answer in answers)
    if fixed > context:
        raise DataError(
            f"question and answer have {fixed - 3:,} tokens",
            expected=f"at most {context - 3:,}, the model's context without its three task tokens",
            repair="Shorten them, or use a model with a longer context",
        )
    length = min(len(story), context - fixed)
    before = [*story[:length], *question]
    return Arranged([frame.pair(before, answer) for answer in answers], len(story) - length)


def shorten(lengths: Sequence[int], total: int) -> list[int]:
    """Return lengths that sum to at most `total`: cut tokens one by one from the longest, the last of equals."""
    shortened = list(lengths)
    excess = sum(shortened) - total
    while excess > 0:
        longest = max(shortened)
        ties = [index for index, length in enumerate(shortened) if length == longest]
        below = max((length for length in shortened if length < longest), default=0)
        taken = min(excess, (longest - below) * len(ties))
        each, extra = divmod(taken, len(ties))
        for rank, index in enumerate(reversed(ties)):
            shortened[index] -= each + (rank < extra)
        excess -= taken
    return shortened


@dataclass(frozen=True)
class Encoded:
    """Rows as sequences of ids, flat, so that half a million of them fit in memory.

    ids: int32, all sequences one after another; starts: (sequences + 1,) int64, where each begins; first:
    (examples + 1,) int64, the first sequence of each example; targets: (examples,) float64, or
    (examples, outputs) of several labels, NaN where unknown; cut: (examples,) int32, the tokens that each lost to
    fit the context; texts: those of each example, which TF-IDF reads.
    """

    ids: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int64]
    first: npt.NDArray[np.int64]
    targets: npt.NDArray[np.float64]
    cut: npt.NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    texts: Sequence[tuple[str, ...]] = ()

    def __len__(self) -> int:
        return len(self.first) - 1

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        """(examples,) whether each has a target."""
        known = np.isfinite(self.targets)
        return known if known.ndim == 1 else np.asarray(known.all(axis=1))

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
        """Return the ids of one sequence."""
        return self.ids[self.starts[number] : self.starts[number + 1]].tolist()

    def take(self, rows: npt.NDArray[Any]) -> Encoded:
        """Return some of the examples, by their numbers or by a mask; this object for all of them in order."""
        every = np.arange(len(self))
        rows = every[rows]
        if np.array_equal(rows, every):
            return self
        sequences = _ranges(self.first, rows)
        return Encoded(
            ids=self.ids[_ranges(self.starts, sequences)],
            starts=np.concatenate([[0], np.cumsum(self.lengths[sequences])]),
            first=np.concatenate([[0], np.cumsum(np.diff(self.first)[rows])]),
            targets=self.targets[rows],
            cut=self.cut[rows],
            texts=[self.texts[row] for row in rows] if self.texts else (),
        )


def _ranges(starts: npt.NDArray[np.int64], chosen: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the numbers from starts[n] up to starts[n + 1] for each chosen n, one range after another."""
    lengths = starts[chosen + 1] - starts[chosen]
    ends = np.cumsum(lengths)
    return np.repeat(starts[chosen] - ends + lengths, lengths) + np.arange(ends[-1] if len(ends) else 0)


def encode(
    rows: Iterable[Raw],
    task: TaskName,
    tokenizer: Tokenizer,
    context: int,
    *,
    targets: npt.NDArray[np.float64] | None = None,
    name: str = "",
    frame: Frame | None = None,
) -> Encoded:
    """Tokenize and arrange rows for a model with this context; `targets` are theirs, by default unknown.

    frame: each text is a sequence of its own, with these tokens around it in place of the task tokens.

    Raises DataError naming the row that cannot be used, and its table if that has a `name`.
    """
    around = frame or Frame(*((token,) for token in tokenizer.task_tokens))
    ids = [np.zeros(0, dtype=np.int32)]
    lengths, candidates = [0], [0]
    cut: list[int] = []
    texts: list[tuple[str, ...]] = []
    iterator = iter(rows)
    characters = max(_TEXT_CHARACTERS, _TOKEN_CHARACTERS * context)
    while chunk := _chunk(iterator, characters):
        tokenized = iter(_tokenized(chunk, task, tokenizer, name))
        flat: list[int] = []
        for row in chunk:
            segments = [next(tokenized) for _ in row.segments]
            try:
                arranged = arrange(task, segments, around, context, apart=frame is not None)
                if not (all(arranged.sequences) or row.is_empty(task)):
                    raise DataError("the tokenizer has no token for the text")
            except DataError as error:
                raise _in_row(error, row, name) from None
            # A row without text, which gets no prediction, has a token too.
            sequences = [sequence or [0] for sequence in arranged.sequences]
            flat += chain.from_iterable(sequences)
            lengths += map(len, sequences)
            candidates.append(len(sequences))
            cut.append(arranged.cut)
            texts.append(row.segments)
        ids.append(np.array(flat, dtype=np.int32))
    return Encoded(
        ids=np.concatenate(ids),
        starts=np.cumsum(lengths, dtype=np.int64),
        first=np.cumsum(candidates, dtype=np.int64),
        targets=np.full(len(cut), np.nan) if targets is None else targets,
        cut=np.array(cut, dtype=np.int32),
        texts=texts,
    )


def _chunk(rows: Iterator[Raw], characters: int) -> list[Raw]:
    """Return the next rows to tokenize, with texts of at most so many characters; empty at the end."""
    chunk: list[Raw] = []
    size = 0
    while len(chunk) < _CHUNK and size < _CHUNK_CHARACTERS and (row := next(rows, None)) is not None:
        cut = tuple(text[:characters] for text in row.segments)
        chunk.append(row if cut == row.segments else replace(row, segments=cut))
        size += sum(map(len, cut))
    return chunk


def _tokenized(chunk: list[Raw], task: TaskName, tokenizer: Tokenizer, name: str) -> list[list[int]]:
    """Return the ids of all texts of the rows, in order; raise DataError naming the row of an invalid text."""
    try:
        # The context of a choice and its question are joined, so a byte-level tokenizer needs a space in between.
        joined = tokenizer.decode([*chain(*tokenizer.encode_batch(["a", "b"], None))]) if task == "choice" else " "
        spaced = not any(map(str.isspace, joined))
        texts = [
            f" {text}" if spaced and index == 1 and text and row.segments[0] else text
            for row in chunk
            for index, text in enumerate(row.segments)
        ]
        return tokenizer.encode_batch(texts, None)
    except DataError:
        for row in chunk:
            for text in row.segments:
                try:
                    tokenizer.encode(text, None)
                except DataError as error:
                    raise _in_row(error, row, name) from None
        raise


def _in_row(error: DataError, row: Raw, name: str) -> DataError:
    where = f"{name} row {row.row:,}".lstrip()
    return DataError(f"{where}: {error.seen}", expected=error.expected, repair=error.repair)


def truncation(part: str, rows: Sequence[Raw], cut: npt.NDArray[np.int32]) -> list[str]:
    """Return a note on the rows of a part that lost tokens; cut: (rows,), the number of tokens."""
    shortened = np.flatnonzero(cut)
    if not len(shortened):
        return []
    return [
        f"{part}: {len(shortened):,} of {len(rows):,} rows are longer than the model's context and were "
        f"shortened, by {cut.sum():,} tokens in all; the first is row {rows[shortened[0]].row:,}"
    ]
