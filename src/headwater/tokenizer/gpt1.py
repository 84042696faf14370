"""GPT-1's encoding: the ids of the authors' code, many times as fast.

The authors repair a text with ftfy, standardise it, split it with spaCy's English tokenizer, lower-case the words
and merge characters (Radford et al. 2018, section 4.1; `reference` is the readable twin). This is faster for two
reasons, each checked by a property test:

1. The characters of most lines show that ftfy would not change them.
2. Standardisation and spaCy's rules act inside chunks between white space, so a chunk's ids can be cached. If a
   special case of spaCy's could reach across white space, the line is split as a whole.

Time is linear in the length of any text (`english` splits words). Added tokens are searched for first, and the
text between them is encoded by itself.

Decoding is readable, not exact: encoding loses case and spacing.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np

from headwater.errors import require_extra
from headwater.reading import sort_marks
from headwater.tokenizer.english import EnglishWords
from headwater.tokenizer.vocabulary import NEWLINE, UNKNOWN, WORD_END, Encoded, Vocabulary

# The most cached chunks, and the most characters of one: natural text rarely has more.
REMEMBERED = 1 << 20
_LONGEST_REMEMBERED = 64
_PLAINER = {"—": "-", "–": "-", "―": "-", "…": "...", "´": "'"}
# The signs that standardisation sets apart, a run of one sign as a whole.
_SIGNS = """-~!";?+,)(/*[]}{|_"""
# What ftfy may change in an ASCII line: an entity, a control character, another line break.
_ASCII_REPAIR = re.compile(r"[&\x00-\x08\x0b-\x1f\x7f]")
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_BLOCK_LINES = 256


