"""The readable twin of everything: slow and short, to read with the papers and to compare with in tests.

GPT-2: the pre-split of the authors' encoder and byte-pair merging, Radford et al. 2019, section 2.2. GPT-1:
ftfy, the authors' text standardisation with its quirks, spaCy's English tokenizer, lower case, character
pairs with `</w>`, Radford et al. 2018, section 4.1. Training: count every pair, merge the most frequent
one, start again.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from headwater.tokenizer.vocabulary import (
    BYTE_CHARACTERS,
    NEWLINE,
    UNKNOWN,
    WORD_END,
    Vocabulary,
)

CONTRACTIONS = ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d")


def split_gpt2(text: str) -> list[str]:
    """Return GPT-2's pre-split: contractions; words, numbers or signs with a space before them; white space.

    The last character of white space belongs to the next piece.
    """
    pieces = []
    position = 0
    while position < len(text):
        end = _piece_end(text, position)
        pieces.append(text[position:end])
        position = end
    return pieces


def _piece_end(text: str, start: int) -> int:
    for contraction in CONTRACTIONS:
        if text.startswith(contraction, start):
            return start + len(contraction)
    first = start + 1 if text[start] == " " and start + 1 < len(text) else start
    kind = _category(text[first])
    if kind != "space":
        return _run_end(text, first)
    end = _run_end(text, start)
    return end - 1 if end < len(text) and end - start > 1 else end


def _run_end(text: str, position: int) -> int:
    kind = _category(text[position])
    while position < len(text) and _category(text[position]) == kind:
        position += 1
    return position


def _category(character: str) -> str:
    if character.isspace() and character not in "\x1c\x1d\x1e\x1f":  # Python's spaces, not Unicode's
        return "space"
    major = unicodedata.category(character)[0]
    return {"L": "letter", "N": "number"}.get(major, "sign")


def merge_word(symbols: Sequence[str], ranks: dict[tuple[str, str], int]) -> list[str]:
    """Merge the adjacent pair of the lowest rank, wherever it occurs, until no pair has a rank."""
    word = list(symbols)
    while len(word) > 1:
        best = min(pairwise(word), key=lambda pair: ranks.get(pair, len(ranks)))
        if best not in ranks:
            break
        word = _merge(word, best)
    return word


def _merge(word: Sequence[str], pair: tuple[str, str]) -> list[str]:
    merged: list[str] = []
    position = 0
    while position < len(word):
        if tuple(word[position : position + 2]) == pair:
            merged.append(pair[0] + pair[1])
            position += 2
        else:
            merged.append(word[position])
            position += 1
    return merged


def encode_gpt2(text: str, vocabulary: Vocabulary) -> list[int]:
    """Return the ids of a text without special tokens."""
    ranks = {pair: rank for rank, pair in enumerate(vocabulary.merges)}
    ids = []
    for piece in split_gpt2(text):
        symbols = [BYTE_CHARACTERS[byte] for byte in piece.encode("utf-8")]
        ids += [vocabulary.ids[symbol] for symbol in merge_word(symbols, ranks)]
    return ids


def standardize(text: str) -> str:
    """Apply GPT-1's text standardisation: fewer kinds of dash, spaces around signs, simpler white space.

    No spaces around backslashes: in the authors' pattern, not a raw string, their branch matches a plus sign.
    """
    for dash in "—–―":
        text = text.replace(dash, "-")
    text = text.replace("…", "...").replace("´", "'")
    text = re.sub(r"""(-+|~+|!+|"+|;+|\?+|\++|,+|\)+|\(+|/+|\*+|\[+|\]+|\}+|\{+|\|+|_+)""", r" \1 ", text)
    text = re.sub(r"\s*\n\s*", " \n ", text)
    text = re.sub(r"[^\S\n]+", " ", text)
    return text.strip()


def split_gpt1(text: str, tokenizer: Any) -> list[str]:
    """Return GPT-1's words; `tokenizer` is spaCy's English one."""
    import ftfy

    return [token.text.lower() for token in tokenizer(standardize(ftfy.fix_text(text)))]


def encode_gpt1(text: str, vocabulary: Vocabulary, tokenizer: Any) -> list[int]:
    """Return the ids of a text without special tokens; pieces outside the vocabulary are `<unk>`."""
    ranks = {pair: rank for rank, pair in enumerate(vocabulary.merges)}
    unknown = vocabulary.ids[UNKNOWN]
    ids = []
    for word in split_gpt1(text, tokenizer):
        pieces = merge_word([*word[:-1], word[-1] + WORD_END], ranks)
        if "".join(pieces) == "\n " + WORD_END:
            pieces = [NEWLINE]
        ids += [vocabulary.ids.get(piece, unknown) for piece in pieces]
    return ids


def learn_merges(
    words: dict[tuple[str, ...], int], alphabet: Sequence[str], new_tokens: int
) -> list[tuple[str, str]]:
    """Return merges in order of rank, until there are `new_tokens` new tokens or no pair is left.

    Of equally frequent pairs, the one with the lowest left, then right id is merged. `alphabet` is sorted by id.
    """
    tokens = {symbol: index for index, symbol in enumerate(alphabet)}
    counted = dict(words)
    merges = []
    while len(tokens) < len(alphabet) + new_tokens:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, count in counted.items():
            for pair in pairwise(word):
                pairs[pair] += count
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], tokens[pair[0]], tokens[pair[1]]))
        merges.append(best)
        tokens.setdefault(best[0] + best[1], len(tokens))
        merged: Counter[tuple[str, ...]] = Counter()
        for word, count in counted.items():
            merged[tuple(_merge(word, best))] += count
        counted = dict(merged)
    return merges
