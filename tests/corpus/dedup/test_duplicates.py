"""Exact duplicates: which texts are equal when normalised."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.corpus.dedup.keys import normalise, text_fingerprint


@settings(deadline=None)
@given(st.text(st.one_of(st.characters(), st.sampled_from(" \t\n\u00a0\u3000\x1c\u2028a"))))
def test_normalised_text_is_its_words_with_single_spaces(text: str) -> None:
    assert normalise(text) == " ".join(unicodedata.normalize("NFC", text).casefold().split())
    assert text_fingerprint(normalise(text)) == text_fingerprint(normalise(normalise(text)))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("The  River\nran", "the river ran ", True),
        ("caf\u00e9", "cafe\u0301", True),
        ("STRASSE", "straße", True),
        ("강물", "강 물", False),
        ("ran.", "ran", False),
    ],
)
def test_what_counts_as_a_copy(one: str, other: str, same: bool) -> None:
    assert (text_fingerprint(one) == text_fingerprint(other)) is same
