"""Log-probabilities of a prompt's tokens, and the mean state of a text: plain forward passes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headwater.inference.sampling import Alternatives
from headwater.model.transformer import Transformer

# Rows of logits at a time: memory of a long prompt times a large vocabulary.
_ROWS = 64


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


def _row(model: Transformer, ids: Sequence[int]) -> Tensor:
    return torch.tensor([list(ids)], device=model.tokens.weight.device)
