"""GPT-1's encoding, with the ids of the authors' code at many times its speed.

The authors repair a text with ftfy, standardise it, split it with spaCy's English tokenizer, lower-case the
words and merge characters (Radford et al. 2018, section 4.1; `reference` shows it plainly). Three facts
make it fast, each held by a property test: most lines need no repair, and a line that ftfy would leave
alone is known by its characters; standardisation and spaCy's rules act inside chunks between white space,
so that the ids of a chunk can be remembered; and letters that are no special case of spaCy's are one word.
Where a special case of spaCy's could reach across white space, the whole line goes through spaCy.

Decoding is readable, not exact: case and spacing are lost when a text is encoded.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from headwater.errors import ResourceError
from headwater.tokenizer.vocabulary import NEWLINE, UNKNOWN, WORD_END, Vocabulary

# Distinct chunks and words kept; natural text of any size stays below it for long.
REMEMBERED = 1 << 20
_PLAINER = {"—": "-", "–": "-", "―": "-", "…": "...", "´": "'"}
# The signs that standardisation sets apart, a run of one sign as a whole.
_SIGNS = """-~!";?+,)(/*[]}{|_"""
# Letters, and the few affixes that spaCy's rules split off them whatever the letters are.
_PLAIN = re.compile(r"(')?([A-Za-z]*[a-z])(?:([.:])?(')?|('s))|([A-Za-z]+)")
# What an ASCII line must hold for ftfy to look at it: an entity, a control character, another line break.
_ASCII_REPAIR = re.compile(r"[&\x00-\x08\x0b-\x1f\x7f]")
# What makes ftfy's repair of a line depend on more than single characters.
_CONTEXT = re.compile(r"[&\r\x1b\x0c\x85\u2028\u2029\ud800-\udfff]")
_BLOCK = 1 << 15
# ftfy cuts longer lines at this many characters.
_LONGEST_LINE = 1_000_000


