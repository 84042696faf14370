"""A text has one Unicode form, whatever program wrote it."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.reading import compose, sort_marks


@pytest.mark.parametrize("text", ["긍정", "각하", "é", "ǖ", "Å", "plain"])
def test_both_forms_of_a_text_become_one(text: str) -> None:
    assert compose(unicodedata.normalize("NFD", text)) == text == compose(text)


@pytest.mark.parametrize("text", ["①", "ﬁ", "ｶ", "²", "…", "ᄀ", "ㄱ"])
def test_characters_that_only_look_alike_stay_distinct(text: str) -> None:
    assert compose(text) == text


@given(st.text(st.sampled_from("ae\u0301\u0327\u0323\u0344\u0f73\u0f71\u0f74ệ안\u3099か!"), max_size=90))
def test_sorted_marks_have_the_same_normal_forms(text: str) -> None:
    for run in (2, 30):
        assert unicodedata.normalize("NFC", sort_marks(text, run)) == unicodedata.normalize("NFC", text)
        assert unicodedata.normalize("NFD", sort_marks(text, run)) == unicodedata.normalize("NFD", text)
    assert compose(text) == unicodedata.normalize("NFC", text)


def test_a_megabyte_of_marks_is_composed() -> None:
    """Normalising them in the order of the text takes minutes, and holds the interpreter."""
    assert compose("x" + "\u0301\u0323" * 500_000) == "x" + "\u0323" * 500_000 + "\u0301" * 500_000