class WordCodec:
    """Text to ids and back for a vocabulary of kind "gpt1"."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        plain = vocabulary.plain_ids
        self.token_bytes: list[bytes] = [
            (_shown(token) if token in plain else token).encode() for token in vocabulary.tokens
        ]
        self._newline = array("I", [vocabulary.ids[NEWLINE]]).tobytes()
        self._splitter: WordSplitter | None = None
        # Cached ids as the bytes of an array, without chunks whose words may depend on their neighbours.
        self._chunks: dict[str, bytes] = {}
        self._patterns: dict[frozenset[str], tuple[re.Pattern[str], list[bytes]] | None] = {}

    def encode_batch(self, texts: Sequence[str], allowed: frozenset[str]) -> list[list[int]]:
        """Return the ids of each text; special tokens other than the `allowed` ones are plain text."""
        # Joined in one array first, a short text would take twice as long.
        return [np.frombuffer(self._with_added(text, allowed), np.uint32).tolist() for text in texts]

    def encode_array(self, texts: Sequence[str], allowed: frozenset[str]) -> Encoded:
        """Return the ids of all texts in one array, and len(texts) + 1 offsets."""
        parts = [self._with_added(text, allowed) for text in texts]
        offsets = np.cumsum([0, *(len(part) // 4 for part in parts)], dtype=np.int64)
        return np.frombuffer(b"".join(parts), np.uint32), offsets

    def decode(self, ids: Sequence[int]) -> str:
        """Return readable text: words as in the vocabulary, with one space between them."""
        return b"".join([self.token_bytes[i] for i in ids]).decode("utf-8").rstrip(" ")

    def _with_added(self, text: str, allowed: frozenset[str]) -> bytes:
        """Encode a text whose added tokens, ordinary ones and the `allowed` special ones, are one token each."""
        if allowed not in self._patterns:
            self._patterns[allowed] = _added_tokens(self.vocabulary, allowed)
        if (added := self._patterns[allowed]) is None:
            return self._encode(text)
        (pattern, ids), parts, end = added, list[bytes](), 0
        for match in pattern.finditer(text):
            parts += [self._encode(text[end : match.start()]), ids[(match.lastindex or 1) - 1]]
            end = match.end()
        return b"".join([*parts, self._encode(text[end:])])

    def _encode(self, text: str) -> bytes:
        if self._splitter is None:
            self._splitter = WordSplitter()
        remembered = self._chunks.get
        lines: list[bytes] = []
        for line in self._splitter.standard_lines(text):
            chunks = line.split()
            if not chunks:
                continue
            try:
                lines.append(b"".join([remembered(chunk) for chunk in chunks]))  # type: ignore[misc]
            except TypeError:  # a new chunk, or one that depends on its neighbours, is None
                lines.append(self._encode_line(chunks))
        return self._newline.join(lines)

    def _encode_line(self, chunks: list[str]) -> bytes:
        """Encode a line and cache its new chunks; split it as a whole if one depends on its neighbours."""
        assert self._splitter is not None
        if len(self._chunks) > REMEMBERED:
            self._chunks.clear()
        parts: list[bytes] = []
        for chunk in chunks:
            ids = self._chunks.get(chunk)
            if ids is None:
                words = self._splitter.split_chunk(chunk)
                if words is None:
                    return self._merge(self._splitter.split_line(chunks))
                ids = self._merge(words)
                if len(chunk) <= _LONGEST_REMEMBERED:
                    self._chunks[chunk] = ids
            parts.append(ids)
        return b"".join(parts)

    @cached_property
    def _model(self) -> Any:
        from tokenizers import models

        return models.BPE(
            vocab=self.vocabulary.plain_ids,
            merges=list(self.vocabulary.merges),
            unk_token=UNKNOWN,
            end_of_word_suffix=WORD_END,
        )

    def _merge(self, words: list[str]) -> bytes:
        return array("I", [token.id for word in words for token in self._model.tokenize(word)]).tobytes()


def _added_tokens(vocabulary: Vocabulary, allowed: frozenset[str]) -> tuple[re.Pattern[str], list[bytes]] | None:
    """Return the pattern of the added tokens that a text may have, the longest first, and the id of each group."""
    tokens = [token for token in vocabulary.added if not token.special or token.content in allowed]
    tokens.sort(key=lambda token: -len(token.content))
    groups = []
    for token in tokens:
        group = rf"(?i:{re.escape(token.content)})" if token.normalized else re.escape(token.content)
        group = rf"(?<!\w){group}(?!\w)" if token.single_word else group
        # White space is taken from its start: a search from each of n spaces would take n² steps.
        group = rf"(?:(?<!\s)\s+)?{group}" if token.lstrip else group
        groups.append(rf"({group}\s*)" if token.rstrip else f"({group})")
    ids = [array("I", [vocabulary.specials[token.content]]).tobytes() for token in tokens]
    return (re.compile("|".join(groups)), ids) if tokens else None


class WordSplitter:
    """GPT-1's words: repaired lines, and the lower-case words of a line or of a chunk of one."""

    def __init__(self) -> None:
        with require_extra("gpt1", "GPT-1's tokenizer"):
            import ftfy
        self._repair = ftfy.fix_text
        self._english = EnglishWords()

    def standard_lines(self, text: str) -> Iterator[str]:
        """Yield the text's lines, repaired and standardised, except for empty lines and the amount of spaces."""
        for block in self._repaired_blocks(sort_marks(text)):
            if not block.isascii():
                for character, plainer in _PLAINER.items():
                    block = block.replace(character, plainer)
            for sign in _SIGNS:
                if sign in block:
                    # A run stays together: exactly its signs are now two spaces apart.
                    block = block.replace(sign, f" {sign} ")
                    while (apart := f"{sign}  {sign}") in block:
                        block = block.replace(apart, sign + sign)
            yield from block.split("\n")

    def _repaired_blocks(self, text: str) -> Iterator[str]:
        """Yield the text repaired as by ftfy, in blocks of whole lines that fit the cache."""
        markup = False  # after a "<", ftfy assumes markup and does not change entities
        for (_, clean), lines in groupby(enumerate(_LINE.findall(text)), _block_of):
            block = "".join([line for _, line in lines])
            if not clean:
                repaired = self._repair(block, unescape_html=False if markup else "auto", explain=False)
            yield block if clean else repaired
            markup = markup or "<" in block

    def split_line(self, chunks: list[str]) -> list[str]:
        """Return the words of a standardised line, given as its chunks."""
        return [word.lower() for word in self._english.of_line(chunks)]

    def split_chunk(self, chunk: str) -> list[str] | None:
        """Return the words of a chunk of a standardised line, or None if they may depend on its neighbours."""
        words = self._english.of_chunk(chunk)
        return None if words is None else [word.lower() for word in words]


def _block_of(numbered: tuple[int, str]) -> tuple[int, bool]:
    """Return the number of a line's block, and whether ftfy would not change the line."""
    number, line = numbered
    return number // _BLOCK_LINES, line.isascii() and _ASCII_REPAIR.search(line) is None


def _shown(token: str) -> str:
    """Return a token's decoded text: a word ends with a space."""
    if token == NEWLINE:
        return "\n"
    return token.removesuffix(WORD_END) + " " if token.endswith(WORD_END) else token
