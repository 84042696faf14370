"""Scaled dot-product attention, causal or full: two fast implementations and their readable twin.

softmax(Q Kᵀ / √d) V (Vaswani et al. 2017, equation 1). Causal: a position sees itself and what came before
(GPT-1 section 3.1). Full: it sees every position (BERT, Devlin et al. 2019, section 3). The queries are the last
`query_time` of `key_time` positions, as they are when a cache holds the earlier ones.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from headwater.native import Kernels

# Queries of a block of `attend_in_blocks`: enough for efficient matmuls, few enough to skip most of what is above
# the diagonal.
_BLOCK = 128


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    dropout: float = 0.0,
    causal: bool = True,
) -> Tensor:
    """Return attention computed by torch's fused kernels.

    query: (batch, head, query_time, head_dim); key, value: (batch, head, key_time, head_dim); mask: bool,
    broadcastable to (batch, head, query_time, key_time), True for visible keys; it replaces `causal`, which hides
    the future. Returns (batch, head, query_time, head_dim).
    """
    query_time, key_time = query.shape[-2], key.shape[-2]
    if causal and mask is None and query_time == key_time:
        # Pass a literal True: compiled for any length, the comparison is symbolic, and the kernel rejects that.
        return functional.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)
    if causal and mask is None and 1 < query_time < key_time:
        mask = causal_mask(query_time, key_time, query.device)
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)


def attend_plainly(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    causal: bool = True,
) -> Tensor:
    """Return the same as the paper's equation: compute every score, then set hidden ones to −∞."""
    return attention_weights(query, key, mask, causal) @ value  # (batch, head, query, head_dim)


def attention_weights(query: Tensor, key: Tensor, mask: Tensor | None = None, causal: bool = True) -> Tensor:
    """Return the attention weights: shapes as `attend` -> (batch, head, query_time, key_time)."""
    if causal and mask is None:
        mask = causal_mask(query.shape[-2], key.shape[-2], query.device)
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(dim=-1)


def attend_in_blocks(query: Tensor, key: Tensor, value: Tensor, kernels: Kernels) -> Tensor:
    """Return causal attention over a whole text, computed for a block of queries and the keys up to its end.

    Shapes as `attend`, with as many queries as keys. Hidden scores are not computed, except for the triangle
    inside a block. The weights are kept for the backward pass, half a square per head. kernels: compute the
    softmax, and all of it where they can.
    """
    if kernels.attends(query):
        return _NativeAttention.apply(query, key, value, kernels)  # type: ignore[no-untyped-call]
    return _BlockedAttention.apply(query, key, value, kernels)  # type: ignore[no-untyped-call]


class _NativeAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, kernels: Kernels) -> Tensor:
        out, sums = kernels.attend(query, key, value)
        ctx.save_for_backward(query, key, value, out, sums)
        ctx.kernels = kernels
        return out

    @staticmethod
    def backward(ctx: Any, *upstream: Any) -> tuple[Tensor, Tensor, Tensor, None]:
        return *ctx.kernels.attend_gradient(upstream[0], *ctx.saved_tensors), None


class _BlockedAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, kernels: Kernels) -> Tensor:
        shape = query.shape
        # (batch · head, time, head_dim), contiguous: else every matmul of a block copies its part.
        query, key, value = (x.flatten(0, 1).contiguous() for x in (query, key, value))
        attended = query.new_empty(query.shape)
        block_weights = []
        for start, end in _blocks(shape[-2]):
            weights = torch.bmm(query[:, start:end], key[:, :end].transpose(1, 2))  # (batch · head, block, end)
            kernels.softmax_(weights, shape[-1] ** -0.5)
            attended[:, start:end] = torch.bmm(weights, value[:, :end])
            if any(ctx.needs_input_grad):
                block_weights.append(weights)
        ctx.save_for_backward(query, key, value, *block_weights)
        ctx.kernels = kernels
        return attended.view(shape)

    @staticmethod
    def backward(ctx: Any, *upstream: Any) -> tuple[Tensor, Tensor, Tensor, None]:
        query, key, value, *block_weights = ctx.saved_tensors
        gradient = upstream[0]
        shape = gradient.shape
        gradient = gradient.flatten(0, 1).contiguous()
        grad_query = query.new_empty(query.shape)
        # Sums over blocks are in float32 for any dtype.
        grad_key = torch.zeros(key.shape, dtype=torch.float32, device=key.device)
        grad_value = torch.zeros_like(grad_key)
        for (start, end), weights in zip(_blocks(shape[-2]), block_weights, strict=True):
            grad_scores = torch.bmm(gradient[:, start:end], value[:, :end].transpose(1, 2))
            ctx.kernels.softmax_gradient_(grad_scores, weights, shape[-1] ** -0.5)
            grad_query[:, start:end] = torch.bmm(grad_scores, key[:, :end])
            grad_key[:, :end] += torch.bmm(grad_scores.transpose(1, 2), query[:, start:end])
            grad_value[:, :end] += torch.bmm(weights.transpose(1, 2), gradient[:, start:end])
        return (
            grad_query.view(shape),
            grad_key.to(key.dtype).view(shape),
            grad_value.to(value.dtype).view(shape),
            None,
        )


def _blocks(time: int) -> list[tuple[int, int]]:
    return [(start, min(start + _BLOCK, time)) for start in range(0, time, _BLOCK)]


def causal_mask(query_time: int, key_time: int, device: torch.device) -> Tensor:
    """Return (query_time, key_time) bool: the queries are the last positions and see keys up to themselves."""
    visible = torch.ones(query_time, key_time, dtype=torch.bool, device=device)
    return visible.tril(key_time - query_time)


def padding_mask(lengths: Tensor, time: int) -> Tensor:
    """Return which keys full attention may see in a batch padded on the right.

    lengths: (batch,) int64, the tokens of each sequence. Returns (batch, 1, 1, time) bool, True inside a sequence.
    """
    return (torch.arange(time, device=lengths.device) < lengths[:, None])[:, None, None, :]
