import lzma
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import DataError
from headwater.evaluate.ngram import ByteNgram, windows_of
from headwater.evaluate.yardsticks import spread, yardsticks

TEXT = st.binary(min_size=9, max_size=300) | st.text("ab \n", min_size=9, max_size=300).map(str.encode)


@settings(max_examples=60, deadline=None)
@given(TEXT, st.binary(max_size=12), st.integers(0, 7))
def test_every_distribution_is_positive_and_sums_to_one(text: bytes, before: bytes, context: int) -> None:
    model = ByteNgram(text, context)
    for history in (before, text[:5], text[-7:]):
        windows = np.concatenate([windows_of(history + bytes([b]), context)[-1:] for b in range(256)])
        probabilities = model.probabilities(windows)
        assert probabilities.min() > 0
        assert probabilities.sum() == pytest.approx(1, abs=1e-9)


def slow_probability(text: bytes, history: bytes, byte: int, context: int, discounts: list[np.ndarray]) -> float:
    """Kneser–Ney spelled out: counts of the longest n-grams, left neighbours of the shorter."""
    probability = 1 / 256
    for length in range(1, context + 2):
        counts: dict[bytes, int] = defaultdict(int)
        if length == context + 1:
            for i in range(len(text) - context):
                counts[text[i : i + length]] += 1
        else:
            # The fast model counts windows cut from whole ones, so the last few starts have no short n-gram.
            for gram in {text[i : i + length + 1] for i in range(len(text) - context)}:
                counts[gram[1:]] += 1
        before = history[len(history) - (length - 1) :]
        inside = {gram: count for gram, count in counts.items() if gram[:-1] == before}
        if inside:
            off = discounts[length - 1]
            shared = sum(off[min(c, 3)] for c in inside.values())
            count = inside.get(before + bytes([byte]), 0)
            probability = (count - off[min(count, 3)] + shared * probability) / sum(inside.values())
    return probability


@settings(max_examples=40, deadline=None)
@given(st.text("abc", min_size=10, max_size=120).map(str.encode), st.integers(0, 4), st.data())
def test_it_is_kneser_ney_as_the_plain_counts_give_it(text: bytes, context: int, data: st.DataObject) -> None:
    model = ByteNgram(text, context)
    history = data.draw(st.text("abc", min_size=context, max_size=context)).encode()
    byte = data.draw(st.sampled_from(b"abcx"))
    fast = model.probabilities(windows_of(history + bytes([byte]), context)[-1:])[0]
    discounts = [level.discounts for level in model._levels]
    assert fast == pytest.approx(slow_probability(text, history, byte, context, discounts), rel=1e-9)


def test_windows_hold_the_bytes_before_each() -> None:
    assert [f"{int(w):06x}" for w in windows_of(b"abcd", 2)] == ["000061", "006162", "616263", "626364"]


def test_yardsticks_learn_from_the_training_text() -> None:
    words = np.random.default_rng(5).choice(["stream ", "river ", "lake ", "a ", "the ", "of "], 20_000)
    text = "".join(words).encode()
    training, held_out = text[:-8_000], text[-8_000:]
    alone, after, ngram = yardsticks(training, held_out)
    assert alone.bits_per_byte == len(lzma.compress(held_out, preset=9)) * 8 / 8_000
    assert after.bits_per_byte < alone.bits_per_byte
    # Six words drawn evenly, 4.5 bytes on average: 0.574 bits a byte is what the source itself holds.
    assert 0.55 < ngram.bits_per_byte < 0.65


def test_a_long_text_is_sampled_evenly() -> None:
    text = bytes(range(256)) * 4_096
    sample = spread(text, 200_000)
    assert 190_000 < len(sample) <= 200_000
    assert sample[:1000] == text[:1000]
    assert spread(text, len(text)) == text


def test_texts_that_are_too_short_are_named() -> None:
    with pytest.raises(DataError, match="0 bytes"):
        ByteNgram(b"", 0)
    with pytest.raises(DataError, match="empty"):
        yardsticks(b"text", b"")
