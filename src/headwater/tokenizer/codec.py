"""Text to ids and back with the `tokenizers` library: every kind but GPT-1's."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from headwater.errors import DataError
from headwater.tokenizer.library import library_errors, library_json
from headwater.tokenizer.vocabulary import Encoded, Vocabulary, as_unicode, characters_to_bytes

_BYTE = re.compile("<0x([0-9A-Fa-f]{2})>")
_CALL_TEXTS = 256


class LibraryCodec:
    """Text to ids and back with the `tokenizers` library, by a vocabulary's JSON of it."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary, self._content = vocabulary, library_json(vocabulary)
        self._by_allowed: dict[frozenset[str], Any] = {}
        model = self._content["model"]
        # A vocabulary of single characters drops any other one, without a trace in the ids.
        alone = model.get("type") == "BPE" and not model.get("merges") and not model.get("unk_token")
        self._characters = frozenset(model["vocab"]) if alone and not self._content.get("pre_tokenizer") else None

    @cached_property
    def token_bytes(self) -> list[bytes]:
        """The bytes that each token adds to a text, after other tokens."""
        show, plain = _bytes_of_token(self._content.get("decoder")), self.vocabulary.plain_ids
        return [show(token) if token in plain else token.encode() for token in self.vocabulary.tokens]

    def names(self, allowed: frozenset[str]) -> set[str]:
        """Return the added tokens that a text may have as such: ordinary ones, and the `allowed` special ones."""
        return {token.content for token in self.vocabulary.added if not token.special or token.content in allowed}

    def library(self, allowed: frozenset[str]) -> Any:
        """Return the library's tokenizer that reads the `allowed` special tokens as such, others as plain text."""
        from tokenizers import Tokenizer

        if allowed not in self._by_allowed:
            entries = [
                {**entry, "special": entry["special"] and entry["content"] not in allowed}
                for entry in self._content["added_tokens"]
            ]
            content = {**self._content, "added_tokens": entries, "post_processor": None}
            made = Tokenizer.from_str(json.dumps(content))
            made.encode_special_tokens = True
            self._by_allowed[allowed] = made
        return self._by_allowed[allowed]

    def cut(self, text: str) -> Iterable[str]:
        """Return the parts in which a text is encoded: all of it, as any step may look across a cut."""
        return [text]

    def encode_batch(self, texts: Sequence[str], allowed: frozenset[str]) -> list[list[int]]:
        """Return the ids of each text.

        Raises DataError for a lone surrogate, for a character that the vocabulary would lose, and for a text on
        which the library gives up, as its search with a regular expression does after many tries.
        """
        ids: list[list[int]] = [[] for _ in texts]
        for owner, part in self._encoded(texts, allowed):
            ids[owner] = ids[owner] + part if ids[owner] else part
        return ids

    def encode_array(self, texts: Sequence[str], allowed: frozenset[str]) -> Encoded:
        """Return the ids of all texts in one array, and len(texts) + 1 offsets."""
        parts, counts = [np.zeros(0, np.uint32)], np.zeros(len(texts) + 1, np.int64)
        for owner, part in self._encoded(texts, allowed):
            parts.append(np.array(part, np.uint32))
            counts[owner + 1] += len(part)
        return np.concatenate(parts), np.cumsum(counts)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of the ids, with special tokens."""
        with library_errors("the tokenizers library gives up on these ids"):
            return str(self.library(frozenset()).decode(list(ids), skip_special_tokens=False))

    def _encoded(self, texts: Sequence[str], allowed: frozenset[str]) -> Iterator[tuple[int, list[int]]]:
        """Yield the ids of each part of each text, with the number of the text."""
        clean = as_unicode(texts)
        if self._characters is not None:
            self._require_characters(clean, allowed)
        encoder = self.library(allowed)
        parts = [(owner, part) for owner, text in enumerate(clean) for part in self.cut(text)]
        repair = "Leave that text out, or use a tokenizer with a simpler pattern"
        for start in range(0, len(parts), _CALL_TEXTS):
            group = parts[start : start + _CALL_TEXTS]
            with library_errors("the tokenizers library gives up on a text", repair):
                encoded = encoder.encode_batch_fast([part for _, part in group], add_special_tokens=False)
            for (owner, _), encoding in zip(group, encoded, strict=True):
                yield owner, encoding.ids

    def _require_characters(self, texts: Sequence[str], allowed: frozenset[str]) -> None:
        assert self._characters is not None
        names = self.names(allowed)
        for text in texts:
            lost = set(text) - self._characters
            if lost and not any(name in text for name in names):
                raise DataError(
                    f"the tokenizer has no {min(lost)!r}: its {len(self._characters):,} tokens are characters",
                    expected="a text of these characters",
                )


def _bytes_of_token(decoder: Mapping[str, Any] | None) -> Any:
    """Return the function from a token to the bytes that it adds to a text, after other tokens."""
    steps = decoder.get("decoders", [decoder]) if decoder else []
    by_type = {step["type"]: step for step in steps}
    fallback = "ByteFallback" in by_type

    def show(token: str) -> bytes:
        if fallback and (byte := _BYTE.fullmatch(token)):
            return bytes([int(byte[1], 16)])
        if "ByteLevel" in by_type:
            try:
                return characters_to_bytes(token)
            except KeyError:  # a token that was added as text
                return token.encode()
        if "WordPiece" in by_type:
            prefix = by_type["WordPiece"].get("prefix", "##")
            return token.removeprefix(prefix).encode() if token.startswith(prefix) else f" {token}".encode()
        if "BPEDecoder" in by_type:
            return token.replace(by_type["BPEDecoder"].get("suffix", "</w>"), " ").encode()
        if "Metaspace" in by_type:
            return token.replace(by_type["Metaspace"].get("replacement", "\u2581"), " ").encode()
        for step in steps:
            if step["type"] == "Replace" and "String" in step.get("pattern", {}):
                token = token.replace(step["pattern"]["String"], step["content"])
        return token.encode() if steps else f" {token}".encode()

    return show
