"""Texts of another type are named errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headwater
from headwater.errors import UsageError
from headwater.inference import LanguageModel


@pytest.fixture(scope="module")
def lm() -> LanguageModel:
    return headwater.load("gpt2-mini")


@pytest.mark.parametrize("prompt", [5, None, b"a", [5], ["a", None], {"a": 1}, [["a"]], 1.5])
def test_a_prompt_that_is_not_text_is_a_named_error(lm: LanguageModel, prompt: Any) -> None:
    with pytest.raises(UsageError, match=r"the prompt is .*expected a string"):
        lm.generate(prompt, max_tokens=1)


@pytest.mark.parametrize("pairs", ["abc", 5, [("a",)], [1], [("a", None)], ["ab"], None])
def test_pairs_that_are_not_pairs_are_a_named_error(lm: LanguageModel, pairs: Any) -> None:
    with pytest.raises(UsageError, match=r"the pairs have .*two texts each"):
        lm.score(pairs)


def test_a_blank_text_that_is_a_number_is_a_named_error(lm: LanguageModel) -> None:
    wrong: Any = 5
    with pytest.raises(UsageError, match="the text is 5"):
        lm.fill(wrong)


def test_columns_and_token_ids_are_still_read(lm: LanguageModel) -> None:
    texts: Any = np.array(["a", "b"])
    assert len(lm.generate(texts, max_tokens=1)) == 2
    ids: Any = [[1, 2], np.array([3])]
    assert len(lm.generate(ids, max_tokens=1)) == 2
    pairs: Any = np.array([["a", " b"]])
    assert len(lm.score(pairs)) == 1
