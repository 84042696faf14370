"""What a Transformer computes at one position: attention, residual stream, logits; with heads switched off.

Everything is one plain forward pass of the model, block by block, so that the numbers are the model's own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from headwater.model.cache import KeyValueCache
from headwater.model.transformer import Block, Transformer

Floats = npt.NDArray[np.float32]
Head = tuple[int, int]  # (layer, head), from 0


class Inside(NamedTuple):
    """One position, the last of the ids that were given.

    States are the residual stream: after the embeddings, then after each block.
    """

    attention: Floats  # (layer, head, time): from the position to each token
    recent: Floats  # (layer, head, window, window): among the last tokens; rows attend to columns
    token: Floats  # (width,): the row of the token embedding
    place: Floats  # (width,): the row of the position embedding
    norms: Floats  # (layer + 1,): length of each state
    writes: Floats  # (layer, 2): length of what attention and the MLP of each block add
    logits: Floats  # (layer + 1, vocabulary): each state read as the last one is (the logit lens)


@torch.inference_mode()
def look_inside(
    model: Transformer, ids: Sequence[int], vocabulary: int, *, window: int = 0, off: Sequence[Head] = ()
) -> Inside:
    """Return what the model computes at the last of `ids`, (time,), without the heads in `off`.

    A state is read through the final norm, where the model has one, and the output matrix (the "logit lens":
    nostalgebraist, 2020). `window` is how many of the last tokens the attention matrices cover.
    """
    embeddings = model.embeddings()
    row = torch.tensor(list(ids), device=embeddings.tokens.device)
    token, place = embeddings.tokens[row].float(), embeddings.positions[: len(ids)].float()
    x = (token + place)[None]  # (1, time, width)
    states, weights, writes = [x[0, -1]], [], []
    with heads_off(model, off), _written(model) as written:
        for layer, block in enumerate(model.blocks):
            assert isinstance(block, Block)
            weights.append(_weights(block, x, max(1, min(window, len(ids)))))
            x = block(x, layer, None, None)
            states.append(x[0, -1])
            writes.append(torch.stack(written[-2:]))
    stream = torch.stack(states)
    logits = model.logits(model.final_norm(stream))[:, :vocabulary]
    return Inside(
        attention=_array(torch.stack([rows[:, -1] for rows in weights])),
        recent=_array(torch.stack([rows[:, :, -window:] if window else rows[:, :0, :0] for rows in weights])),
        token=_array(token[-1]),
        place=_array(place[-1]),
        norms=_array(stream.norm(dim=-1)),
        writes=_array(torch.stack(writes)),
        logits=_array(logits),
    )


@torch.inference_mode()
def continue_greedily(
    model: Transformer, ids: Sequence[int], vocabulary: int, count: int, off: Sequence[Head] = ()
) -> list[int]:
    """Return the `count` tokens that follow `ids` when each is the likeliest, without the heads in `off`.

    Fewer follow where the context ends.
    """
    count = min(count, model.config.context + 1 - len(ids))
    weight = model.tokens.weight
    first = model.blocks[0]
    assert isinstance(first, Block)
    cache = KeyValueCache(
        model.config,
        1,
        len(ids) + count,
        dtype=first.attention.query_key_value.weight.dtype,
        device=weight.device,
    )
    new, found = list(ids), []
    with heads_off(model, off):
        for _ in range(count):
            hidden = model.hidden(torch.tensor([new], device=weight.device), cache=cache)[0, -1]
            new = [int(model.logits(hidden)[:vocabulary].argmax())]
            found += new
    return found


@contextmanager
def heads_off(model: Transformer, off: Sequence[Head]) -> Iterator[None]:
    """Replace the output of some heads by zeros while the context lasts."""
    size = model.config.width // model.config.heads

    def silence(head: int) -> Any:
        def hook(_: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            x = given[0].clone()
            x[..., head * size : (head + 1) * size] = 0
            return (x, *given[1:])

        return hook

    handles = []
    for layer, head in off:
        block = model.blocks[layer]
        assert isinstance(block, Block)
        handles.append(block.attention.projection.register_forward_pre_hook(silence(head)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _written(model: Transformer) -> Iterator[list[Tensor]]:
    """Collect the length of what attention and MLP of each block add at the last position, in order."""
    found: list[Tensor] = []

    def hook(_: nn.Module, __: Any, output: Tensor) -> None:
        found.append(output[0, -1].float().norm())

    handles = []
    for block in model.blocks:
        assert isinstance(block, Block)
        handles += [part.register_forward_hook(hook) for part in (block.attention, block.mlp)]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def _weights(block: Block, x: Tensor, rows: int) -> Tensor:
    """(head, rows, time): how the last positions of a block spread their attention."""
    attention, time = block.attention, x.shape[1]
    fused = attention.query_key_value(block.norm_1(x) if block.pre_norm else x)
    query, key, _ = fused.view(time, 3, attention.heads, -1).float().unbind(1)  # each (time, head, head_dim)
    scores = torch.einsum("rhd,thd->hrt", query[-rows:], key) / math.sqrt(query.shape[-1])
    future = torch.ones(rows, time, dtype=torch.bool, device=x.device).triu(time - rows + 1)
    return scores.masked_fill(future, float("-inf")).softmax(-1)


def _array(tensor: Tensor) -> Floats:
    found: Floats = tensor.float().cpu().numpy()
    return found
