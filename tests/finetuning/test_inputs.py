"""The four transformations of figure 1, and what is cut when a text is too long."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import DataError
from headwater.finetuning import Encoded, Raw
from headwater.finetuning.model.inputs import Frame, arrange, encode, shorten
from headwater.tokenizer import TaskTokens, Tokenizer

S, D, E = TaskTokens(900, 901, 902)
TOKENS = Frame((S,), (D,), (E,))
ids = st.lists(st.integers(0, 99), max_size=30)


def shorten_plainly(lengths: list[int], room: int) -> list[int]:
    kept = list(lengths)
    while sum(kept) > room:
        longest = max(kept)
        place = max(i for i, length in enumerate(kept) if length == longest)
        kept[place] -= 1
    return kept


@given(st.lists(st.integers(0, 40), min_size=1, max_size=5), st.integers(0, 90))
def test_shortening_equals_taking_one_token_at_a_time(lengths: list[int], room: int) -> None:
    assert shorten(lengths, room) == shorten_plainly(lengths, room)


def test_token_order_is_the_papers() -> None:
    a, b, c, d = [1, 2], [3], [4, 5], [6]
    assert arrange("classify", [a], TOKENS, 99).sequences == [[S, 1, 2, E]]
    assert arrange("entail", [a, b], TOKENS, 99).sequences == [[S, 1, 2, D, 3, E]]
    assert arrange("similarity", [a, b], TOKENS, 99).sequences == [[S, 1, 2, D, 3, E], [S, 3, D, 1, 2, E]]
    assert arrange("choice", [a, b, c, d], TOKENS, 99).sequences == [
        [S, 1, 2, 3, D, 4, 5, E],
        [S, 1, 2, 3, D, 6, E],
    ]


@given(ids, ids, st.lists(ids, min_size=2, max_size=4), st.integers(8, 40))
def test_sequences_fit_the_context_and_only_the_story_is_cut(
    story: list[int], question: list[int], answers: list[list[int]], context: int
) -> None:
    fixed = 3 + len(question) + max(map(len, answers))
    if fixed > context:
        with pytest.raises(DataError, match="question and answer"):
            arrange("choice", [story, question, *answers], TOKENS, context)
        return
    arranged = arrange("choice", [story, question, *answers], TOKENS, context)
    kept = len(story) - arranged.cut
    assert arranged.cut == max(0, len(story) + fixed - context)
    for sequence, answer in zip(arranged.sequences, answers, strict=True):
        assert sequence == [S, *story[:kept], *question, D, *answer, E]
        assert len(sequence) <= context
    for task in ("entail", "similarity"):
        for sequence in arrange(task, [story, question], TOKENS, context).sequences:
            assert len(sequence) <= context
            assert (sequence[0], sequence[-1], sequence.count(D)) == (S, E, 1)


def test_encoding_counts_cuts_and_names_a_row_that_cannot_fit(tokenizer: Tokenizer) -> None:
    extended = tokenizer.with_task_tokens()
    texts = ["a", "story " * 50, "the plot"]
    rows = [Raw((text,), None, number) for number, text in enumerate(texts, 1)]
    start, _, extract = extended.task_tokens
    encoded = encode(rows, "classify", extended, 20)
    assert encoded.lengths.max() == 20
    assert encoded.cut.tolist() == [0, len(tokenizer.encode(texts[1])) - 18, 0]
    assert encoded.sequence(0) == [start, *tokenizer.encode("a"), extract]
    with pytest.raises(DataError, match="row 7"):
        encode([Raw(("", "", "x " * 90, "y"), None, 7)], "choice", extended, 20)


def test_a_space_separates_context_and_question(tokenizer: Tokenizer) -> None:
    extended = tokenizer.with_task_tokens()
    encoded = encode([Raw(("the film", "was it", "a", "b"))], "choice", extended, 40)
    before = encoded.sequence(0)[1 : encoded.sequence(0).index(extended.task_tokens.delimiter)]
    assert tokenizer.decode(before) == "the film was it"


def test_a_row_that_cannot_be_used_is_named_with_its_table(tokenizer: Tokenizer) -> None:
    extended = tokenizer.with_task_tokens()
    good = Raw(("", "film", "a", "b"), row=1)
    long = Raw(("", "the film " * 60, "good", "bad"), row=2)
    unpaired = Raw(("", "the \ud83d film", "good", "bad"), row=3)
    for row in (long, unpaired):
        with pytest.raises(DataError, match=f"^answers.jsonl row {row.row}: "):
            encode([good, row], "choice", extended, 40, name="answers.jsonl")


@given(st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=3), min_size=1, max_size=6), st.data())
def test_taken_examples_have_their_sequences(shape: list[list[int]], data: st.DataObject) -> None:
    lengths = [length for example in shape for length in example]
    encoded = Encoded(
        ids=np.arange(sum(lengths), dtype=np.int32),
        starts=np.cumsum([0, *lengths]),
        first=np.cumsum([0, *map(len, shape)]),
        targets=np.arange(len(shape), dtype=float),
        cut=np.arange(len(shape), dtype=np.int32),
    )
    rows = data.draw(st.lists(st.integers(0, len(shape) - 1)))
    taken = encoded.take(np.array(rows, dtype=np.intp))
    expected = [encoded.sequence(n) for row in rows for n in range(encoded.first[row], encoded.first[row + 1])]
    assert [taken.sequence(n) for n in range(len(taken.lengths))] == expected
    assert taken.targets.tolist() == rows
