"""A text in capitals is removed, under a rule with a name."""

import pytest

from headwater.corpus import Document


@pytest.mark.parametrize(
    ("text", "expected"), [("ALL OF IT IS LOUD.", "capitals"), ("NASA is not.", ""), ("1, 2", "")]
)
def test_a_text_in_capitals_is_removed(text: str, expected: str) -> None:
    from headwater.corpus.filters.shouting import Shouting

    outcome = Shouting().apply(Document(id="a", text=text))
    assert (outcome if isinstance(outcome, str) else "") == expected
