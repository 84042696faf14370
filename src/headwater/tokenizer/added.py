"""Tokens that were added to a vocabulary: found in a text before the rest of it is encoded.

Each is one token wherever it occurs. A special one (the end of a text, a speaker) is plain text unless the caller
allows it. `lstrip` and `rstrip` include the white space next to it, `single_word` requires a border of words on
both sides, and a `normalized` one is also found where only the cleaning of the text (such as lower case) makes it.
The `tokenizers` library searches, so that the rules are those of every other program.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from headwater.tokenizer.vocabulary import AddedToken, join_surrogates

# A text without added tokens is one piece with this id; added tokens follow it.
_PIECE = 0


class Segment(NamedTuple):
    """A part of a text: ordinary text, or an added token's id."""

    text: str
    token: int | None


class Splitter:
    """Splits texts at some added tokens; `normalizer` is the library's step that cleans texts of this kind."""

    def __init__(
        self, added: Sequence[AddedToken], ids: Mapping[str, int], normalizer: Mapping[str, Any] | None = None
    ) -> None:
        import json

        from tokenizers import Tokenizer

        self._ids = [ids[token.content] for token in added]
        # Without cleaning, a text without the characters of a token does not contain it.
        exact = normalizer is None or not any(token.normalized for token in added)
        self._contents = [token.content for token in added] if exact else None
        entries = [
            {"id": number, **token._asdict(), "special": False} for number, token in enumerate(added, _PIECE + 1)
        ]
        model = {"type": "WordLevel", "vocab": {"": _PIECE}, "unk_token": ""}
        steps = {"pre_tokenizer": None, "post_processor": None, "decoder": None}
        content = {"version": "1.0", "added_tokens": entries, "normalizer": normalizer, **steps, "model": model}
        self._library = Tokenizer.from_str(json.dumps(content))

    def split(self, text: str) -> list[Segment]:
        """Return the parts of a text in order; an empty text has none."""
        if self._contents is not None and not any(content in text for content in self._contents):
            return [Segment(text, None)]
        if not text.isascii():
            text = join_surrogates(text)
        # The library takes no lone surrogates: the copy has one other character for each.
        encoding = self._library.encode(text.encode("utf-8", "replace").decode(), add_special_tokens=False)
        segments: list[Segment] = []
        end = 0
        for number, (start, stop) in zip(encoding.ids, encoding.offsets, strict=True):
            if number == _PIECE:
                continue
            segments += [Segment(text[end:start], None)] if start > end else []
            segments.append(Segment(text[start:stop], self._ids[number - 1]))
            end = stop
        return segments + ([Segment(text[end:], None)] if end < len(text) else [])


def chosen(added: Iterable[AddedToken], allowed: Iterable[str]) -> list[AddedToken]:
    """Return the added tokens that are found: those that are not special, and special ones that are `allowed`."""
    names = frozenset(allowed)
    return [token for token in added if not token.special or token.content in names]
