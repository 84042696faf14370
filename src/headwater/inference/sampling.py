"""Choose the next token from logits.

The order, next to that of GPT-2's released sampling code, whose defaults are ours:

    step                                      original
    1  bias of single tokens                  –
    2  penalties of tokens that occurred      –
    3  logits / temperature                   temperature 1
    4  top-k: keep logits not less than the   top_k 0 (off); the papers' samples use 40, summaries 2
       k-th largest, ties included
    5  min-p: keep tokens with at least this  –
       share of the largest probability
    6  top-p                                  top_p 1 (off)
    7  draw                                   multinomial

Top-p keeps the smallest set of most likely tokens whose probability reaches p (Holtzman et al. 2020, section 3.1);
the released code leaves out the token that crosses p. Temperature 0 is greedy: the likeliest token after steps 1
and 2, the lowest id where several are.

A draw uses one random number, which depends only on (seed, sample, position): not on other requests, threads or
earlier draws.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field
from torch import Tensor

from headwater import native
from headwater.config import Config
from headwater.device import to_device
from headwater.errors import DataError

Logits = npt.NDArray[np.float32]
_GROUPS = 512  # of logits, for finding the k-th largest
# Larger values change no choice; the sum of a few of them is within float32.
_FAR = 1e15
# At this temperature the largest logit is always drawn.
_LOWEST_TEMPERATURE = 1e-20


class Sampling(Config):
    """How the next token is chosen. The defaults draw from the model's own distribution, as GPT-2's code does."""

    temperature: float = Field(default=1.0, ge=0, le=_FAR)
    top_k: int = Field(default=0, ge=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    min_p: float = Field(default=0.0, ge=0, le=1)
    repetition_penalty: float = Field(default=1.0, ge=1 / _FAR, le=_FAR)
    presence_penalty: float = Field(default=0.0, ge=-_FAR, le=_FAR)
    frequency_penalty: float = Field(default=0.0, ge=-_FAR, le=_FAR)
    bias: Mapping[int, Annotated[float, Field(ge=-_FAR, le=_FAR)]] = Field(default_factory=dict)

    @property
    def is_plain(self) -> bool:
        """Whether a choice needs the logits alone, as `choose_rows` does."""
        penalties = self.repetition_penalty != 1 or self.presence_penalty or self.frequency_penalty
        return not (self.bias or penalties)

    @cached_property
    def bias_arrays(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """The bias as two arrays: tokens, and the value to add to each."""
        tokens = np.fromiter(self.bias.keys(), np.int64, len(self.bias))
        return tokens, np.fromiter(self.bias.values(), np.float32, len(self.bias))


class Alternatives(NamedTuple):
    """The model's own log-probabilities of one step (temperature 1, no filters, natural logarithm)."""

    log_probability: float  # of the token that was chosen
    likeliest: list[tuple[int, float]]  # (token, log-probability), the most likely first


def choose(
    logits: Logits, sampling: Sampling, seen: Sequence[int], uniform: float, written: Sequence[int] = ()
) -> int:
    """Return the next token.

    logits: (vocabulary,) float32, not changed; seen: the text so far; written: the generated part of it; uniform:
    in [0, 1). Raises DataError for NaN or infinite logits, as of a model that diverged.
    """
    penalties = sampling.presence_penalty or sampling.frequency_penalty
    if sampling.bias or sampling.repetition_penalty != 1 or penalties:
        logits = logits.copy()
        if sampling.bias:
            tokens, added = sampling.bias_arrays
            logits[tokens] += added
        if sampling.repetition_penalty != 1 and len(seen):  # Keskar et al. 2019, section 4.1
            tokens, penalty = np.unique(np.asarray(seen, dtype=np.int64)), np.float32(sampling.repetition_penalty)
            values = logits[tokens]
            logits[tokens] = np.where(values > 0, values / penalty, values * penalty)
        if penalties and len(written):  # as OpenAI's API
            tokens, counts = np.unique(np.asarray(written, dtype=np.int64), return_counts=True)
            lowered = sampling.presence_penalty + sampling.frequency_penalty * counts
            logits[tokens] -= lowered.astype(np.float32)
    likeliest = int(logits.argmax())
    largest = logits[likeliest]
    if not np.isfinite(largest):
        raise not_finite(float(largest))
    if sampling.temperature == 0:
        return likeliest
    inside: npt.NDArray[np.intp] | None = None
    if 0 < sampling.top_k < len(logits):
        inside = np.flatnonzero(logits >= kth_largest(logits, sampling.top_k))
        logits = logits[inside]
    weights = np.exp((logits - largest) / np.float32(max(sampling.temperature, _LOWEST_TEMPERATURE)))
    if sampling.min_p > 0:
        likely = np.flatnonzero(weights >= np.float32(sampling.min_p))
        inside = likely if inside is None else inside[likely]
        weights = weights[likely]
    if sampling.top_p < 1:
        likely = np.flatnonzero(weights >= top_p_threshold(weights, sampling.top_p))
        inside = likely if inside is None else inside[likely]
        weights = weights[likely]
    index = draw(weights, uniform)
    return index if inside is None else int(inside[index])


