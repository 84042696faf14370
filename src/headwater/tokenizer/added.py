"""Tokens that were added to GPT-1's vocabulary: found in a text before the rest of it is encoded.

Each is one token wherever it occurs. A special one (the end of a text, a speaker) is plain text unless the caller
allows it. `lstrip` and `rstrip` include the white space next to it, `single_word` requires a border of words on
both sides, and a `normalized` one is also found where only the cleaning of the text (such as lower case) makes it.
The `tokenizers` library searches, so that the rules are those of every other program.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from headwater.tokenizer.gpt1 import WordCodec
from headwater.tokenizer.library import RULES, bert_normalizer, whole
from headwater.tokenizer.vocabulary import AddedToken, Encoded, Vocabulary, join_ids, join_surrogates

# A text without added tokens is one piece with this id; added tokens follow it.
_PIECE = 0


class AddedCodec:
    """Text to ids with GPT-1's codec for ordinary text, and the added tokens between its parts."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.ordinary = ordinary = WordCodec(vocabulary)
        self.token_bytes = ordinary.token_bytes
        self.decode = ordinary.decode
        self._vocabulary = vocabulary
        self._splitters: dict[frozenset[str], _Splitter | None] = {}

    def encode_batch(self, texts: Sequence[str], allowed: frozenset[str]) -> list[list[int]]:
        """Return the ids of each text; special tokens other than the `allowed` ones are plain text."""
        splitter = self._splitter(allowed)
        if splitter is None:
            return self.ordinary.encode_batch(texts)
        parts = [splitter.split(text) for text in texts]
        plain = [text for segments in parts for text, token in segments if token is None]
        ordinary = iter(self.ordinary.encode_batch(plain))
        return [
            [i for _, token in segments for i in (next(ordinary) if token is None else [token])]
            for segments in parts
        ]

    def encode_array(self, texts: Sequence[str], allowed: frozenset[str]) -> Encoded:
        """Return the ids of all texts in one array, and len(texts) + 1 offsets."""
        splitter = self._splitter(allowed)
        if splitter is None:
            return self.ordinary.encode_array(texts)
        return join_ids(self.encode_batch(texts, allowed))

    def _splitter(self, allowed: frozenset[str]) -> _Splitter | None:
        """Return what finds the added tokens in a text; None if none can be in it."""
        if allowed not in self._splitters:
            matched = [token for token in self._vocabulary.added if not token.special or token.content in allowed]
            self._splitters[allowed] = _Splitter(matched, self._vocabulary) if matched else None
        return self._splitters[allowed]


class _Splitter:
    """Splits texts at some added tokens."""

    def __init__(self, added: Sequence[AddedToken], vocabulary: Vocabulary) -> None:
        from tokenizers import Tokenizer

        self._ids = [vocabulary.specials[token.content] for token in added]
        exact = not any(token.normalized for token in added)
        self._contents = [token.content for token in added] if exact else None
        entries = [
            {"id": number, **token._asdict(), "special": False} for number, token in enumerate(added, _PIECE + 1)
        ]
        steps = {
            "normalizer": None if exact else bert_normalizer(RULES),
            "model": {"type": "WordLevel", "vocab": {"": _PIECE}, "unk_token": ""},
        }
        self._library = Tokenizer.from_str(json.dumps(whole(steps, entries)))

    def split(self, text: str) -> list[tuple[str, int | None]]:
        """Return the parts of a text in order, at least one, and the id of each that is an added token."""
        if self._contents is not None and not any(content in text for content in self._contents):
            return [(text, None)]
        if not text.isascii():
            text = join_surrogates(text)
        # The library takes no lone surrogates: the copy has one other character for each.
        encoding = self._library.encode(text.encode("utf-8", "replace").decode(), add_special_tokens=False)
        segments: list[tuple[str, int | None]] = []
        end = 0
        for number, (start, stop) in zip(encoding.ids, encoding.offsets, strict=True):
            if number == _PIECE:
                continue
            segments += [(text[end:start], None)] if start > end else []
            segments.append((text[start:stop], self._ids[number - 1]))
            end = stop
        if end < len(text) or not segments:
            segments.append((text[end:], None))
        return segments
