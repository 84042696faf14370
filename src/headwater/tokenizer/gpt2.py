"""GPT-2's encoding: pre-split and byte-level pairs of Radford et al. 2019, section 2.2.

Decided here: which engine encodes. The `tokenizers` library encodes short texts, as its calls cost less, and the
faster engine (`fast_engine`) long ones, if its ids are equal. Lone surrogates have no bytes and are an error, so
that decode(encode(x)) == x for every text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from headwater.errors import DataError
from headwater.reading import cut_text
from headwater.tokenizer.fast_engine import GigatokenEngine, fast_engine
from headwater.tokenizer.files import tokenizer_json
from headwater.tokenizer.vocabulary import Encoded, Vocabulary, characters_to_bytes, join_surrogates

# The original's pre-split (encoder.py of the release). It does not match upper-case contractions, an oversight of
# the authors that every GPT-2 vocabulary depends on.
PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

# Bytes of a call from which it is worth loading and checking the fast engine: `pack` encodes two megabytes a call.
_LONG_BYTES = 1_500_000
# The pre-split always has a border between a visible character and a space: a long text may be cut there.
_SAFE_CUT = re.compile(r"(?<=\S)(?=[ \n])")
_CUT_CHARACTERS = 1 << 16
_CALL_TEXTS = 256


class LibraryEngine:
    """The `tokenizers` library; long texts are cut to limit its memory."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        from tokenizers import Tokenizer

        self._tokenizer: Any = Tokenizer.from_str(tokenizer_json(vocabulary, specials=False))

    def encode(self, texts: Sequence[bytes]) -> Encoded:
        """Return the ids of all texts and len(texts) + 1 offsets; special tokens are plain text."""
        owned = [(owner, piece) for owner, text in enumerate(texts) for piece in _pieces(text.decode())]
        counts = np.zeros(len(texts) + 1, np.int64)
        parts: list[npt.NDArray[np.uint32]] = [np.zeros(0, np.uint32)]
        for start in range(0, len(owned), _CALL_TEXTS):
            group = owned[start : start + _CALL_TEXTS]
            encodings = self._tokenizer.encode_batch_fast([p for _, p in group], add_special_tokens=False)
            for (owner, _), encoding in zip(group, encodings, strict=True):
                ids = np.array(encoding.ids, np.uint32)
                counts[owner + 1] += len(ids)
                parts.append(ids)
        return np.concatenate(parts), np.cumsum(counts)


def _pieces(text: str) -> Iterable[str]:
    return [text] if len(text) <= _CUT_CHARACTERS else cut_text(text, _CUT_CHARACTERS, _SAFE_CUT)


class ByteLevelCodec:
    """Text to ids and back for a vocabulary of kind "gpt2"; special tokens are text here."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        plain = vocabulary.plain_ids
        self.token_bytes: list[bytes] = [
            characters_to_bytes(token) if token in plain else token.encode() for token in vocabulary.tokens
        ]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text."""
        ids, offsets = self.encode_array(texts)
        whole = ids.tolist()
        return [whole[start:end] for start, end in pairwise(offsets.tolist())]

    def encode_array(self, texts: Sequence[str]) -> Encoded:
        """Return the ids of all texts in one array, and len(texts) + 1 offsets."""
        data = to_bytes(texts)
        return self._engine(sum(map(len, data))).encode(data)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of the ids; invalid UTF-8 becomes U+FFFD."""
        return b"".join([self.token_bytes[i] for i in ids]).decode("utf-8", errors="replace")

    @cached_property
    def _library(self) -> LibraryEngine:
        return LibraryEngine(self.vocabulary)

    @cached_property
    def _fast(self) -> LibraryEngine | GigatokenEngine:
        return fast_engine(self.vocabulary, self._library) or self._library

    def _engine(self, size: int) -> LibraryEngine | GigatokenEngine:
        return self._library if size < _LONG_BYTES else self._fast


def to_bytes(texts: Sequence[str]) -> list[bytes]:
    """Return the texts as UTF-8; raise DataError for a lone surrogate, which UTF-8 cannot represent."""
    data = []
    for number, text in enumerate(texts, 1):
        try:
            data.append(text.encode("utf-8"))
            continue
        except UnicodeEncodeError:
            joined = join_surrogates(text)
        try:
            data.append(joined.encode("utf-8"))
        except UnicodeEncodeError as error:
            which = f"text {number} of {len(texts)}" if len(texts) > 1 else "the text"
            code = ord(joined[error.start])
            # Python reads a byte of the command line that is not UTF-8 as one of these.
            if 0xDC80 <= code <= 0xDCFF:
                seen = f"{which} is not UTF-8: byte 0x{code - 0xDC00:02x} at character {error.start}"
            else:
                seen = f"{which} has the lone surrogate U+{code:04X} at character {error.start}"
            raise DataError(seen, expected="Unicode text", repair="Replace or remove it") from None
    return data
