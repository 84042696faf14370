"""Compare tokenizers on the same text: how many tokens they need, what they split, which tokens they never use.

Decided here: figures are for the whole text and by script; a word's script is that of its first letter, from its
Unicode name. A word is text between white space; it is split if it takes more than one token.
"""

from __future__ import annotations

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from headwater.errors import DataError
from headwater.tokenizer.tokenizer import Tokenizer

# Words of Unicode character names that are not scripts: LATIN SMALL LETTER A, but FULLWIDTH LATIN …
_NOT_SCRIPTS = {"FULLWIDTH", "HALFWIDTH", "MODIFIER", "MATHEMATICAL", "SUPERSCRIPT", "SUBSCRIPT"}
_JOINED = {"CJK": "Han", "HIRAGANA": "Japanese kana", "KATAKANA": "Japanese kana"}


@dataclass(frozen=True, slots=True)
class ScriptFigures:
    """The words of one script: UTF-8 bytes without spaces, tokens, words, words of several tokens, and ratios."""

    bytes: int
    tokens: int
    words: int
    split_words: int
    bytes_per_token: float
    split_share: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """One tokenizer's figures for a text; `scripts` are in order of their bytes."""

    name: str
    vocabulary_size: int
    bytes: int
    tokens: int
    unused_share: float
    scripts: dict[str, ScriptFigures]
    bytes_per_token: float
    split_share: float


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


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
    scripts = _by_script(tokenizer, words)
    size = len(text.encode())
    return Comparison(
        name=name,
        vocabulary_size=tokenizer.vocabulary_size,
        bytes=size,
        tokens=len(ids),
        unused_share=float((used[ordinary] == 0).mean()),
        scripts=scripts,
        bytes_per_token=_ratio(size, len(ids)),
        split_share=_ratio(sum(figures.split_words for figures in scripts.values()), words.total()),
    )


def _by_script(tokenizer: Tokenizer, words: Counter[str]) -> dict[str, ScriptFigures]:
    totals: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for word, tokens in zip(words, _token_counts(tokenizer, list(words)), strict=True):
        count = words[word]
        figures = (len(word.encode()), tokens, 1, int(tokens > 1))
        totals[script_of(word)] = [t + count * f for t, f in zip(totals[script_of(word)], figures, strict=True)]
    ordered = sorted(totals.items(), key=lambda item: (-item[1][0], item[0]))
    return {
        script: ScriptFigures(size, tokens, count, split, _ratio(size, tokens), _ratio(split, count))
        for script, (size, tokens, count, split) in ordered
    }


def _token_counts(tokenizer: Tokenizer, words: list[str]) -> list[int]:
    """Return how many tokens each word has behind another one, without a space that is a token of its own."""
    if tokenizer.kind in ("gpt1", "wordpiece"):  # their words do not depend on the spaces around them
        return np.diff(tokenizer.encode_array(words)[1]).tolist()
    first = len(tokenizer.encode(words[0]))
    counts = []
    for ids in tokenizer.encode_batch([f"{words[0]} {word}" for word in words]):
        alone = tokenizer.token_bytes(ids[first]) == b" " if len(ids) > first + 1 else False
        counts.append(len(ids) - first - alone)
    return counts


def script_of(word: str) -> str:
    """Return the script of a word's first letter ("Latin", "Hangul", …), or "numbers and signs"."""
    for character in word:
        if unicodedata.category(character)[0] == "L":
            return _script_of_letter(character)
    return "numbers and signs"


@lru_cache(maxsize=1 << 16)
def _script_of_letter(letter: str) -> str:
    names = [n for n in unicodedata.name(letter, "OTHER").split() if n not in _NOT_SCRIPTS]
    first = names[0].split("-")[0] if names else "OTHER"
    return _JOINED.get(first, first.capitalize())
