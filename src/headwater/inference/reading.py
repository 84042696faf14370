"""How text becomes token ids to score: a continuation after its context, and windows over a long text.

The library, `headwater evaluate` and the server all use these two functions, so they score the same tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headwater.inference.request import shared_length
from headwater.tokenizer import Tokenizer

# The ids of a context and of the continuation after it.
Pair = tuple[list[int], list[int]]


def encode_pairs(tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]]) -> list[Pair]:
    """Encode each context and its continuation as one text, and split the ids between them.

    White space at the end of a context belongs to the continuation, as in GPT-2's tokens, and so does a token that
    has characters of both. A context may therefore have no ids.
    """
    contexts = tokenizer.encode_batch([context.rstrip() for context, _ in pairs], None)
    texts = tokenizer.encode_batch([context + continuation for context, continuation in pairs], None)
    borders = map(shared_length, contexts, texts)
    return [(ids[:border], ids[border:]) for ids, border in zip(texts, borders, strict=True)]


def windows(ids: Sequence[int], first: int, context: int, stride: int | None = None) -> Iterator[Pair]:
    """Split a text into pairs, in whose continuations every token from `first` (at least 1) on occurs once.

    A pair's last token has up to `context` tokens before it. If one pair is not enough, the first has the tokens
    within `context` of the text's start, at least `stride`, and each later one the next `stride`: by default half
    the context. (GPT-2's paper, section 3.1, states neither.)
    """
    stride = stride or max(1, context // 2)
    start = first
    end = len(ids) if len(ids) - first <= context else max(first + stride, context + 1)
    while start < len(ids):
        yield list(ids[max(0, end - 1 - context) : start]), list(ids[start:end])
        start, end = end, min(len(ids), end + stride)
