"""Looking inside: log-probabilities of a prompt, mean states, attention weights, the prediction at every layer.

All of it is one plain forward pass of the Transformer, block by block.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headwater.inference.sampling import Alternatives
from headwater.model.transformer import Block, Transformer

# Rows of logits at a time: memory of a long prompt times a large vocabulary.
_ROWS = 64


class Inside(NamedTuple):
    """attention: (layer, head, position + 1); likeliest: by state, the embeddings first, (token, probability)."""

    attention: npt.NDArray[np.float32]
    likeliest: list[list[tuple[int, float]]]


@torch.inference_mode()
def prompt_scores(model: Transformer, ids: Sequence[int], vocabulary: int, count: int) -> list[Alternatives]:
    """What the model thought of each token of a prompt but the first, with its `count` likeliest instead."""
    if len(ids) < 2:
        return []
    hidden = model.hidden(_row(model, ids[:-1]))[0]
    targets = torch.tensor(ids[1:], device=hidden.device)
    found: list[Alternatives] = []
    for start in range(0, len(hidden), _ROWS):
        rows = model.logits(hidden[start : start + _ROWS])[:, :vocabulary].log_softmax(-1)
        chosen = rows.gather(1, targets[start : start + _ROWS, None])[:, 0].tolist()
        top = rows.topk(min(max(1, count), vocabulary))
        for log_probability, values, tokens in zip(chosen, top.values.tolist(), top.indices.tolist(), strict=True):
            likeliest = list(zip(tokens, values, strict=True))[:count]
            found.append(Alternatives(log_probability, likeliest))
    return found


@torch.inference_mode()
def mean_state(model: Transformer, ids: Sequence[int]) -> npt.NDArray[np.float32]:
    """(width,): the mean over a text of the last block's output, after the final norm."""
    mean: Tensor = model.hidden(_row(model, ids))[0].float().mean(0)
    return mean.cpu().numpy()


@torch.inference_mode()
def look_inside(model: Transformer, ids: Sequence[int], vocabulary: int, count: int = 5) -> Inside:
    """Attention from the last of `ids`, and the next token as each layer's state predicts it.

    A state is read as the last one is: through the final norm, where the model has one, and the output matrix
    (the "logit lens": nostalgebraist, 2020).
    """
    row = _row(model, ids)
    embeddings = model.embeddings()
    x = embeddings.tokens[row].float() + embeddings.positions[: len(ids)].float()
    states, attention = [x[0, -1]], []
    for layer, block in enumerate(model.blocks):
        assert isinstance(block, Block)
        attention.append(_weights(block, x))
        x = block(x, layer, None, None)
        states.append(x[0, -1])
    probabilities = model.logits(model.final_norm(torch.stack(states)))[:, :vocabulary].softmax(-1)
    top = probabilities.topk(min(count, vocabulary))
    likeliest = [
        list(zip(tokens, values, strict=True))
        for tokens, values in zip(top.indices.tolist(), top.values.tolist(), strict=True)
    ]
    return Inside(torch.stack(attention).float().cpu().numpy(), likeliest)


def _weights(block: Block, x: Tensor) -> Tensor:
    """(head, time): how a block's last position spreads its attention."""
    attention = block.attention
    fused = attention.query_key_value(block.norm_1(x) if block.pre_norm else x)
    query, key, _ = fused.view(x.shape[1], 3, attention.heads, -1).float().unbind(1)  # each (time, head, head_dim)
    scores = torch.einsum("hd,thd->ht", query[-1], key) / math.sqrt(query.shape[-1])
    return scores.softmax(-1)


def _row(model: Transformer, ids: Sequence[int]) -> Tensor:
    return torch.tensor([list(ids)], device=model.tokens.weight.device)
