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
from itertools import chain, islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headwater.errors import DataError, UsageError
from headwater.inference.network import Network
from headwater.inference.request import require_context, require_ids, shared_length
from headwater.inference.sampling import Alternatives, alternatives, log_sums, not_finite
from headwater.inference.shared_prefixes import Forest, forests
from headwater.tokenizer import Tokenizer

# The ids of a context and of the continuation after it.
Pair = tuple[list[int], list[int]]
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

    def token_scores(self, requests: Sequence[tuple[list[int], list[int]]]) -> list[TokenScores]:
        """Return the scores of each token of the continuations, for pairs of context and continuation ids.

        A request longer than the model's context loses the start of its context. A continuation that is itself
        longer is split into windows that advance by half the model's context.
        """
        cuts: list[list[Pair]] = []
        for number, (context, continuation) in enumerate(requests):
            if not context:
                raise DataError(
                    f"the context of request {number} has no tokens", expected="at least one to predict from"
                )
            if not continuation:
                raise DataError(f"the continuation of request {number} has no tokens")
            ids = [*context, *continuation]
            require_ids(ids, self.vocabulary)
            cuts.append(list(windows(ids, len(context), self.context)))
        return self._score_windows(cuts)

    def rolling(
        self, ids: Sequence[int], context: int | None = None, stride: int | None = None
    ) -> npt.NDArray[np.float32]:
        """Return the log-probability of every token of a text of any length, float32; each is scored once.

        The first window predicts `context` tokens, each later one the next `stride`, from the `context` tokens
        before its last target. By default these are the model's context, and half of it. The first token is
        scored after `<|endoftext|>`; with a tokenizer that has none (GPT-1's) its score is NaN.
        """
        context = self.context if context is None else context
        stride = max(1, context // 2) if stride is None else stride
        if not 1 <= stride <= context <= self.context:
            raise UsageError(
                f"context {context} and stride {stride} do not fit each other or the model",
                expected=f"1 ≤ stride ≤ context ≤ {self.context}",
            )
        text = [int(token) for token in ids]
        require_ids(text, self.vocabulary)
        before = self.tokenizer.start_of_text
        start = [] if before is None else [before]
        scores = self._score_windows([list(windows([*start, *text], 1, context, stride))])[0].log_probability
        return np.concatenate([np.full(len(text) - len(scores), np.nan, dtype=np.float32), scores])

    def encode_pairs(self, pairs: Sequence[tuple[str, str]]) -> list[Pair]:
        """Return what the function `encode_pairs` returns; raise DataError for a pair without a score."""
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
        long = [number for number, ids in enumerate(texts) if len(ids) > 1]
        scores: list[list[Alternatives]] = [[] for _ in texts]
        with self.network.lock:
            for forest in forests([list(texts[number][:-1]) for number in long]):
                owners = [long[member] for member in forest.members]
                rows = np.concatenate(forest.paths)
                tokens = np.concatenate([texts[owner][1:] for owner in owners])
                members = np.repeat(owners, [len(path) for path in forest.paths])
                hidden = self.network.hidden(forest, np.arange(len(forest.ids)))
                for start, logits in _projected(self.network, hidden):
                    # Positions of a text have ascending rows, so those of each text come in their order.
                    mine = np.flatnonzero((rows >= start) & (rows < start + len(logits)))
                    known = alternatives(
                        logits,
                        (rows[mine] - start).tolist(),
                        tokens[mine].tolist(),
                        count,
                        self.tokenizer.vocabulary_size,
                    )
                    for owner, about in zip(members[mine].tolist(), known, strict=True):
                        if not np.isfinite(about.log_probability):
                            raise not_finite(about.log_probability, "a log-probability")
                        scores[owner].append(about)
        return scores

    @torch.inference_mode()
    def _score_windows(self, cuts: Sequence[Sequence[Pair]]) -> list[TokenScores]:
        """Return the scores of each text's windows, joined."""
        parts = list(chain.from_iterable(cuts))
        results: dict[int, TokenScores] = {}
        with self.network.lock:
            for forest in forests([[*context, *continuation[:-1]] for context, continuation in parts]):
                scores = self._score_forest(forest, [parts[index][1] for index in forest.members])
                ends = np.cumsum([len(parts[index][1]) for index in forest.members])[:-1]
                pieces = zip(np.split(scores.log_probability, ends), np.split(scores.is_greedy, ends), strict=True)
                for index, piece in zip(forest.members, pieces, strict=True):
                    results[index] = TokenScores(*piece)
        in_order = (results[index] for index in range(len(parts)))
        return [_joined(list(islice(in_order, len(cut)))) for cut in cuts]

    def _score_forest(self, forest: Forest, wanted: Sequence[list[int]]) -> TokenScores:
        """Return the scores of the tokens `wanted`, one list for each member of the forest, joined.

        Raises DataError if one is not a finite number.
        """
        rows = np.concatenate([path[-len(mine) :] for path, mine in zip(forest.paths, wanted, strict=True)])
        targets = np.concatenate([np.asarray(mine) for mine in wanted])
        kept, source = np.unique(rows, return_inverse=True)  # a row that several members share is projected once
        log_probability = np.empty(len(targets), dtype=np.float32)
        is_greedy = np.empty(len(targets), dtype=np.bool_)
        order = np.argsort(source, kind="stable")
        for start, logits in _projected(self.network, self.network.hidden(forest, kept)):
            first, last = np.searchsorted(source[order], [start, start + len(logits)])
            mine = order[first:last]
            row = torch.from_numpy(source[mine] - start).to(logits.device)
            tokens = torch.from_numpy(targets[mine]).to(logits.device)
            (sums, largest), chosen = log_sums(logits), logits[row, tokens]
            log_probability[mine] = (chosen - sums[row]).cpu().numpy()
            if not np.isfinite(log_probability[mine]).all():
                raise not_finite(float(logits.abs().max()))
            is_greedy[mine] = (chosen >= largest[row]).cpu().numpy()
        return TokenScores(log_probability, is_greedy)


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
            owners: dict[int, int] = {}  # the first text with the branch that begins at a row
            for member, end in zip(forest.members, forest.ends, strict=True):
                for branch in [*end.ancestors(), end]:
                    start = forest.positions[branch.first]
                    part = slice(start, start + branch.last - branch.first)
                    owner = owners.setdefault(branch.first, member)
                    if owner == member:
                        network.logits(hidden[branch.first : branch.last], logits[member, part])
                    else:
                        logits[member, part] = logits[owner, part]
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


def _joined(scores: Sequence[TokenScores]) -> TokenScores:
    return TokenScores(
        np.concatenate([np.empty(0, np.float32), *(part.log_probability for part in scores)]),
        np.concatenate([np.empty(0, np.bool_), *(part.is_greedy for part in scores)]),
    )


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
