"""Exact duplicates: equal when normalised, and the first one stays."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.corpus.duplicates import ExactDuplicates, normalise, text_fingerprint
from headwater.corpus.folder import Document


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


def test_the_first_copy_stays_in_order() -> None:
    step = ExactDuplicates()
    documents = [Document(id=str(i), text=text) for i, text in enumerate(["a", "b", "A ", "c", " b", "a"])]
    assert [document.id for document in step(documents)] == ["0", "1", "3"]
    assert step.removed == 3
