"""GPT-2's encoding: the pre-split and byte-level pairs of Radford et al. 2019, section 2.2, by the fastest engine at hand.

Decided here: which engine encodes. `tokenizers` always can; `engines` offers a faster one, used for much text and
only after its ids were compared. Lone surrogates have no bytes and are refused, so that decode(encode(x)) == x.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from headwater.errors import DataError
from headwater.tokenizer.files import tokenizer_json
from headwater.tokenizer.vocabulary import Vocabulary, characters_to_bytes

# The original's pre-split (encoder.py of the release), for engines that take a pattern. Upper-case contractions
# are not matched: an oversight of the authors that every GPT-2 vocabulary depends on.
PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

# Between a visible character and a space no piece of the pre-split goes on: a long text may be cut there.
_SAFE_CUT = re.compile(r"(?<=\S)(?=[ \n])")
_CUT_CHARACTERS = 1 << 16


class ByteLevelCodec:
    """Text to ids and back for a vocabulary of kind "gpt2"; special tokens are text here."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        names = {index: name for name, index in vocabulary.specials.items()}
        self.token_bytes: list[bytes] = [
            names[index].encode() if index in names else characters_to_bytes(token)
            for index, token in enumerate(vocabulary.tokens)
        ]
        self._engine: Any = None

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text."""
        ids, offsets = self.encode_array(texts)
        whole = ids.tolist()
        return [whole[a:b] for a, b in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)]

    def encode_array(self, texts: Sequence[str]) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
        """(ids of all texts in one array, offsets of len(texts) + 1)."""
        check_unicode(texts)
        if self._engine is None:
            from tokenizers import Tokenizer

            self._engine = Tokenizer.from_str(tokenizer_json(self.vocabulary, specials=False))
        parts: list[list[int]] = []
        offsets = np.zeros(len(texts) + 1, np.int64)
        pieces: list[str] = []
        owners: list[int] = []
        for index, text in enumerate(texts):
            for piece in cut(text):
                pieces.append(piece)
                owners.append(index)
        for start in range(0, len(pieces), 256):
            group = self._engine.encode_batch_fast(pieces[start : start + 256], add_special_tokens=False)
            for owner, encoding in zip(owners[start : start + 256], group, strict=True):
                parts.append(encoding.ids)
                offsets[owner + 1] += len(encoding.ids)
        np.cumsum(offsets, out=offsets)
        ids = np.fromiter((i for part in parts for i in part), np.uint32, count=int(offsets[-1]))
        return ids, offsets

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the ids; bytes that are no UTF-8 become U+FFFD."""
        return b"".join([self.token_bytes[i] for i in ids]).decode("utf-8", errors="replace")


def cut(text: str) -> Iterator[str]:
    """The text in pieces of some 64 Ki characters, cut only where the pre-split has a border in any case."""
    start = 0
    while len(text) - start > _CUT_CHARACTERS:
        border = _SAFE_CUT.search(text, start + _CUT_CHARACTERS)
        if border is None:
            break
        yield text[start : border.start()]
        start = border.start()
    yield text[start:] if start else text


def check_unicode(texts: Sequence[str]) -> None:
    """Raise DataError for a text with a lone surrogate, which no encoding of Unicode can hold."""
    for number, text in enumerate(texts):
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            which = f"text {number + 1} of {len(texts)}" if len(texts) > 1 else "the text"
            raise DataError(
                f"{which} has the lone surrogate U+{ord(text[error.start]):04X} at character {error.start}",
                expected="Unicode text",
                repair="Replace it, as with: text.encode('utf-8', 'replace').decode('utf-8')",
            ) from None
