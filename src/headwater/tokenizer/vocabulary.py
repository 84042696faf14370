"""`Vocabulary`: tokens by id, merges in order of rank, special tokens; and a check of their consistency.

Kinds "gpt2" and "gpt1" are byte-pair encodings and differ in their alphabet: "gpt2" (Radford et al. 2019, section
2.2) has the 256 bytes, written as printable characters; "gpt1" (Radford et al. 2018, section 4.1) has characters,
the last one of a word with `</w>`. Kind "foreign" is any other tokenizer of the `tokenizers` library. `folder`
reads and writes files; `gpt1` and `codec` encode.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from headwater.errors import DataError, UsageError
from headwater.reading import without_surrogates

Kind = Literal["gpt2", "gpt1", "foreign"]
# The ids of several texts one after another, and len(texts) + 1 offsets.
Encoded = tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]
END_OF_TEXT = "<|endoftext|>"
UNKNOWN, UNKNOWN_WORD = "<unk>", "[UNK]"
NEWLINE = "\n</w>"
WORD_END = "</w>"
# Start, delimiter and extract of GPT-1, figure 1, with the names of the authors' code.
TASK_TOKENS = ("_start_", "_delimiter_", "_classify_")
# BERT's special tokens; a masked model with another vocabulary has `MASK` as an additional row.
PADDING, CLASSIFY, SEPARATOR, MASK = "[PAD]", "[CLS]", "[SEP]", "[MASK]"

_SURROGATE = re.compile("[\ud800-\udfff]")


class AddedToken(NamedTuple):
    """How a token that was added to a vocabulary is searched for in a text.

    It is one token wherever it occurs; a special one is plain text unless the caller allows it. `lstrip` and
    `rstrip` take the white space next to it, `single_word` requires a border of words on both sides, and a
    `normalized` one is searched for in the cleaned text (such as lower case).
    """

    content: str
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = False
    special: bool = True


class TaskTokens(NamedTuple):
    """Ids of the three tokens that fine-tuning adds."""

    start: int
    delimiter: int
    extract: int


# Each byte's printable character: its own for 188 bytes, U+0100 and up in order for the other 68.
_PRINTABLE = {*range(33, 127), *range(161, 173), *range(174, 256)}
_OTHERS = count(256)
BYTE_CHARACTERS = tuple(chr(byte if byte in _PRINTABLE else next(_OTHERS)) for byte in range(256))
CHARACTER_BYTES = {character: byte for byte, character in enumerate(BYTE_CHARACTERS)}
# The bytes by id, 0-255: sorted by their characters.
BYTE_ORDER = tuple(sorted(range(256), key=lambda byte: BYTE_CHARACTERS[byte]))


def characters_to_bytes(text: str) -> bytes:
    """Return the bytes of the printable text of GPT-2's files; raise KeyError for a character of no byte."""
    return bytes(map(CHARACTER_BYTES.__getitem__, text))


def token_dtype(vocabulary_size: int) -> type[np.uint16] | type[np.uint32]:
    """Return the smaller of the two types that can represent every id."""
    return np.uint16 if vocabulary_size <= 1 << 16 else np.uint32


@dataclass(frozen=True)
class Vocabulary:
    """Tokens by id as in their files, merges by rank, and how each added token is found in a text."""

    kind: Kind
    tokens: tuple[str, ...]
    merges: tuple[tuple[str, str], ...]
    added: tuple[AddedToken, ...] = ()
    # Kind foreign: the tokenizer as the JSON of the `tokenizers` library.
    library: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Vocabulary(kind={self.kind!r}, {len(self.tokens):,} tokens, {len(self.merges):,} merges)"

    @cached_property
    def ids(self) -> dict[str, int]:
        """Ids by token, including added tokens."""
        return {token: index for index, token in enumerate(self.tokens)}

    @cached_property
    def specials(self) -> dict[str, int]:
        """Ids by added token."""
        return {token.content: self.ids[token.content] for token in self.added}

    @cached_property
    def plain_ids(self) -> dict[str, int]:
        """Ids of the tokens that text without special tokens can be encoded to.

        A special token is among them if a merge makes or uses it, or if it is one character.
        """
        alphabet: Iterable[str] = BYTE_CHARACTERS if self.kind == "gpt2" else ()
        if self.kind == "gpt1":
            alphabet = (token for token in self.tokens if len(token.removesuffix(WORD_END)) == 1)
        special = set(self.specials).difference(alphabet, *self.merges, map("".join, self.merges))
        return {token: index for token, index in self.ids.items() if token not in special}

    @cached_property
    def identity(self) -> str:
        """SHA-256 of everything that decides an id."""
        content: list[object] = [self.kind, self.tokens, self.merges, self.added]
        content += [{**self.library, "post_processor": None}] if self.library else []
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def with_specials(self, names: Iterable[str]) -> Vocabulary:
        """Return the vocabulary with `names` as additional rows; existing ones keep their ids."""
        new = [name for name in dict.fromkeys(names) if name not in self.specials]
        for name in new:
            if not name or name in self.ids or name != without_surrogates(name):
                raise UsageError(
                    f"the special token {name!a} is empty, already an ordinary token or not UTF-8",
                    expected="a different text for each special token",
                )
        added, library = tuple(map(AddedToken, new)), self.library
        if library:
            entries = [{"id": i, **token._asdict()} for i, token in enumerate(added, len(self.tokens))]
            library = {**library, "added_tokens": library["added_tokens"] + entries}
        return replace(self, tokens=(*self.tokens, *new), added=(*self.added, *added), library=library)


