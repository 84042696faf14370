"""Fill blanks with a masked model (BERT, Devlin et al. 2019), which predicts them from the text on both sides."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import torch

from headwater.errors import UsageError
from headwater.inference.request import require_context
from headwater.inference.sampling import not_finite
from headwater.model import ModelConfig
from headwater.tokenizer import MASK

if TYPE_CHECKING:
    from headwater.model import Model
    from headwater.tokenizer import Tokenizer

MOST_MASKS = 64  # blanks of one text
_FEATURES = "Learn a task with it: headwater finetune"


class Candidate(NamedTuple):
    """A token that may fill a blank, its text, and its probability there."""

    token: int
    text: str
    probability: float


def require_causal(config: ModelConfig) -> None:
    """Raise UsageError for a model that does not continue a text."""
    if not config.is_causal:
        raise UsageError(
            "this model does not read a text from left to right",
            expected="a model with causal attention, as GPT-1 or GPT-2",
            repair='Fill a blank with it, in Python: lm.fill("The [MASK] is blue.")'
            if config.is_masked
            else _FEATURES,
            param="model",
        )


@contextmanager
def evaluated(model: Model) -> Iterator[Model]:
    """Put a model in evaluation mode within a `with` block."""
    training = model.training
    try:
        yield model.eval()
    finally:
        model.train(training)


@torch.inference_mode()
def fill(model: Model, tokenizer: Tokenizer, ids: list[int], top: int = 5) -> list[list[Candidate]]:
    """Return the `top` most probable tokens of each `[MASK]` in `ids` (see `framed`), most probable first.

    Raises UsageError for a text without `[MASK]` or with more than MOST_MASKS, and a `top` that is not positive.
    """
    if not 1 <= top <= tokenizer.vocabulary_size:
        raise UsageError(f"top is {top}", expected=f"1 to {tokenizer.vocabulary_size}", param="top")
    blanks = [position for position, token in enumerate(ids) if token == tokenizer.mask]
    if not 1 <= len(blanks) <= MOST_MASKS:
        seen = f"the text has {len(blanks)} {MASK}" if blanks else f"the text has no {MASK}"
        raise UsageError(seen, expected=f"1 to {MOST_MASKS}", repair=f'As in: "The {MASK} is blue."')
    device = model.tokens.weight.device
    hidden = model.hidden(torch.tensor([ids], device=device))[0, blanks]  # (blanks, width)
    # Rows beyond the vocabulary, as GPT-1's code has them for positions, are not words.
    logits = model.logits(hidden)[:, : tokenizer.vocabulary_size]
    if not bool(logits.isfinite().all()):
        raise not_finite(float(logits.abs().max()))
    probabilities, tokens = logits.softmax(dim=-1).topk(top)
    return [
        [
            Candidate(token, tokenizer.token_text(token), probability)
            for token, probability in zip(*row, strict=True)
        ]
        for row in zip(tokens.tolist(), probabilities.tolist(), strict=True)
    ]


def framed(config: ModelConfig, tokenizer: Tokenizer, text: str) -> list[int]:
    """Return the ids of a text as a masked model reads it, between `[CLS]` and `[SEP]` if it has them.

    Raises UsageError for a model that is not masked, ContextError for a text longer than the context.
    """
    if not config.is_masked:
        repair = "Continue a text with it: headwater generate" if config.is_causal else _FEATURES
        expected = "a masked model, as BERT"
        raise UsageError("this model does not fill blanks", expected=expected, repair=repair, param="model")
    if not config.predicts_tokens:
        raise UsageError(
            "this model is an encoder without a head that predicts tokens (BertModel)",
            expected="a model with one, as BertForMaskedLM",
            repair="Learn a task with it: headwater finetune; or read its embeddings",
        )
    before, after = tokenizer.frame
    ids = [*before, *tokenizer.encode(text, allow_special=True), *after]
    require_context(len(ids), config.context)
    return ids
