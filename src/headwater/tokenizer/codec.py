"""Text to ids and back with the `tokenizers` library: every kind but GPT-1's.

GPT-2's encoding is the pre-split and the byte-level pairs of Radford et al. 2019, section 2.2. The library encodes
short texts, as its calls cost less, and gigatoken (extra "fast"), which is about thirty times as fast, long ones.
gigatoken is young: only the release whose ids the tests compare is used.
"""

from __future__ import annotations

import importlib.metadata
import json
import logging
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from headwater.errors import DataError
from headwater.reading import cut_text
from headwater.tokenizer.folder import tokenizer_json
from headwater.tokenizer.library import library_errors, library_json
from headwater.tokenizer.vocabulary import Encoded, Vocabulary, as_unicode, characters_to_bytes

# The original's pre-split (encoder.py of the release). It does not match upper-case contractions, an oversight of
# the authors that every GPT-2 vocabulary depends on.
PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

TESTED = "0.10.0"  # the release of gigatoken; also in pyproject.toml
# Characters of a call from which gigatoken is worth its start: `pack` encodes two megabytes a call.
_LONG = 1_500_000
# Characters in such calls after which its absence is worth a warning: the library encodes them in about a minute.
_MANY = 100_000_000
# The pre-split always has a border between a visible character and a space: a long text may be cut there.
_SAFE_CUT = re.compile(r"(?<=\S)(?=[ \n])")
_CUT_CHARACTERS = 1 << 16
_LOG = logging.getLogger(__name__)
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


class ByteLevelCodec(LibraryCodec):
    """Text to ids and back for a vocabulary of kind "gpt2": decode(encode(x)) == x for every text."""

    _slow = 0  # characters in calls that gigatoken would have encoded

    def encode_array(self, texts: Sequence[str], allowed: frozenset[str]) -> Encoded:
        """Return the ids of all texts in one array, and len(texts) + 1 offsets."""
        size = sum(map(len, texts))
        engine = self._fast if size >= _LONG else None
        if isinstance(engine, GigatokenEngine):
            names = self.names(allowed)
            if not any(name in text for name in names for text in texts):
                try:
                    return engine.encode(texts)
                except TypeError:  # surrogates, which take a search of every text to find
                    return engine.encode(as_unicode(texts))
        elif engine is not None:
            before, self._slow = self._slow, self._slow + size
            if before < _MANY <= self._slow:
                _LOG.warning("%s: much text is encoded slowly", engine)
        return super().encode_array(texts, allowed)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of the ids; invalid UTF-8 becomes U+FFFD."""
        return b"".join([self.token_bytes[i] for i in ids]).decode("utf-8", errors="replace")

    def cut(self, text: str) -> Iterable[str]:
        """Cut a long text at borders of the pre-split, to limit the library's memory."""
        # An added token with white space in it, or that takes white space after it, may reach across a cut.
        if len(text) <= _CUT_CHARACTERS or any(
            t.rstrip or re.search(r"\s", t.content) for t in self.vocabulary.added
        ):
            return [text]
        return cut_text(text, _CUT_CHARACTERS, _SAFE_CUT)

    @cached_property
    def _fast(self) -> GigatokenEngine | str:
        """gigatoken, or why it is not used."""
        try:
            release = importlib.metadata.version("gigatoken")
            if release == TESTED:
                return GigatokenEngine(self.vocabulary)
            return f"gigatoken {release} is installed, and {TESTED} is tested"
        except importlib.metadata.PackageNotFoundError:
            return "gigatoken is not installed (pip install 'headwater[fast]')"
        except Exception as error:  # whatever the package raises, the library encodes
            return f"gigatoken cannot use this vocabulary ({error})"


class GigatokenEngine:
    """gigatoken for a vocabulary. A lock, because its tokenizer raises "Already borrowed" in a second thread."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        from gigatoken import Tokenizer
        from gigatoken.gigatoken_rs import load_hf_json

        self._tokenizer: Any = Tokenizer(load_hf_json(tokenizer_json(vocabulary, specials=False)))
        self._lock = threading.Lock()

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Return the ids of all texts and len(texts) + 1 offsets; special tokens are plain text.

        Raises TypeError for a text with surrogates.
        """
        if len(texts) == 1:
            with self._lock:
                ids = np.asarray(self._tokenizer.encode(texts[0]), np.uint32)
            return ids, np.array([0, len(ids)], np.int64)
        with self._lock:
            layout = self._tokenizer.encode_batch(list(texts)).layout
        offsets = np.asarray(layout.offsets.data, np.int64)
        return np.asarray(layout.content.data, np.uint32)[offsets[0] : offsets[-1]], offsets - offsets[0]


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
