"""What a masked model (BERT, Devlin et al. 2019) does with text: it fills blanks and scores a text.

A masked model gives each hidden position a distribution that depends on the text on both sides. It does not define
the probability of a text; hiding one token at a time and adding the log-probabilities gives a score in its place
(pseudo-log-likelihood, Salazar et al. 2020, "Masked Language Model Scoring", equation 1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import torch

from headwater.errors import ContextError, UsageError
from headwater.model.attention import padding_mask
from headwater.model.config import ModelConfig
from headwater.tokenizer.vocabulary import MASK

if TYPE_CHECKING:
    from headwater.model import Model
    from headwater.tokenizer import Tokenizer

MOST_MASKS = 64  # blanks of one text
_BATCH_TOKENS = 4_096  # tokens that go through the model at a time


class Candidate(NamedTuple):
    """A token that may fill a blank, its text, and its probability there."""

    token: int
    text: str
    probability: float


def require_masked(config: ModelConfig) -> None:
    """Raise UsageError for a model that does not fill blanks."""
    if not config.is_masked:
        raise UsageError(
            "this model has causal attention and does not fill blanks",
            expected="a masked model, as BERT",
            repair="Continue a text with it: headwater generate",
        )


def require_causal(config: ModelConfig) -> None:
    """Raise UsageError for a model that does not continue a text."""
    if config.is_masked:
        raise UsageError(
            "this model has full attention: it fills blanks and cannot read a text from left to right",
            expected="a model with causal attention, as GPT-1 or GPT-2",
            repair='Fill a blank with it: headwater fill "The [MASK] is blue."',
        )


@contextmanager
def evaluated(model: Model) -> Iterator[Model]:
    """Put a model in evaluation mode for the duration of a block."""
    training = model.training
    try:
        yield model.eval()
    finally:
        model.train(training)


@torch.inference_mode()
def fill(model: Model, tokenizer: Tokenizer, text: str, top: int = 5) -> list[list[Candidate]]:
    """Return the `top` most probable tokens of each `[MASK]` in `text`, most probable first.

    Raises UsageError for a model that is not masked, a text without `[MASK]` or with more than MOST_MASKS, and a
    `top` that is not positive; ContextError for a text longer than the context.
    """
    require_masked(model.config)
    if not 1 <= top <= tokenizer.vocabulary_size:
        raise UsageError(f"top = {top}", expected=f"1 to {tokenizer.vocabulary_size}")
    ids = framed(model, tokenizer, text, allow_special=True)
    blanks = [place for place, token in enumerate(ids) if token == tokenizer.mask]
    if not 1 <= len(blanks) <= MOST_MASKS:
        seen = f"the text has {len(blanks)} {MASK}" if blanks else f"the text has no {MASK}"
        raise UsageError(seen, expected=f"1 to {MOST_MASKS}", repair=f'As in: "The {MASK} is blue."')
    device = model.tokens.weight.device
    hidden = model.hidden(torch.tensor([ids], device=device))[0, blanks]  # (blanks, width)
    # Rows beyond the vocabulary, as GPT-1's code has them for positions, are not words.
    logits = model.logits(hidden)[:, : tokenizer.vocabulary_size]
    probabilities, tokens = logits.softmax(dim=-1).topk(top)
    return [
        [
            Candidate(token, tokenizer.token_text(token), probability)
            for token, probability in zip(*row, strict=True)
        ]
        for row in zip(tokens.tolist(), probabilities.tolist(), strict=True)
    ]


@torch.inference_mode()
def pseudo_log_likelihood(model: Model, tokenizer: Tokenizer, texts: Sequence[str]) -> list[float]:
    """Return Σ log P(token | all others) over the tokens of each text, each hidden in turn.

    Raises UsageError for a model that is not masked, ContextError for a text longer than the context.
    """
    require_masked(model.config)
    assert tokenizer.mask is not None
    device = model.tokens.weight.device
    before, after = tokenizer.frame
    rows: list[tuple[int, int, list[int]]] = []  # which text, which token is hidden, ids with it hidden
    scores = [0.0] * len(texts)
    whole = [framed(model, tokenizer, text) for text in texts]
    for number, ids in enumerate(whole):
        for place in range(len(before), len(ids) - len(after)):
            rows.append((number, place, [*ids[:place], tokenizer.mask, *ids[place + 1 :]]))
    rows.sort(key=lambda row: len(row[2]))  # rows of similar length together: little padding
    while rows:
        count = max(1, _BATCH_TOKENS // len(rows[-1][2]))
        batch, rows = rows[-count:], rows[:-count]
        lengths = torch.tensor([len(ids) for _, _, ids in batch], device=device)
        time = int(lengths.max())
        padded = torch.tensor([ids + [0] * (time - len(ids)) for _, _, ids in batch], device=device)
        hidden = model.hidden(padded, mask=padding_mask(lengths, time))
        at = hidden[torch.arange(len(batch), device=device), [place for _, place, _ in batch]]  # (batch, width)
        log_probabilities = model.logits(at)[:, : tokenizer.vocabulary_size].log_softmax(dim=-1)
        for (number, place, _), row in zip(batch, log_probabilities.cpu(), strict=True):
            scores[number] += float(row[whole[number][place]])
    return scores


def framed(model: Model, tokenizer: Tokenizer, text: str, allow_special: bool = False) -> list[int]:
    """Return the ids of a text as the model reads it, `[CLS]` and `[SEP]` around it where it has them."""
    before, after = tokenizer.frame
    ids = [*before, *tokenizer.encode(text, allow_special), *after]
    if len(ids) > model.config.context:
        raise ContextError(
            f"the text has {len(ids):,} tokens, more than the model's context",
            expected=f"at most {model.config.context:,}",
            repair="Shorten the text",
        )
    return ids
