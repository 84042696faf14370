"""The tokenizer in a GGUF file of a GPT-2: tokens and merges, as llama.cpp's converter writes them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from headwater.errors import DataError
from headwater.shipped import gguf_value, open_gguf
from headwater.tokenizer.files import assemble
from headwater.tokenizer.folder import Roles
from headwater.tokenizer.vocabulary import AddedToken, Vocabulary

_CONTROL, _ADDED, _UNUSED = 3, 4, 5  # token types of the format
_SPLITS = ("gpt-2", "gpt2", "default")


def read_gguf(path: Path) -> tuple[Vocabulary, Roles]:
    """Return vocabulary and roles of a file; raise DataError for a tokenizer that is not GPT-2's."""
    reader = open_gguf(path)
    name = "tokenizer.ggml"
    kind, split = gguf_value(reader, f"{name}.model"), gguf_value(reader, f"{name}.pre", "gpt-2")
    if kind != "gpt2" or split not in _SPLITS:
        raise DataError(f"{path} has the tokenizer {kind!r} with the split {split!r}", expected="gpt2 with gpt-2")
    tokens = [str(token) for token in gguf_value(reader, f"{name}.tokens", [])]
    types = gguf_value(reader, f"{name}.token_type", [1] * len(tokens))
    while tokens and types[len(tokens) - 1] == _UNUSED:  # rows without an id, of a padded matrix
        tokens.pop()
    pairs = (str(merge).partition(" ") for merge in gguf_value(reader, f"{name}.merges", []))
    merges = [(left, right) for left, _, right in pairs]
    specials = {token: number for number, token in enumerate(tokens) if types[number] in (_CONTROL, _ADDED)}
    numbered = {token: number for number, token in enumerate(tokens)}
    vocabulary = assemble(numbered, merges, specials, str(path), str(path), 1)
    ordinary = (AddedToken(token, special=False) for token, number in specials.items() if types[number] == _ADDED)
    vocabulary = replace(vocabulary, unusual=tuple(ordinary))
    ids = {role: gguf_value(reader, f"{name}.{role}_token_id") for role in ("bos", "eos", "padding")}
    start, end, padding = (i if isinstance(i, int) and 0 <= i < len(tokens) else None for i in ids.values())
    return vocabulary, Roles(start, () if end is None else (end,), padding)
