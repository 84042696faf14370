"""Compare tokenizers on the same text: how many tokens they need, what they split, which tokens they never use.

A word is text between white space; it is split if it takes more than one token.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headwater.errors import DataError
from headwater.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Comparison:
    """One tokenizer's figures for a text."""

    name: str
    vocabulary_size: int
    bytes: int
    tokens: int
    unused_share: float
    bytes_per_token: float
    split_share: float


def compare(tokenizers: Sequence[tuple[str, Tokenizer]], text: str) -> list[Comparison]:
    """Return each named tokenizer's figures for `text`; raise DataError for a text without words."""
    words = Counter(text.split())
    if not words:
        raise DataError("the text to compare on has no words", expected="text")
    return [_describe(name, tokenizer, text, words) for name, tokenizer in tokenizers]


def _describe(name: str, tokenizer: Tokenizer, text: str, words: Counter[str]) -> Comparison:
    ids, _ = tokenizer.encode_array([text])
    used = np.bincount(ids, minlength=tokenizer.vocabulary_size)
    special = set(tokenizer.special_tokens.values())
    ordinary = [i for i in range(tokenizer.vocabulary_size) if i not in special]
    counts = zip(words.values(), _token_counts(tokenizer, list(words)), strict=True)
    size = len(text.encode())
    return Comparison(
        name=name,
        vocabulary_size=tokenizer.vocabulary_size,
        bytes=size,
        tokens=len(ids),
        unused_share=float((used[ordinary] == 0).mean()),
        bytes_per_token=size / len(ids) if len(ids) else 0.0,
        split_share=sum(count for count, tokens in counts if tokens > 1) / words.total(),
    )


def _token_counts(tokenizer: Tokenizer, words: list[str]) -> list[int]:
    """Return how many tokens each word has behind another one, without a space that is a token of its own."""
    if tokenizer.kind == "gpt1":  # its words do not depend on the spaces around them
        return np.diff(tokenizer.encode_array(words)[1]).tolist()
    first = len(tokenizer.encode(words[0]))
    counts = []
    for ids in tokenizer.encode_batch([f"{words[0]} {word}" for word in words]):
        alone = tokenizer.token_bytes(ids[first]) == b" " if len(ids) > first + 1 else False
        counts.append(len(ids) - first - alone)
    return counts
