"""Exact log-probabilities of text: what zero-shot evaluation asks of a model.

A request is a context and its continuation; scored are the continuation's tokens. Requests are sorted and laid
into packs without padding; tokens that requests share at their start (one question, four answers) are computed
once, as the trunk of a tree; of all rows only those that predict a scored token reach the vocabulary. Nothing
of this changes a score: attention runs a branch at a time, so that a request's result does not depend on its
neighbours beyond the rounding of a matrix product (float32: below 1e-5).

Text longer than the model's context goes through sliding windows (`windows`): every token is scored once. The
papers leave window and stride open (GPT-2 section 3.1; `rolling` takes both).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headwater.errors import DataError, MismatchError, UsageError
from headwater.inference.compiled import CompiledPacks, CompiledWeights, supported
from headwater.inference.matrices import Precision
from headwater.inference.network import Network, require_ids
from headwater.inference.packing import PACK_ROWS, BranchAttention, Pack, packs
from headwater.model.config import ModelConfig
from headwater.model.loss import score_tokens
from headwater.model.transformer import Transformer
from headwater.tokenizer import Tokenizer

# Logits of one chunk of scored rows.
_LOGIT_BYTES = 16 * 1024**2


class TokenScores(NamedTuple):
    """Of each scored token: its log-probability, float32, and whether no token was likelier, bool."""

    log_probability: npt.NDArray[np.float32]
    is_greedy: npt.NDArray[np.bool_]


class Window(NamedTuple):
    """Inputs for the model and the tokens that its last positions are to predict."""

    inputs: list[int]
    targets: list[int]  # at least one, at most as many as inputs


class PackNetwork(Protocol):
    """What computes packs: the compiled kernels, or torch."""

    config: ModelConfig

    def hidden(self, pack: Pack, kept: npt.NDArray[np.int64]) -> Tensor:
        """The last hidden states of the rows `kept`, (kept, width) float32, valid until the next call."""
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """(rows, width) float32 -> (rows, rows of the output matrix) float32."""
        ...


class TorchPacks:
    """Packs in torch: any device."""

    def __init__(self, network: Network) -> None:
        self.network, self.config = network, network.config

    def hidden(self, pack: Pack, kept: npt.NDArray[np.int64]) -> Tensor:
        """See PackNetwork."""
        device = self.network.device
        return self.network.hidden(
            torch.tensor(pack.ids, device=device),
            torch.tensor(pack.positions, device=device),
            BranchAttention(pack.branches),
            keep=torch.from_numpy(kept).to(device),
        )

    def logits(self, hidden: Tensor) -> Tensor:
        """See PackNetwork."""
        return self.network.logits(hidden)


class Scorer:
    """Scores text with one model and its tokenizer. Calls are safe from several threads.

    model: a Transformer, whose dtype decides the precision, a `Network` or `CompiledWeights`, which have their
    own, or any module with `hidden`, `output_matrix` and `config`.
    """

    def __init__(self, model: Any, tokenizer: Tokenizer) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.vocabulary: int = model.config.vocabulary
        self.context: int = model.config.context
        if tokenizer.vocabulary_size > self.vocabulary:
            raise MismatchError(
                f"the tokenizer has {tokenizer.vocabulary_size:,} tokens, the model {self.vocabulary:,} rows",
                repair="Use the tokenizer that the model was trained with",
            )
        self._network: PackNetwork | None = None
        self._lock = threading.Lock()  # a network has one workspace
        if isinstance(model, Transformer):
            precision: Precision = "bf16" if model.tokens.weight.dtype == torch.bfloat16 else "fp32"
            model = CompiledWeights(model, precision) if supported(model) else Network(model, precision)
        if isinstance(model, CompiledWeights):
            self._network = CompiledPacks(model)
        elif isinstance(model, Network):
            self._network = TorchPacks(model)

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[float, bool]]:
        """For each (context, continuation): log P(continuation | context), and whether greedy decoding gives it.

        Tokenised by `encode_pair`. Raises DataError for a continuation without tokens.
        """
        return self.score_ids([self.encode_pair(context, continuation) for context, continuation in pairs])

    def score_ids(self, requests: Sequence[tuple[list[int], list[int]]]) -> list[tuple[float, bool]]:
        """The same for token ids, which are taken as they are: a context has at least one token."""
        return [
            (float(scores.log_probability.sum(dtype=np.float64)), bool(scores.is_greedy.all()))
            for scores in self.token_scores(requests)
        ]

    def token_scores(self, requests: Sequence[tuple[list[int], list[int]]]) -> list[TokenScores]:
        """For each (context ids, continuation ids): the scores of the continuation's tokens, one by one.

        A request longer than the model's context loses the start of its context. Where the continuation itself is
        longer, it goes through windows that advance by half the model's context.
        """
        parts: list[Window] = []
        counts: list[int] = []
        for number, (context, continuation) in enumerate(requests):
            if not context:
                raise DataError(
                    f"the context of request {number} has no tokens", expected="at least one to predict from"
                )
            if not continuation:
                raise DataError(f"the continuation of request {number} has no tokens")
            ids = [*context, *continuation]
            require_ids(ids, self.vocabulary)
            cut = list(windows(ids, len(context), self.context, max(1, self.context // 2)))
            parts += cut
            counts.append(len(cut))
        return _joined(self._run(parts), counts)

    def rolling(
        self, ids: Sequence[int], context: int | None = None, stride: int | None = None
    ) -> npt.NDArray[np.float32]:
        """Log-probability of every token of a text of any length, each scored once; float32, one a token.

        The first window predicts `context` tokens, each later one the next `stride`, from the `context` tokens
        before its last. Both default to the model's context: windows that do not overlap. The first token is
        scored after `<|endoftext|>`; with a tokenizer that has none (GPT-1's) it has no score, and is NaN.
        """
        return self.rolling_many([ids], context, stride)[0]

    def rolling_many(
        self, texts: Sequence[Sequence[int]], context: int | None = None, stride: int | None = None
    ) -> list[npt.NDArray[np.float32]]:
        """`rolling` of each text, computed together."""
        context = self.context if context is None else context
        stride = context if stride is None else stride
        if not 1 <= stride <= context <= self.context:
            raise UsageError(
                f"context {context} and stride {stride} do not fit together or the model",
                expected=f"1 ≤ stride ≤ context ≤ {self.context}",
            )
        end_of_text = self.tokenizer.end_of_text
        parts: list[Window] = []
        counts: list[int] = []
        for text in texts:
            ids = [int(token) for token in text]
            require_ids(ids, self.vocabulary)
            cut = list(windows(ids if end_of_text is None else [end_of_text, *ids], 1, context, stride))
            parts += cut
            counts.append(len(cut))
        results = []
        for text, scores in zip(texts, _joined(self._run(parts), counts), strict=True):
            unscored = np.full(len(text) - len(scores.log_probability), np.nan, dtype=np.float32)
            results.append(np.concatenate([unscored, scores.log_probability]))
        return results

    def encode_pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """Token ids of a context and its continuation, encoded as one text and cut at their border.

        Spaces at the end of the context move to the continuation, where GPT-2's tokens have them. An empty
        context is `<|endoftext|>`; a tokenizer without one (GPT-1's) needs a context. The cut counts the
        tokens of the context by itself, as lm-evaluation-harness does.
        """
        kept = context.rstrip()
        if not kept:
            start = self.tokenizer.end_of_text
            if start is None:
                raise DataError(
                    "a context is empty and this tokenizer has no <|endoftext|> to stand for it",
                    repair="Give at least one word of context",
                )
            return [start], self._continuation(self.tokenizer.encode(context + continuation), continuation)
        head, whole = self.tokenizer.encode_batch([kept, context + continuation])
        return head, self._continuation(whole[len(head) :], continuation)

    def _continuation(self, ids: list[int], text: str) -> list[int]:
        if not ids:
            raise DataError(f"the continuation {text!r} adds no token to its context")
        return ids

    @torch.inference_mode()
    def _run(self, parts: Sequence[Window]) -> list[TokenScores]:
        with self._lock:
            return self._run_alone(parts)

    def _run_alone(self, parts: Sequence[Window]) -> list[TokenScores]:
        results: dict[int, TokenScores] = {}
        if self._network is None:
            groups = [(group, self._score_padded([parts[i] for i in group])) for group in _by_length(parts)]
        else:
            groups = []
            for pack in packs([part.inputs for part in parts]):
                targets = [parts[index].targets for index in pack.members]
                groups.append((pack.members, _score_pack(self._network, pack, targets)))
        for members, scores in groups:
            ends = np.cumsum([len(parts[index].targets) for index in members])[:-1]
            pieces = zip(np.split(scores.log_probability, ends), np.split(scores.is_greedy, ends), strict=True)
            for index, piece in zip(members, pieces, strict=True):
                results[index] = TokenScores(*piece)
        return [results[index] for index in range(len(parts))]

    def _score_padded(self, parts: Sequence[Window]) -> TokenScores:
        """For models that are no Transformer: the windows padded on their right, where nothing looks."""
        longest = max(len(part.inputs) for part in parts)
        device = next(self.model.parameters()).device
        ids = torch.zeros(len(parts), longest, dtype=torch.int64)
        for row, part in enumerate(parts):
            ids[row, : len(part.inputs)] = torch.tensor(part.inputs)
        hidden = self.model.hidden(ids.to(device))
        kept = [
            hidden[row, len(part.inputs) - len(part.targets) : len(part.inputs)] for row, part in enumerate(parts)
        ]
        targets = torch.tensor([token for part in parts for token in part.targets], device=device)
        scores = score_tokens(torch.cat(kept), self.model.output_matrix(), targets)
        return TokenScores(scores.log_probability.cpu().numpy(), scores.is_greedy.cpu().numpy())


def _score_pack(network: PackNetwork, pack: Pack, wanted: Sequence[list[int]]) -> TokenScores:
    """Scores of all `wanted`, one list a member of the pack, one behind the other."""
    rows = np.concatenate([path[-len(mine) :] for path, mine in zip(pack.paths, wanted, strict=True)])
    targets = np.concatenate([np.asarray(mine) for mine in wanted])
    kept, place = np.unique(rows, return_inverse=True)  # a row that several members read is projected once
    hidden = network.hidden(pack, kept)
    log_probability = np.empty(len(targets), dtype=np.float32)
    is_greedy = np.empty(len(targets), dtype=np.bool_)
    order = np.argsort(place, kind="stable")
    chunk = max(16, _LOGIT_BYTES // (4 * network.config.vocabulary))
    for start in range(0, len(hidden), chunk):
        logits = network.logits(hidden[start : start + chunk])
        first, last = np.searchsorted(place[order], [start, start + len(logits)])
        mine = order[first:last]
        row = torch.from_numpy(place[mine] - start).to(logits.device)
        chosen = logits[row, torch.from_numpy(targets[mine]).to(logits.device)]
        log_probability[mine] = (chosen - logits.logsumexp(dim=1)[row]).cpu().numpy()
        is_greedy[mine] = (chosen >= logits.amax(dim=1)[row]).cpu().numpy()
    return TokenScores(log_probability, is_greedy)


def _by_length(parts: Sequence[Window]) -> Iterator[list[int]]:
    """Groups of windows of like length, of about PACK_ROWS rows padded."""
    group: list[int] = []
    for index in sorted(range(len(parts)), key=lambda index: len(parts[index].inputs)):
        if group and (len(group) + 1) * len(parts[index].inputs) > PACK_ROWS:
            yield group
            group = []
        group.append(index)
    if group:
        yield group


def windows(ids: Sequence[int], first: int, context: int, stride: int) -> Iterator[Window]:
    """Cut a text so that every token from `first` on is predicted once.

    A window's inputs are the up to `context` tokens before its last target. One window predicts all where it
    can; else the first predicts what follows within `context` of the text's start, at least `stride` tokens,
    and each later one the next `stride`.
    """
    start = first
    end = len(ids) if len(ids) - first <= context else max(first + stride, context + 1)
    while start < len(ids):
        yield Window(list(ids[max(0, end - 1 - context) : end - 1]), list(ids[start:end]))
        start, end = end, min(len(ids), end + stride)


def _joined(scores: Sequence[TokenScores], counts: Sequence[int]) -> list[TokenScores]:
    """The windows of each request put together again."""
    joined = []
    start = 0
    for count in counts:
        mine = scores[start : start + count]
        joined.append(
            TokenScores(
                np.concatenate([np.empty(0, np.float32), *(part.log_probability for part in mine)]),
                np.concatenate([np.empty(0, np.bool_), *(part.is_greedy for part in mine)]),
            )
        )
        start += count
    return joined
