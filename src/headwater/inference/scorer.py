"""Exact log-probabilities of text, for zero-shot evaluation.

A request is a context and its continuation; the continuation's tokens are scored. Requests are laid out
without padding; a prefix that requests share (one question, four answers) is computed once; logits are computed
only for rows that predict a scored token. This does not change a score: attention runs one branch at a time, so
that other requests change a result by no more than the rounding of a matrix product (float32: below 1e-5).

`encode_pairs` splits pairs of texts into tokens, and `windows` text longer than the model's context; every token
is scored once. The library, `headwater evaluate` and the server all use these two functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headwater.errors import DataError
from headwater.inference.network import Network
from headwater.inference.request import require_context, require_ids, shared_length
from headwater.inference.sampling import Alternatives, alternatives, log_sums, not_finite
from headwater.inference.shared_prefixes import forests
from headwater.tokenizer import Tokenizer

# The ids of a context and of the continuation after it.
Pair = tuple[list[int], list[int]]
Rows = npt.NDArray[np.int64]
# Bytes of the logits of one chunk of scored rows.
_LOGIT_BYTES = 16 * 1024**2


class TokenScores(NamedTuple):
    """For each scored token: its log-probability, float32, and whether no token was likelier, bool."""

    log_probability: npt.NDArray[np.float32]
    is_greedy: npt.NDArray[np.bool_]


class Scorer:
    """Scores text with one network and its tokenizer. Calls are safe from several threads."""

    def __init__(self, network: Network, tokenizer: Tokenizer) -> None:
        self.network, self.tokenizer = network, tokenizer
        self.vocabulary: int = network.config.vocabulary
        self.context: int = network.config.context
        tokenizer.require_rows(self.vocabulary)

    def score_ids(self, requests: Sequence[tuple[list[int], list[int]]]) -> list[tuple[float, bool]]:
        """Return log P(continuation | context) of each pair of ids, and whether greedy decoding gives it."""
        return [
            (float(scores.log_probability.sum(dtype=np.float64)), bool(scores.is_greedy.all()))
            for scores in self.token_scores(requests)
        ]

    @torch.inference_mode()
    def token_scores(self, requests: Sequence[tuple[list[int], list[int]]]) -> list[TokenScores]:
        """Return the scores of each token of the continuations, for pairs of context and continuation ids.

        A request longer than the model's context loses the start of its context. A continuation that is itself
        longer is split into windows that advance by half the model's context. Raises DataError for a score that is
        not a finite number.
        """
        pairs: list[Pair] = []
        for number, (context, continuation) in enumerate(requests):
            if not context:
                raise DataError(
                    f"the context of request {number} has no tokens", expected="at least one to predict from"
                )
            if not continuation:
                raise DataError(f"the continuation of request {number} has no tokens")
            ids = [*context, *continuation]
            require_ids(ids, self.vocabulary)
            pairs += windows(ids, len(context), self.context)
        ends = np.cumsum([len(continuation) for _, continuation in requests], dtype=np.int64)
        log_probability = np.empty(ends[-1] if len(ends) else 0, np.float32)
        is_greedy = np.empty(len(log_probability), np.bool_)
        with self.network.lock:
            for logits, rows, targets, tokens in self._predictions(pairs):
                row, token = (torch.from_numpy(index).to(logits.device) for index in (rows, tokens))
                (sums, largest), chosen = log_sums(logits), logits[row, token]
                log_probability[targets] = (chosen - sums[row]).cpu().numpy()
                if not np.isfinite(log_probability[targets]).all():
                    raise not_finite(float(logits.abs().max()))
                is_greedy[targets] = (chosen >= largest[row]).cpu().numpy()
        parts = zip(np.split(log_probability, ends)[:-1], np.split(is_greedy, ends)[:-1], strict=True)
        return [TokenScores(*part) for part in parts]

    def encode_pairs(self, pairs: Sequence[tuple[str, str]]) -> list[Pair]:
        """Return the result of the function `encode_pairs`; raise DataError for a pair without a score."""
        if self.tokenizer.start_of_text is None and not all(context.strip() for context, _ in pairs):
            raise DataError(
                "a context is empty and this tokenizer has no <|endoftext|> to use instead",
                repair="Give at least one word of context",
            )
        encoded = encode_pairs(self.tokenizer, pairs)
        for (_, text), (_, continuation) in zip(pairs, encoded, strict=True):
            if not continuation:
                raise DataError(f"the continuation {text!r} adds no token to its context")
        return encoded

    @torch.inference_mode()
    def mean_states(self, texts: Sequence[Sequence[int]]) -> npt.NDArray[np.float32]:
        """Return the embedding of each text, (texts, width): the mean of its last hidden states."""
        for ids in texts:
            require_context(len(ids), self.context)
            require_ids(ids, self.vocabulary)
        means = np.empty((len(texts), self.network.config.width), np.float32)
        with self.network.lock, np.errstate(over="ignore", invalid="ignore"):  # `require_finite` says it
            for forest in forests([list(ids) for ids in texts]):
                states = self.network.hidden(forest, np.arange(len(forest.ids))).cpu().numpy()
                for member, path in zip(forest.members, forest.paths, strict=True):
                    means[member] = states[path].mean(0)
        require_finite(means)
        return means

    @torch.inference_mode()
    def alternatives(self, texts: Sequence[Sequence[int]], count: int) -> list[list[Alternatives]]:
        """Return for each text the log-probability of each token but the first, and the `count` likeliest."""
        for ids in texts:
            require_context(len(ids) - 1, self.context)
            require_ids(ids, self.vocabulary)
        pairs = [(list(ids[:1]), list(ids[1:])) for ids in texts]
        scores: dict[int, Alternatives] = {}
        with self.network.lock:
            for logits, rows, targets, tokens in self._predictions(pairs):
                known = alternatives(logits, rows.tolist(), tokens.tolist(), count, self.tokenizer.vocabulary_size)
                for target, about in zip(targets.tolist(), known, strict=True):
                    if not np.isfinite(about.log_probability):
                        raise not_finite(about.log_probability, "a log-probability")
                    scores[target] = about
        in_order = (scores[target] for target in range(len(scores)))
        return [list(islice(in_order, len(rest))) for _, rest in pairs]

    def _predictions(self, pairs: Sequence[Pair]) -> Iterator[tuple[Tensor, Rows, Rows, Rows]]:
        """Yield logits in chunks, (rows, vocabulary), valid until the next, with the tokens that they predict.

        For each such token: its row in the chunk, its number among the tokens of all continuations, and its id.
        A row that predicts several tokens is projected once.
        """
        first = np.cumsum([0, *(len(continuation) for _, continuation in pairs)])
        scored = [number for number, (_, continuation) in enumerate(pairs) if continuation]
        for forest in forests([[*pairs[number][0], *pairs[number][1][:-1]] for number in scored]):
            members = [scored[member] for member in forest.members]
            wanted = [pairs[number][1] for number in members]
            rows = np.concatenate([path[-len(ids) :] for path, ids in zip(forest.paths, wanted, strict=True)])
            targets = np.concatenate([np.arange(first[number], first[number + 1]) for number in members])
            tokens = np.concatenate(wanted)
            projected, source = np.unique(rows, return_inverse=True)
            order = np.argsort(source, kind="stable")
            for start, logits in _projected(self.network, self.network.hidden(forest, projected)):
                low, high = np.searchsorted(source[order], [start, start + len(logits)])
                chunk = order[low:high]
                yield logits, source[chunk] - start, targets[chunk], tokens[chunk]


@torch.inference_mode()
def logits_of(network: Network, ids: Tensor) -> Tensor:
    """Return next-token logits: (batch, time) int64 -> (batch, time, vocabulary) float32.

    Raises ContextError for a text longer than the context, UsageError for an id that is not a row of the model.
    """
    require_context(ids.shape[1], network.config.context)
    rows = ids.tolist()
    require_ids([token for row in rows for token in row], network.config.vocabulary)
    if not ids.numel():
        return torch.empty(*ids.shape, network.config.vocabulary)
    logits = network.empty_logits(*ids.shape)
    with network.lock:
        for forest in forests(rows):
            hidden = network.hidden(forest, np.arange(len(forest.ids)))
            for member, path in zip(forest.members, forest.paths, strict=True):
                network.logits(hidden[torch.from_numpy(path).to(hidden.device)], logits[member])
    return logits


def _projected(network: Network, hidden: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Yield the logits of hidden states in chunks: (number of the first row, logits), valid until the next."""
    chunk = max(1, min(len(hidden), max(16, _LOGIT_BYTES // (4 * network.config.vocabulary))))
    memory = network.empty_logits(1, chunk)[0]
    for start in range(0, len(hidden), chunk):
        part = hidden[start : start + chunk]
        yield start, network.logits(part, memory[: len(part)])


def require_finite(vectors: npt.NDArray[np.float32]) -> None:
    """Raise DataError for vectors with NaN or infinity, as of weights that overflow."""
    if not np.isfinite(vectors).all():
        raise not_finite(float(np.abs(vectors).max()), "the largest value of the model's vectors")


def encode_pairs(tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]]) -> list[Pair]:
    """Encode each context and its continuation as one text, and split the ids between them.

    White space at the end of a context belongs to the continuation, as in GPT-2's tokens, and so does a token that
    has characters of both. A context without ids becomes that of `after_start`.
    """
    contexts = tokenizer.encode_batch([context.rstrip() for context, _ in pairs], None)
    texts = tokenizer.encode_batch([context + continuation for context, continuation in pairs], None)
    borders = map(shared_length, contexts, texts)
    split = zip(texts, borders, strict=True)
    return [(ids[:border], ids[border:]) if border else after_start(tokenizer, ids) for ids, border in split]


def after_start(tokenizer: Tokenizer, ids: list[int]) -> Pair:
    """Return a text after `<|endoftext|>`; with a tokenizer that has none (GPT-1's) after its own first token."""
    start = tokenizer.start_of_text
    return (ids[:1], ids[1:]) if start is None else ([start], ids)


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
