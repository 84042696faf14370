"""The objectives of pre-training: L1 and the masked objective, each a function of a model and a batch.

L1(U) = Σ log P(u_i | u_{i−k}, …, u_{i−1}) (GPT-1 section 3.1, equation 1; GPT-2 section 2, equation 1), here the
mean negative log-likelihood per token. The masked objective is BERT's (Devlin et al. 2019, section 3.1): the mean
negative log-likelihood of the tokens that `masking` hid.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from headwater.model import cross_entropy
from headwater.pretraining.tokens.sampler import TokenBatch


def l1(model: Any, batch: TokenBatch) -> tuple[Tensor, Mapping[str, Tensor]]:
    """Return the objective L1 on a TokenBatch."""
    embeddings = model.embeddings()
    hidden = model.hidden(batch.ids, embeddings=embeddings)  # (sequences, context, width)
    matrix = model.output_matrix(embeddings)
    targets, weights = batch.targets.flatten(), batch.weights.flatten()
    return cross_entropy(hidden.flatten(0, 1), matrix, targets, weights, model.backend), {}


def masked(model: Any, batch: TokenBatch) -> tuple[Tensor, Mapping[str, Tensor]]:
    """Return the masked objective on a TokenBatch whose targets are the hidden tokens, IGNORE elsewhere."""
    embeddings = model.embeddings()
    hidden = model.hidden(batch.ids, embeddings=embeddings).flatten(0, 1)  # (sequences · context, width)
    targets, weights = batch.targets.flatten(), batch.weights.flatten()
    chosen = batch.target_positions()
    hidden, targets, weights = hidden[chosen], targets[chosen], weights[chosen]
    matrix, bias = model.output_matrix(embeddings), None
    if model.output_transform is not None:
        hidden, bias = model.output_transform(hidden), model.output_transform.bias
    return cross_entropy(hidden, matrix, targets, weights, model.backend, bias), {}
