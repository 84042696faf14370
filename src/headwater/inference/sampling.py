"""From logits to the next token.

The order, with the original's beside it (GPT-2's released sampling code; its defaults are ours):

    step                                      original
    1  bias of single tokens                  –
    2  penalties of tokens that occurred      –
    3  logits / temperature                   temperature 1
    4  top-k: keep what the k-th largest      top_k 0 (off); the papers' samples use 40, summaries 2
       reaches, ties included
    5  min-p: keep what has at least this     –
       share of the likeliest's probability
    6  top-p                                  top_p 1 (off)
    7  draw                                   multinomial

Top-p has two readings. `filters="usual"` keeps the smallest set of most likely tokens whose probability reaches
p (Holtzman et al. 2020, section 3.1). `filters="original"` keeps those while their sum is at most p, at least
one: the token that crosses p is left out. Temperature 0 is greedy: the likeliest token after steps 1 and 2, the
lowest id where several are.

A draw uses one random number, which depends on (seed, sample, position) alone: neither on neighbours, nor on
threads, nor on what was drawn before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field
from torch import Tensor

from headwater.config import Config
from headwater.errors import DataError, UsageError

Logits = npt.NDArray[np.float32]
# Beyond what changes any choice, and such that a few of them together stay inside float32.
_FAR = 1e15
# Where two logits differ, the larger one is certain at this temperature.
_LOWEST_TEMPERATURE = 1e-20


class Sampling(Config):
    """How the next token is chosen; the defaults are the original's: the model's own distribution."""

    temperature: float = Field(default=1.0, ge=0, le=_FAR)
    top_k: int = Field(default=0, ge=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    min_p: float = Field(default=0.0, ge=0, le=1)
    repetition_penalty: float = Field(default=1.0, ge=1 / _FAR, le=_FAR)
    presence_penalty: float = Field(default=0.0, ge=-_FAR, le=_FAR)
    frequency_penalty: float = Field(default=0.0, ge=-_FAR, le=_FAR)
    filters: Literal["usual", "original"] = "usual"
    bias: Mapping[int, Annotated[float, Field(ge=-_FAR, le=_FAR)]] = Field(default_factory=dict)

    def check(self, vocabulary: int) -> None:
        """Raise UsageError where a choice does not fit a model of `vocabulary` rows."""
        if self.top_k > vocabulary:
            raise UsageError(
                f"top_k {self.top_k} is beyond the model's {vocabulary} tokens",
                expected=f"0 to {vocabulary}",
                param="top_k",
            )
        for token in self.bias:
            if not 0 <= token < vocabulary:
                raise UsageError(
                    f"bias names token {token}", expected=f"0 to {vocabulary - 1}", param="logit_bias"
                )

    @cached_property
    def bias_arrays(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """(tokens, what is added to each): the bias is added to the logits in one operation."""
        tokens = np.fromiter(self.bias.keys(), np.int64, len(self.bias))
        return tokens, np.fromiter(self.bias.values(), np.float32, len(self.bias))


class Alternatives(NamedTuple):
    """What the model itself thought of one step (temperature 1, nothing filtered), natural logarithms."""

    log_probability: float  # of the token that was chosen
    likeliest: list[tuple[int, float]]  # (token, log-probability), the most likely first


def choose(
    logits: Logits, sampling: Sampling, seen: Sequence[int], uniform: float, written: Sequence[int] = ()
) -> int:
    """The next token.

    logits: (vocabulary,) float32, not changed; seen: the text so far; written: what of it was generated; uniform
    in [0, 1). Raises DataError where the logits are no numbers, as those of a model that diverged.
    """
    penalties = sampling.presence_penalty or sampling.frequency_penalty
    if sampling.bias or sampling.repetition_penalty != 1 or penalties:
        logits = logits.copy()
        if sampling.bias:
            tokens, added = sampling.bias_arrays
            logits[tokens] += added
        if sampling.repetition_penalty != 1 and len(seen):
            penalise(logits, seen, sampling.repetition_penalty)
        if penalties and len(written):
            subtract(logits, written, sampling.presence_penalty, sampling.frequency_penalty)
    likeliest = int(logits.argmax())
    largest = logits[likeliest]
    if not np.isfinite(largest):
        raise DataError(
            f"the model's largest logit is {largest}",
            expected="a number: its weights hold what is none, or overflow",
            repair="Take an earlier checkpoint, or --precision fp32",
        )
    if sampling.temperature == 0:
        return likeliest
    kept: npt.NDArray[np.intp] | None = None
    if 0 < sampling.top_k < len(logits):
        kept = np.flatnonzero(logits >= kth_largest(logits, sampling.top_k))
        logits = logits[kept]
    weights = np.exp((logits - largest) / np.float32(max(sampling.temperature, _LOWEST_TEMPERATURE)))
    if sampling.min_p > 0:
        likely = np.flatnonzero(weights >= np.float32(sampling.min_p))
        kept = likely if kept is None else kept[likely]
        weights = weights[likely]
    if sampling.top_p < 1 or sampling.filters == "original":
        inside = np.flatnonzero(weights >= top_p_threshold(weights, sampling.top_p, sampling.filters))
        kept = inside if kept is None else kept[inside]
        weights = weights[inside]
    index = draw(weights, uniform)
    return index if kept is None else int(kept[index])


def penalise(logits: Logits, seen: Sequence[int], penalty: float) -> None:
    """Make tokens that occurred less likely, in place (Keskar et al. 2019, section 4.1)."""
    tokens = np.unique(np.asarray(seen, dtype=np.int64))
    values = logits[tokens]
    logits[tokens] = np.where(values > 0, values / np.float32(penalty), values * np.float32(penalty))


def subtract(logits: Logits, written: Sequence[int], presence: float, frequency: float) -> None:
    """Lower generated tokens by `presence`, and by `frequency` for each time, in place (as OpenAI's API does)."""
    tokens, counts = np.unique(np.asarray(written, dtype=np.int64), return_counts=True)
    logits[tokens] -= (presence + frequency * counts).astype(np.float32)


def kth_largest(logits: Logits, k: int) -> np.float32:
    """The k-th largest value: what a logit must reach to be kept, so that ties with it are kept."""
    return np.float32(torch.from_numpy(logits).topk(k).values[-1].item())


def top_p_threshold(
    weights: npt.NDArray[np.float32], p: float, filters: Literal["usual", "original"]
) -> np.float32:
    """The smallest weight kept by top-p. weights: (tokens,) float32, proportional to probabilities."""
    largest_first = np.sort(weights)[::-1]
    if filters == "original":
        # Summed in float32 as there: even at p = 1 a sum that rounds to above 1 loses the tokens behind it.
        probabilities = largest_first / largest_first.sum()
        last = int(np.searchsorted(np.cumsum(probabilities), np.float32(p), side="right")) - 1
    else:
        cumulative = np.cumsum(largest_first, dtype=np.float64)
        last = int(np.searchsorted(cumulative, p * cumulative[-1], side="left"))
    return largest_first[min(max(last, 0), len(weights) - 1)]


def draw(weights: npt.NDArray[np.float32], uniform: float) -> int:
    """The index at which the running sum of the weights passes `uniform` of their total."""
    cumulative = np.cumsum(weights, dtype=np.float64)
    index = int(np.searchsorted(cumulative, uniform * cumulative[-1], side="right"))
    if index >= len(weights):  # rounding at the very end: the last token that can be drawn at all
        index = int(np.flatnonzero(weights)[-1])
    return index


def uniform(seed: int, sample: int, position: int) -> float:
    """The random number in [0, 1) of one position of one sample of one seed: 53 bits of BLAKE2b."""
    digest = hashlib.blake2b(f"{seed} {sample} {position}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) / 2.0**53


def log_probabilities(logits: Tensor, rows: Tensor, tokens: Tensor) -> Tensor:
    """Return log P(token) in some rows: (all rows, output), (count,) int64 each -> (count,) float32.

    Every log-probability that Headwater reports is computed here, over the model's whole output.
    """
    return logits[rows, tokens] - logits.logsumexp(dim=1)[rows]


def alternatives(logits: Tensor, tokens: Tensor, count: int, vocabulary: int) -> list[Alternatives]:
    """Return the log-probability of each row's token, and of the `count` likeliest ids below `vocabulary`."""
    chosen = log_probabilities(logits, torch.arange(len(logits), device=logits.device), tokens).tolist()
    if not count:
        return [Alternatives(one, []) for one in chosen]
    values, ids = logits[:, :vocabulary].topk(min(count, vocabulary))
    values = values - logits.logsumexp(dim=1, keepdim=True)
    rows = zip(chosen, ids.tolist(), values.tolist(), strict=True)
    return [Alternatives(one, list(zip(tokens, values, strict=True))) for one, tokens, values in rows]
