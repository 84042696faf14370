"""Count what a text's tokens do not spell: GPT-1's lose capitals and white space, others unknown characters.

Bits per byte and perplexity divide by the whole text. If a part of it was never predicted, they are too good, and
cannot be compared with those of a tokenizer that loses nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from headwater.reading import compose
from headwater.tokenizer.tokenizer import Tokenizer


class LostText(NamedTuple):
    """Characters of a text, and how many of them its tokens do not spell, by kind."""

    characters: int = 0
    capitals: int = 0
    white_space: int = 0
    other: int = 0

    @property
    def lost(self) -> int:
        """All characters that are lost."""
        return self.capitals + self.white_space + self.other

    def plus(self, more: LostText) -> LostText:
        """Return the sum of both."""
        return LostText(*(mine + theirs for mine, theirs in zip(self, more, strict=True)))

    def shares(self) -> dict[str, float]:
        """Return the share of the characters that is lost, and the share of each kind; empty if none is."""
        kinds = {
            "lost": self.lost,
            "capitals": self.capitals,
            "white space": self.white_space,
            "other": self.other,
        }
        return {name: count / self.characters for name, count in kinds.items() if count}


def lost_text(tokenizer: Tokenizer, text: str, ids: Sequence[int]) -> LostText:
    """Return what of `text` its ids do not spell; nothing for kind gpt2, which has every byte.

    Characters are counted, not aligned: one is lost if the tokens spell it less often than the text has it. Both
    texts are compared in composed form.
    """
    if tokenizer.kind == "gpt2":
        return LostText(len(text))
    unknown = tokenizer.unknown
    spelled = tokenizer.decode(token for token in ids if token != unknown)
    if spelled == text:
        return LostText(len(text))
    text = compose(text)
    missing = Counter(text) - Counter(compose(spelled))
    capitals = sum(count for character, count in missing.items() if character.lower() != character)
    spaces = sum(count for character, count in missing.items() if character.isspace())
    return LostText(len(text), capitals, spaces, missing.total() - capitals - spaces)