def assemble(
    vocab: Mapping[str, int],
    merges: Sequence[tuple[str, str]],
    added: Mapping[AddedToken, int],
    vocabulary_file: Path,
    merges_file: Path,
) -> Vocabulary:
    """Return the vocabulary of ids, merges and added tokens, which were read from two files or from one.

    Raises DataError, with the file and the number of a merge, if they are inconsistent.
    """
    # Only GPT-1's vocabularies have this newline token.
    kind: Kind = "gpt1" if NEWLINE in vocab else "gpt2"
    ids = {**vocab, **{token.content: index for token, index in added.items()}}
    names = TASK_TOKENS if kind == "gpt1" else (END_OF_TEXT, *TASK_TOKENS)
    special = {name: AddedToken(name) for name in names if name in ids} | {t.content: t for t in added}
    if kind == "gpt1":
        special.pop(UNKNOWN, None)
    by_id = {index: token for token, index in ids.items() if token and type(index) is int}
    if (unused := next((index for index in range(len(ids)) if index not in by_id), None)) is not None:
        raise DataError(
            f"the tokenizer of {vocabulary_file} has no token with the id {unused}",
            expected=f"{len(ids):,} tokens with the ids 0 to {len(ids) - 1}, each once",
        )
    tokens = [by_id[index] for index in range(len(ids))]
    alphabet = set(BYTE_CHARACTERS)
    if kind == "gpt1":
        alphabet = {t for t in ids if len(t.removesuffix(WORD_END)) == 1} | {UNKNOWN, NEWLINE, WORD_END}
    made = {*alphabet, *special}
    for number, pair in enumerate(merges, 1):
        for part in (*pair, "".join(pair)):
            if part not in ids:
                raise DataError(
                    f"merge {number} of {merges_file} merges {pair[0]!r} and {pair[1]!r}, but {part!r} is not in "
                    f"{vocabulary_file}",
                    expected="merges and a vocabulary of the same tokenizer",
                )
        made.add("".join(pair))
    for token in tokens:
        if token not in made:
            raise DataError(
                f"{merges_file} has {len(merges):,} merges and none makes {token!r} (id {ids[token]}) of "
                f"{vocabulary_file}",
                expected="a merge for every token; the file may have been cut short",
                repair=f"Get {merges_file} again",
            )
    if kind == "gpt1" and UNKNOWN not in ids:
        raise DataError(f"{vocabulary_file} lacks {UNKNOWN}", expected="a token for unknown characters")
    # Nothing cleans the text of a byte-level tokenizer: a token is always searched for as it is.
    in_order = [token._replace(normalized=token.normalized and kind == "gpt1") for token in special.values()]
    in_order.sort(key=lambda token: ids[token.content])
    return Vocabulary(kind, tuple(tokens), tuple(merges), tuple(in_order))


def as_unicode(texts: Sequence[str]) -> list[str]:
    """Return the texts with surrogate pairs joined; raise DataError for a lone surrogate, which has no bytes."""
    unicode: list[str] = []
    for number, text in enumerate(texts, 1):
        joined = text
        if not text.isascii() and _SURROGATE.search(text):
            joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        if joined is not text and (lone := _SURROGATE.search(joined)) is not None:
            which = f"text {number} of {len(texts)}" if len(texts) > 1 else "the text"
            code = ord(lone[0])
            # Python reads a byte of the command line that is not UTF-8 as one of these.
            if 0xDC80 <= code <= 0xDCFF:
                seen = f"{which} is not UTF-8: byte 0x{code - 0xDC00:02x} at character {lone.start()}"
            else:
                seen = f"{which} has the lone surrogate U+{code:04X} at character {lone.start()}"
            raise DataError(seen, expected="Unicode text", repair="Replace or remove it")
        unicode.append(joined)
    return unicode