def not_finite(value: float, quantity: str = "the model's largest logit") -> DataError:
    """Return the error of an output that is not finite."""
    return DataError(
        f"{quantity} is {value}",
        expected="a finite number: its weights contain NaN or infinity, or overflow",
        repair="Use an earlier checkpoint, or --precision fp32",
    )


def choose_rows(logits: Tensor, samplings: Sequence[Sampling], uniforms: Sequence[float]) -> Tensor:
    """`choose` for many rows on their device, without waiting for it; all `samplings` are plain.

    logits: (rows, vocabulary) float32. Returns (rows,) int64, −1 where the largest logit is not finite.
    """
    settings = [
        (max(s.temperature, _LOWEST_TEMPERATURE), s.top_k or logits.shape[1], s.min_p, s.top_p, u, s.temperature)
        for s, u in zip(samplings, uniforms, strict=True)
    ]
    numbers = to_device(torch.tensor(settings, dtype=torch.float64), logits.device)
    scale, k, min_p, top_p, uniform, temperature = (column[:, None] for column in numbers.unbind(1))
    largest, likeliest = logits.max(dim=1, keepdim=True)
    weights = ((logits - largest) / scale.float()).exp()
    if any(0 < s.top_k < logits.shape[1] for s in samplings):
        most = min(max(s.top_k for s in samplings), logits.shape[1])
        kth = logits.topk(most).values.gather(1, k.long().clamp(max=most) - 1)
        weights = weights.where((logits >= kth) | (k > most), 0.0)
    if any(s.min_p for s in samplings):
        weights = weights.where(weights >= min_p.float(), 0.0)
    if any(s.top_p < 1 for s in samplings):
        ordered = weights.sort(dim=1, descending=True).values
        cumulative = ordered.cumsum(dim=1, dtype=torch.float64)
        last = (cumulative < top_p * cumulative[:, -1:]).sum(dim=1, keepdim=True)
        weights = weights.where((weights >= ordered.gather(1, last)) | (top_p == 1), 0.0)
    cumulative = weights.cumsum(dim=1, dtype=torch.float64)
    total = cumulative[:, -1:]
    drawn = (cumulative <= uniform * total).sum(dim=1, keepdim=True)
    drawn = drawn.minimum((cumulative < total).sum(dim=1, keepdim=True))  # rounding at the very end
    chosen = torch.where(temperature == 0, likeliest, drawn)
    return torch.where(largest.isfinite(), chosen, -1)[:, 0]


def kth_largest(logits: Logits, k: int) -> np.float32:
    """Return the k-th largest value. Top-k keeps every logit that is not less, so all ties with it."""
    whole = len(logits) // _GROUPS * _GROUPS
    if k <= _GROUPS and whole:
        # k groups have a maximum of at least `least`, so the k-th largest logit is not less.
        least = np.partition(logits[:whole].reshape(-1, _GROUPS).max(axis=0), -k)[-k]
        logits = logits[logits >= least]
    return np.float32(np.partition(logits, -k)[-k])


def top_p_threshold(weights: npt.NDArray[np.float32], p: float) -> np.float32:
    """Return the smallest weight that top-p keeps. weights: (tokens,) float32, proportional to probabilities."""
    largest_first = np.sort(weights)[::-1]
    cumulative = np.cumsum(largest_first, dtype=np.float64)
    last = int(np.searchsorted(cumulative, p * cumulative[-1], side="left"))
    return largest_first[min(last, len(weights) - 1)]


def draw(weights: npt.NDArray[np.float32], uniform: float) -> int:
    """Return the index at which the running sum of the weights exceeds `uniform` times their total."""
    cumulative = np.cumsum(weights, dtype=np.float64)
    index = int(np.searchsorted(cumulative, uniform * cumulative[-1], side="right"))
    if index >= len(weights):  # by rounding: take the last token with a weight
        index = int(np.flatnonzero(weights)[-1])
    return index


def uniform(seed: int, sample: int, position: int) -> float:
    """Return the random number in [0, 1) of a seed, sample and position: 53 bits of BLAKE2b."""
    digest = hashlib.blake2b(f"{seed} {sample} {position}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) / 2.0**53


def log_sums(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return log Σ e^logit and the largest logit of each row: (rows, output) float32 -> (rows,) float32 each.

    Every log-probability that Headwater reports is a logit less this sum, over all rows of the model's output.
    """
    kernels = native.kernels() if logits.device.type == "cpu" else None
    return (logits.logsumexp(dim=1), logits.amax(dim=1)) if kernels is None else kernels.log_sums(logits)


def alternatives(
    logits: Tensor, rows: Sequence[int], tokens: Sequence[int], count: int, vocabulary: int
) -> list[Alternatives]:
    """Return each token's log-probability in its row, and the row's `count` likeliest below `vocabulary`."""
    numbers = torch.tensor([rows, tokens], dtype=torch.int64, device=logits.device)
    sums, _ = log_sums(logits)
    chosen = (logits[numbers[0], numbers[1]] - sums[numbers[0]]).tolist()
    if not count:
        return [Alternatives(value, []) for value in chosen]
    values, ids = logits[:, :vocabulary].topk(min(count, vocabulary))
    values = values - sums[:, None]
    pairs = [list(zip(*row, strict=True)) for row in zip(ids.tolist(), values.tolist(), strict=True)]
    return [Alternatives(value, pairs[row]) for value, row in zip(chosen, rows, strict=True)]
