"""A text has one Unicode form, whatever program wrote it."""

from __future__ import annotations

import unicodedata

import pytest

from headwater.reading import compose


@pytest.mark.parametrize("text", ["긍정", "각하", "é", "ǖ", "Å", "plain"])
def test_both_forms_of_a_text_become_one(text: str) -> None:
    assert compose(unicodedata.normalize("NFD", text)) == text == compose(text)


@pytest.mark.parametrize("text", ["①", "ﬁ", "ｶ", "²", "…", "ᄀ", "ㄱ"])
def test_characters_that_only_look_alike_stay_distinct(text: str) -> None:
    assert compose(text) == text
