import lzma
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import DataError
from headwater.evaluation import compression as module
from headwater.evaluation.compression import bits_of, byte_probabilities, windows_of, yardsticks

TEXT = st.binary(min_size=9, max_size=300) | st.text("ab \n", min_size=9, max_size=300).map(str.encode)


@settings(max_examples=60, deadline=None)
@given(TEXT, st.binary(max_size=12), st.integers(0, 7))
def test_every_distribution_is_positive_and_sums_to_one(text: bytes, before: bytes, context: int) -> None:
    for history in (before, text[:5], text[-7:]):
        windows = np.concatenate([windows_of(history + bytes([b]), context)[-1:] for b in range(256)])
        probabilities = byte_probabilities(text, windows, context)
        assert probabilities.min() > 0
        assert probabilities.sum() == pytest.approx(1, abs=1e-9)


def slow_discounts(counts: list[int]) -> list[float]:
    """Chen and Goodman's discounts of a count of 0, 1, 2, and 3 or more."""
    n1, n2, n3, n4 = (counts.count(times) for times in (1, 2, 3, 4))
    if not n1 * n2 * n3 * n4:
        return [0, 0.5, 0.5, 0.5]
    y = n1 / (n1 + 2 * n2)
    found = [1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3]
    return [0, *(min(max(discount, 0.05), times - 0.05) for times, discount in enumerate(found, 1))]


def slow_probability(text: bytes, history: bytes, byte: int, context: int) -> float:
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
            off = slow_discounts(list(counts.values()))
            shared = sum(off[min(c, 3)] for c in inside.values())
            count = inside.get(before + bytes([byte]), 0)
            probability = (count - off[min(count, 3)] + shared * probability) / sum(inside.values())
    return probability


@settings(max_examples=40, deadline=None)
@given(st.text("abc", min_size=10, max_size=120).map(str.encode), st.integers(0, 4), st.data())
def test_it_is_kneser_ney_as_the_plain_counts_give_it(text: bytes, context: int, data: st.DataObject) -> None:
    history = data.draw(st.text("abc", min_size=context, max_size=context)).encode()
    byte = data.draw(st.sampled_from(b"abcx"))
    fast = byte_probabilities(text, windows_of(history + bytes([byte]), context)[-1:], context)[0]
    assert fast == pytest.approx(slow_probability(text, history, byte, context), rel=1e-9)


def test_windows_hold_the_bytes_before_each() -> None:
    assert [f"{int(w):06x}" for w in windows_of(b"abcd", 2)] == ["000061", "006162", "616263", "626364"]


def test_yardsticks_learn_from_the_training_text() -> None:
    words = np.random.default_rng(5).choice(["stream ", "river ", "lake ", "a ", "the ", "of "], 20_000)
    text = "".join(words).encode()
    training, held_out = text[:-8_000], text[-8_000:]
    alone, after, counted = yardsticks(training, training, held_out, len(held_out))
    assert alone.bits_per_byte == len(lzma.compress(held_out, preset=9)) * 8 / 8_000
    assert after.bits_per_byte < alone.bits_per_byte
    # Six words drawn evenly, 4.5 bytes on average: 0.574 bits per byte is what the source itself holds.
    assert 0.55 < counted.bits_per_byte < 0.65


def test_a_long_held_out_text_is_measured_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"the river flows to the lake, and the stream to the river. " * 9
    held_out = b"the lake flows to the stream, as the river to the lake" * 4
    whole = bits_of(text, held_out)
    seen: list[int] = []
    measure = module.byte_probabilities
    monkeypatch.setattr(
        module,
        "byte_probabilities",
        lambda text, windows, n: seen.append(len(windows)) or measure(text, windows, n),
    )
    monkeypatch.setattr(module, "BLOCK", 50)
    monkeypatch.setattr(module, "_SEARCHED", 7)
    assert bits_of(text, held_out) == pytest.approx(whole, rel=1e-12)
    assert max(seen) == 50


def test_texts_that_are_too_short_are_named() -> None:
    with pytest.raises(DataError, match="0 bytes"):
        byte_probabilities(b"", windows_of(b"a", 0), 0)
    with pytest.raises(DataError, match="empty"):
        yardsticks(b"text", b"text", b"", 0)
