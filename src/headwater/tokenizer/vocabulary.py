"""What a vocabulary is: tokens by id, merges in order of rank, special tokens; and whether they fit together.

Both kinds are byte-pair encodings and differ in their alphabet. Kind "gpt2" (Radford et al. 2019, section
2.2) writes the 256 bytes as printable characters; kind "gpt1" (Radford et al. 2018, section 4.1) has
characters, of which the last of a word carries `</w>`. Reading and writing files is left to `files`,
encoding to `gpt2` and `gpt1`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from headwater.errors import DataError, UsageError

Kind = Literal["gpt2", "gpt1", "wordpiece"]
END_OF_TEXT = "<|endoftext|>"
UNKNOWN = "<unk>"
NEWLINE = "\n</w>"
WORD_END = "</w>"
# Start, delimiter and extract of GPT-1, figure 1, under the names that the authors' code gives them.
TASK_TOKENS = ("_start_", "_delimiter_", "_classify_")
# BERT's special tokens; a masked model with any other vocabulary has `MASK` as a row of its own.
PADDING, CLASSIFY, SEPARATOR, MASK = "[PAD]", "[CLS]", "[SEP]", "[MASK]"


def _byte_characters() -> tuple[str, ...]:
    """The printable character that stands for each byte.

    188 bytes stand for themselves, the other 68 take U+0100 upward in increasing order.
    """
    characters: list[str] = []
    moved = 0
    for byte in range(256):
        if 33 <= byte <= 126 or 161 <= byte <= 172 or 174 <= byte <= 255:
            characters.append(chr(byte))
        else:
            characters.append(chr(256 + moved))
            moved += 1
    return tuple(characters)


BYTE_CHARACTERS = _byte_characters()
CHARACTER_BYTES = {character: byte for byte, character in enumerate(BYTE_CHARACTERS)}
# The bytes in the order of their ids 0-255: by the character that stands for them.
BYTE_ORDER = tuple(sorted(range(256), key=lambda byte: BYTE_CHARACTERS[byte]))
_TO_CHARACTERS = dict(enumerate(BYTE_CHARACTERS))


def bytes_to_characters(data: bytes) -> str:
    """Bytes as the printable text that GPT-2's vocabulary files hold."""
    return data.decode("latin-1").translate(_TO_CHARACTERS)


def characters_to_bytes(text: str) -> bytes:
    """The inverse of `bytes_to_characters`; raises KeyError for a character that stands for no byte."""
    return bytes(map(CHARACTER_BYTES.__getitem__, text))


@dataclass(frozen=True)
class Vocabulary:
    """Tokens by id as their files write them, merges by rank, and the id of each special token."""

    kind: Kind
    tokens: tuple[str, ...]
    merges: tuple[tuple[str, str], ...]
    specials: Mapping[str, int]
    # How kind wordpiece cleans text: BERT's settings, sorted by name. The other kinds have none.
    rules: tuple[tuple[str, bool | None], ...] = ()

    def __repr__(self) -> str:
        return f"Vocabulary(kind={self.kind!r}, {len(self.tokens):,} tokens, {len(self.merges):,} merges)"

    @cached_property
    def ids(self) -> dict[str, int]:
        """Id by token, special tokens included."""
        return {token: index for index, token in enumerate(self.tokens)}

    @cached_property
    def identity(self) -> str:
        """SHA-256 over everything that decides an id."""
        content: list[object] = [self.kind, self.tokens, self.merges, sorted(self.specials.items())]
        content += [self.rules] if self.rules else []
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def with_specials(self, names: Iterable[str]) -> Vocabulary:
        """The same vocabulary with `names` as rows after it; those that it has already keep their ids."""
        new = [name for name in dict.fromkeys(names) if name not in self.specials]
        for name in new:
            if not name or name in self.ids:
                raise UsageError(
                    f"the special token {name!r} is empty or already an ordinary token",
                    expected="a text of its own for each special token",
                )
        start = len(self.tokens)
        return Vocabulary(
            self.kind,
            (*self.tokens, *new),
            self.merges,
            {**self.specials, **{name: start + place for place, name in enumerate(new)}},
            self.rules,
        )


def check(
    kind: Kind,
    ids: Mapping[str, int],
    merges: Sequence[tuple[str, str]],
    specials: Iterable[str],
    *,
    vocabulary_name: str,
    merges_name: str,
    first_line: int = 1,
) -> Vocabulary:
    """The Vocabulary of these parts; raises DataError, with file and line, when they do not fit together."""
    if "" in ids:
        raise DataError(f"{vocabulary_name}, or a file beside it, names an empty token", expected="tokens of text")
    tokens: list[str] = [""] * len(ids)
    for token, index in ids.items():
        if not isinstance(index, int) or not 0 <= index < len(ids):
            raise DataError(
                f"{vocabulary_name} gives {token!r} the id {index!r}",
                expected=f"ids 0 to {len(ids) - 1}, each once",
            )
        if tokens[index]:
            raise DataError(
                f"{vocabulary_name} gives {tokens[index]!r} and {token!r} the same id {index}",
                expected="each id once",
            )
        tokens[index] = token
    made = set()
    for rank, pair in enumerate(merges):
        for part in (*pair, "".join(pair)):
            if part not in ids:
                raise DataError(
                    f"{merges_name} line {first_line + rank} merges {pair[0]!r} and {pair[1]!r}, "
                    f"but {part!r} is not in {vocabulary_name}",
                    expected="a merges file and a vocabulary of the same tokenizer",
                )
        made.add("".join(pair))
    special = [name for name in specials if name in ids]
    alphabet = _alphabet(kind, ids)
    for token in tokens:
        if token not in made and token not in alphabet and token not in special:
            raise DataError(
                f"{merges_name} has {len(merges):,} merges and none makes {token!r} (id {ids[token]}) of "
                f"{vocabulary_name}",
                expected="a merge for every token; the file may have been cut short",
                repair=f"Get {merges_name} again",
            )
    if kind == "gpt2":
        missing = [byte for byte, character in enumerate(BYTE_CHARACTERS) if character not in ids]
        if missing:
            raise DataError(
                f"{vocabulary_name} lacks {len(missing)} of the 256 bytes, the first 0x{missing[0]:02x}",
                expected="a byte-level vocabulary, as GPT-2's",
            )
    elif UNKNOWN not in ids:
        raise DataError(f"{vocabulary_name} lacks {UNKNOWN}", expected="a vocabulary of characters, as GPT-1's")
    return Vocabulary(kind, tuple(tokens), tuple(merges), {name: ids[name] for name in special})


def _alphabet(kind: Kind, ids: Mapping[str, int]) -> set[str]:
    """The tokens that no merge needs to make."""
    if kind == "gpt2":
        return set(BYTE_CHARACTERS)
    return {t for t in ids if len(t.removesuffix(WORD_END)) == 1} | {UNKNOWN, NEWLINE, WORD_END}
