"""Copies of a text have one key."""

from __future__ import annotations

import unicodedata

import pytest

from headwater.reading import copy_key


@pytest.mark.parametrize(
    "copy",
    [
        "the café isn't open",
        " The  CAFÉ\tisn’t open. ",
        unicodedata.normalize("NFD", "«The Café isn't open!»"),
        "The café isn't\nopen…",
    ],
)
def test_copies_have_one_key(copy: str) -> None:
    assert copy_key(copy) == "the café isn t open"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (":)", ":("),
        ("2 + 2", "2 2"),
        ("3.5", "35"),
        ("good 😀", "good 😡"),
        ("로마", "로미"),
        ("कि", "की"),
        ("", "."),
    ],
)
def test_other_texts_have_other_keys(first: str, second: str) -> None:
    assert copy_key(first) != copy_key(second)