class WordCodec:
    """Text to ids and back for a vocabulary of kind "gpt1"; special tokens are text here."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.token_bytes: list[bytes] = [_shown(token).encode() for token in vocabulary.tokens]
        for name, index in vocabulary.specials.items():
            self.token_bytes[index] = name.encode()
        self._newline = array("I", [vocabulary.ids[NEWLINE]]).tobytes()
        self._splitter: WordSplitter | None = None
        # Ids as the bytes of an array; chunks whose words may depend on their neighbours are not among them.
        self._chunks: dict[str, bytes] = {}
        self._words: dict[str, bytes] = {}
        self._model: Any = None

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text."""
        return [np.frombuffer(self._encode(text), np.uint32).tolist() for text in texts]

    def encode_array(self, texts: Sequence[str]) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
        """(ids of all texts in one array, offsets of len(texts) + 1)."""
        parts = [self._encode(text) for text in texts]
        offsets = np.zeros(len(texts) + 1, np.int64)
        np.cumsum([len(part) // 4 for part in parts], out=offsets[1:])
        return np.frombuffer(b"".join(parts), np.uint32), offsets

    def decode(self, ids: Sequence[int]) -> str:
        """Readable text: words with one space between them, as the vocabulary spells them."""
        return b"".join([self.token_bytes[i] for i in ids]).decode("utf-8").rstrip(" ")

    def _encode(self, text: str) -> bytes:
        """The ids of a text as the bytes of a uint32 array."""
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
            except TypeError:  # a chunk that is new, or that needs its neighbours, gave None
                lines.append(self._encode_line(chunks))
        return self._newline.join(lines)

    def _encode_line(self, chunks: list[str]) -> bytes:
        """Learn the new chunks of a line; a line where one needs its neighbours goes through whole."""
        assert self._splitter is not None
        if len(self._chunks) > REMEMBERED:
            self._chunks.clear()
            self._words.clear()
        parts: list[bytes] = []
        for chunk in chunks:
            ids = self._chunks.get(chunk)
            if ids is None:
                words = self._splitter.split_chunk(chunk)
                if words is None:
                    return self._merge(self._splitter.split_line(chunks))
                ids = self._chunks[chunk] = self._merge(words)
            parts.append(ids)
        return b"".join(parts)

    def _merge(self, words: list[str]) -> bytes:
        """Ids of lower-case words, each merged by itself."""
        return b"".join([self._words.get(word) or self._merge_word(word) for word in words])

    def _merge_word(self, word: str) -> bytes:
        if self._model is None:
            from tokenizers import models

            ids = {t: i for t, i in self.vocabulary.ids.items() if t not in self.vocabulary.specials}
            self._model = models.BPE(
                vocab=ids,
                merges=list(self.vocabulary.merges),
                unk_token=UNKNOWN,
                end_of_word_suffix=WORD_END,
            )
        merged = array("I", [token.id for token in self._model.tokenize(word)]).tobytes()
        self._words[word] = merged
        return merged


class WordSplitter:
    """GPT-1's words: repaired lines, and the lower-case words of a line or of a chunk of one."""

    def __init__(self) -> None:
        try:
            import ftfy
            import ftfy.badness
            import ftfy.fixes
            import spacy
        except ModuleNotFoundError as error:
            raise ResourceError(
                f"GPT-1's tokenizer needs the package {error.name}", repair="pip install 'headwater[gpt1]'"
            ) from None
        self._ftfy: Any = ftfy
        self._tokenizer = cast(Any, spacy.blank("en").tokenizer)
        self._repairs = _CharacterRepairs()
        rules = self._tokenizer.rules
        # Special cases that hold an affix are matched again over the tokens of a text, white space ignored. A
        # tokenizer without them tells where one of them was at work.
        affixed = [
            case
            for case in rules
            if self._tokenizer.find_prefix(case)
            or self._tokenizer.find_infix(case)
            or self._tokenizer.find_suffix(case)
        ]
        self._plain_tokenizer: Any = type(self._tokenizer)(
            self._tokenizer.vocab,
            rules={case: tokens for case, tokens in rules.items() if case not in set(affixed)},
            prefix_search=self._tokenizer.prefix_search,
            suffix_search=self._tokenizer.suffix_search,
            infix_finditer=self._tokenizer.infix_finditer,
            token_match=self._tokenizer.token_match,
            url_match=self._tokenizer.url_match,
        )
        self._cases = frozenset(rules)

    def standard_lines(self, text: str) -> Iterator[str]:
        """The lines of the text repaired and standardised, but for the amount of white space and empty lines."""
        for block in self._repaired_blocks(text):
            if not block.isascii():
                for character, plainer in _PLAINER.items():
                    block = block.replace(character, plainer)
            for sign in _SIGNS:
                if sign in block:
                    # A run stays together: its signs come to be exactly two spaces apart, as nothing else
                    # does.
                    block = block.replace(sign, f" {sign} ")
                    while (apart := f"{sign}  {sign}") in block:
                        block = block.replace(apart, sign + sign)
            yield from block.split("\n")

    def _repaired_blocks(self, text: str) -> Iterator[str]:
        """The text as ftfy repairs it, in blocks of whole lines that fit a processor's cache."""
        if text.isascii() and _ASCII_REPAIR.search(text) is None:
            start = 0
            while start < len(text):
                end = text.find("\n", start + _BLOCK) + 1 or len(text)
                yield text[start:end]
                start = end
            return
        lines = text.split("\n")
        if max(map(len, lines)) >= _LONGEST_LINE:
            yield self._ftfy.fix_text(text)
            return
        plain: list[str] = []
        size = 0
        markup = False
        for number, line in enumerate(lines, 1):
            # Once a "<" was seen, ftfy takes the text for markup and leaves entities alone.
            markup = markup or "<" in line
            segment = line + "\n" if number < len(lines) else line
            clean = line.isascii() and _ASCII_REPAIR.search(line) is None
            if clean:
                plain.append(segment)
                size += len(segment)
                if size < _BLOCK:
                    continue
            yield "".join(plain)
            if not clean:
                yield self._repair(segment, markup)
            plain, size = [], 0
        yield "".join(plain)

    def _repair(self, segment: str, markup: bool) -> str:
        """A line as ftfy.fix_text gives it within its text; ftfy is asked only where a line may need it."""
        is_bad = self._ftfy.badness.is_bad
        if _CONTEXT.search(segment) is None and not is_bad(segment):
            fixed = self._repairs.repair(segment)
            if fixed is not None and (fixed == segment or not is_bad(fixed)):
                return fixed
        return str(self._ftfy.fix_text(segment, unescape_html=False if markup else "auto"))

    def split_line(self, chunks: list[str]) -> list[str]:
        """The words of a standardised line, given as its chunks."""
        return [token.text.lower() for token in self._tokenizer(" ".join(chunks))]

    def split_chunk(self, chunk: str) -> list[str] | None:
        """The words of a chunk of a standardised line; None where they may depend on its neighbours."""
        plain = _PLAIN.fullmatch(chunk)
        if plain is not None and self._cases.isdisjoint(_inside(chunk, plain)):
            return [group.lower() for group in plain.groups() if group]
        tokens = [token.text for token in self._tokenizer(chunk)]
        if chunk not in self._cases and tokens != [token.text for token in self._plain_tokenizer(chunk)]:
            return None
        return [token.lower() for token in tokens]


def _inside(chunk: str, plain: re.Match[str]) -> tuple[str, ...]:
    """What of a plain chunk could be a special case: it whole, its letters, and each affix with them."""
    before, letters, stop, quote, possessive, capitals = plain.groups(default="")
    if capitals or chunk == letters:
        return (chunk,)
    return chunk, letters, before + letters, letters + stop, letters + quote, letters + possessive


class _CharacterRepairs:
    """What ftfy makes of single characters, found out once for each."""

    def __init__(self) -> None:
        import ftfy.fixes as fixes

        self._steps = (
            fixes.fix_c1_controls,
            fixes.fix_latin_ligatures,
            fixes.fix_character_width,
            fixes.uncurl_quotes,
            fixes.remove_control_chars,
        )
        self._table = _Table(self._repair_character)

    def repair(self, segment: str) -> str | None:
        """The segment with every character repaired; None where one pass does not settle it."""
        import unicodedata

        fixed = segment.translate(self._table)
        if fixed != segment and fixed.translate(self._table) != fixed:
            return None
        return fixed if unicodedata.is_normalized("NFC", fixed) else None

    def _repair_character(self, character: str) -> str:
        for step in self._steps:
            character = step(character)
        return character


class _Table(dict[int, str]):
    """A translation table that works an entry out when it is first asked for."""

    def __init__(self, repair: Any) -> None:
        self._repair = repair

    def __missing__(self, code: int) -> str:
        fixed: str = self._repair(chr(code))
        self[code] = fixed
        return fixed


def _shown(token: str) -> str:
    """A token as decoded text has it: a space ends a word, a newline stands alone."""
    if token == NEWLINE:
        return "\n"
    return token.removesuffix(WORD_END) + " " if token.endswith(WORD_END) else token
