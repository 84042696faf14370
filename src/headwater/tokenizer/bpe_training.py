"""Train a byte-pair encoding: learn a vocabulary of either kind from text.

Words are counted, then merges are learned from the counts. Ids have the originals' order. Kind gpt2: the 256
bytes, the merges, the special tokens (`<|endoftext|>` first). Kind gpt1: `<unk>`, the characters, the characters
at the end of a word, the merges, the newline, any special tokens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from headwater.display import counted
from headwater.errors import UsageError
from headwater.storage import SILENT, Progress
from headwater.tokenizer.bpe_merges import WordCounts, learn_merges
from headwater.tokenizer.bpe_words import (
    Sources,
    count_byte_words,
    count_character_words,
    known_bytes,
    read_blocks,
)
from headwater.tokenizer.vocabulary import (
    BYTE_CHARACTERS,
    BYTE_ORDER,
    END_OF_TEXT,
    NEWLINE,
    UNKNOWN,
    WORD_END,
    Kind,
    Vocabulary,
)


def learn_vocabulary(
    sources: Sources,
    kind: Kind = "gpt2",
    vocab_size: int = 32_000,
    special_tokens: Sequence[str] = (),
    *,
    progress: Progress = SILENT,
) -> Vocabulary:
    """Return the vocabulary learned from `sources`, see `Tokenizer.train`."""
    if kind not in ("gpt2", "gpt1"):
        raise UsageError(f"a vocabulary of kind {kind!r} cannot be learned", expected="kind gpt2 or gpt1")
    specials = list(dict.fromkeys([*([END_OF_TEXT] if kind == "gpt2" else []), *special_tokens]))
    tokens = [BYTE_CHARACTERS[byte] for byte in BYTE_ORDER] if kind == "gpt2" else [UNKNOWN, NEWLINE]
    # Raises UsageError for a bad special token before the text is read.
    Vocabulary(kind, tuple(tokens), ()).with_specials(specials)
    texts = read_blocks(sources, specials)
    progress.start("count words", total=known_bytes(sources), unit="bytes")
    if kind == "gpt2":
        free = _free_tokens(vocab_size, len(tokens) + len(specials), "256 bytes", len(specials))
        words, first = count_byte_words(texts, progress), 0
    else:
        counted = count_character_words(texts, progress)
        words, tokens = _spell(counted)
        needed = len(tokens) + 1 + len(specials)
        alphabet = f"{len(tokens) // 2:,} characters, inside and at the end of words,"
        free = _free_tokens(vocab_size, needed, alphabet, len(specials))
        first = 1
    progress.finish(f"{len(words):,} distinct words")
    progress.start("learn merges", total=free, unit="tokens")
    pairs = _append_merges(tokens, learn_merges(words, len(tokens) - first, free, progress) + first)
    if kind == "gpt1":
        tokens.append(NEWLINE)
    vocabulary = Vocabulary(kind, tuple(tokens), tuple(pairs)).with_specials(specials)
    progress.finish(f"{len(vocabulary.tokens):,} tokens")
    if len(vocabulary.tokens) < vocab_size:
        progress.note(
            f"The text gives only {len(vocabulary.tokens):,} tokens: each of its words is then one token"
        )
    return vocabulary


def _append_merges(tokens: list[str], learned: npt.NDArray[np.int32]) -> list[tuple[str, str]]:
    """Append the token of each merge to `tokens`; return the merges. learned: (merges, 3), see `learn_merges`."""
    pairs = []
    for left, right, merged in learned:
        pair = (tokens[left], tokens[right])
        if merged == len(tokens):
            tokens.append("".join(pair))
        pairs.append(pair)
    return pairs


def _spell(counted: Counter[str]) -> tuple[WordCounts, list[str]]:
    """Return GPT-1's words as characters, the last one marked, and their alphabet in the original's order."""
    characters = sorted({character for word in counted for character in word if not word.isspace()})
    inside = {character: index for index, character in enumerate(characters)}
    words = WordCounts.of(
        ([*(inside[c] for c in word[:-1]), len(characters) + inside[word[-1]]], count)
        for word, count in counted.items()
        if not word.isspace()
    )
    return words, [UNKNOWN, *characters, *(character + WORD_END for character in characters)]


def _free_tokens(vocab_size: int, needed: int, alphabet: str, specials: int) -> int:
    if vocab_size < needed:
        raise UsageError(
            f"a vocabulary of {vocab_size:,} is too small for {alphabet} and {counted(specials, 'special token')}",
            expected=f"at least {needed:,}",
            repair=f"Give --vocab-size {needed:,} or more".replace(",", ""),
        )
    return vocab_size - needed
