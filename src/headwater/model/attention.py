"""Scaled dot-product attention, causal: the fast call and its readable twin.

softmax(Q Kᵀ / √d) V, where a position sees itself and what came before (Vaswani et al. 2017, equation 1;
GPT-1 section 3.1). The queries are the last `query_time` of `key_time` positions, as they are when a cache
holds the earlier ones.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, dropout: float = 0.0) -> Tensor:
    """Attention through torch's fused kernels.

    query: (batch, head, query_time, head_dim); key, value: (batch, head, key_time, head_dim); mask: bool,
    broadcastable to (batch, head, query_time, key_time), True where a query may look, None for causal.
    Returns (batch, head, query_time, head_dim).
    """
    query_time, key_time = query.shape[-2], key.shape[-2]
    causal = mask is None and query_time == key_time
    if mask is None and 1 < query_time < key_time:
        mask = causal_mask(query_time, key_time, query.device)
    return functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, dropout_p=dropout, is_causal=causal
    )


def attend_plainly(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, dropout: float = 0.0
) -> Tensor:
    """The same, as the paper writes it: every score computed, the future masked out."""
    if mask is None:
        mask = causal_mask(query.shape[-2], key.shape[-2], query.device)
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])  # (batch, head, query, key)
    weights = scores.masked_fill(~mask, float("-inf")).softmax(dim=-1)
    return functional.dropout(weights, dropout) @ value  # (batch, head, query, head_dim)


def causal_mask(query_time: int, key_time: int, device: torch.device) -> Tensor:
    """(query_time, key_time) bool: query i, the last but query_time - 1 - i, sees keys up to itself."""
    visible = torch.ones(query_time, key_time, dtype=torch.bool, device=device)
    return visible.tril(key_time - query_time)


def document_mask(ids: Tensor, end_of_text: int) -> Tensor:
    """Causal attention that does not cross documents.

    ids: (batch, time) int64. Returns (batch, 1, time, time) bool; an end-of-text token belongs to the
    document that it ends.
    """
    ended = (ids == end_of_text).cumsum(dim=1)
    document = ended - (ids == end_of_text).to(ended.dtype)  # (batch, time)
    same = document[:, None, :, None] == document[:, None, None, :]
    return same & causal_mask(ids.shape[1], ids.shape[1], ids.device)
