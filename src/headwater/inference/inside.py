"""What a Transformer computes at one position: attention, residual stream, logits; optionally without some heads.

Weights and precision are those of the network that scores and generates; its forward pass runs layer by layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headwater.inference.network import Network
from headwater.inference.torch_network import TorchNetwork
from headwater.model import attend, attention_weights

Floats = npt.NDArray[np.float32]
Head = tuple[int, int]  # (layer, head), from 0


class Inside(NamedTuple):
    """What the model computes at the last of the given ids.

    States are the residual stream: after the embeddings, then after each block.
    """

    attention: Floats  # (layer, head, time): from the position to each token
    recent: Floats  # (layer, head, window, window): among the last tokens; rows attend to columns
    token: Floats  # (width,): the row of the token embedding
    place: Floats  # (width,): the row of the position embedding
    norms: Floats  # (layer + 1,): length of each state
    writes: Floats  # (layer, 2): length of the vectors that attention and the MLP of each block add
    logits: Floats  # (layer + 1, vocabulary): of each state, as if it were the last (the logit lens)


@torch.inference_mode()
def look_inside(
    network: Network, ids: Sequence[int], vocabulary: int, *, window: int = 0, off: Sequence[Head] = ()
) -> Inside:
    """Return what the model computes at the last of `ids`, (time,), without the heads in `off`.

    The final norm, if the model has one, and the output matrix are applied to each state (the "logit lens",
    nostalgebraist, 2020). `window` is how many of the last tokens the attention matrices cover. Raises UsageError
    for a model without attention.
    """
    layered = network.layered()
    rows = torch.tensor(list(ids), device=layered.device)
    positions = torch.arange(len(ids), device=layered.device)
    attention = _Attention(layered, off, rows=max(1, min(window, len(ids))))
    states, writes = [layered.embed(rows[-1:], positions[-1:])[0]], []

    def observe(attended: Tensor, mlp: Tensor, x: Tensor) -> None:
        writes.append(torch.stack([attended[-1].float().norm(), mlp[-1].float().norm()]))
        states.append(x[-1])

    layered.forward(rows, positions, attention, observe=observe)
    stream = torch.stack(states)
    weights = attention.weights
    return Inside(
        attention=_array(torch.stack([rows[:, -1] for rows in weights])),
        recent=_array(torch.stack([rows[:, :, -window:] if window else rows[:, :0, :0] for rows in weights])),
        token=_array(layered.tokens[ids[-1]]),
        place=_array(layered.positions[len(ids) - 1]),
        norms=_array(stream.norm(dim=-1)),
        writes=_array(torch.stack(writes)),
        logits=_array(layered.logits(layered.normed(stream))[:, :vocabulary]),
    )


@torch.inference_mode()
def continue_greedily(
    network: Network, ids: Sequence[int], vocabulary: int, count: int, off: Sequence[Head] = ()
) -> list[int]:
    """Return the greedy continuation of `ids` by at most `count` tokens, without the heads in `off`."""
    layered = network.layered()
    attention = _Attention(layered, off)
    new, start, continuation = list(ids), 0, list[int]()
    for _ in range(min(count, layered.config.context + 1 - len(ids))):
        rows = torch.tensor(new, device=layered.device)
        positions = torch.arange(start, start + len(new), device=layered.device)
        last = torch.tensor([len(new) - 1], device=layered.device)
        hidden = layered.forward(rows, positions, attention, keep=last)
        start += len(new)
        new = [int(layered.logits(hidden)[0, :vocabulary].argmax())]
        continuation += new
    return continuation


class _Attention:
    """Causal attention of one text over several calls, each with the next tokens, without the heads in `off`.

    `weights`: (head, rows, time) a layer, of the last `rows` positions, if `rows` is not 0.
    """

    def __init__(self, network: TorchNetwork, off: Sequence[Head], rows: int = 0) -> None:
        self.weights: list[Tensor] = []
        self._off, self._rows = off, rows
        self._seen: list[tuple[Tensor, Tensor] | None] = [None] * len(network.layers)

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Each (rows, head, head_dim) -> (rows, head, head_dim)."""
        if (seen := self._seen[layer]) is not None:
            key, value = torch.cat([seen[0], key]), torch.cat([seen[1], value])
        self._seen[layer] = key, value
        query, key, value = (x.transpose(0, 1)[None] for x in (query, key, value))  # (1, head, rows, head_dim)
        if self._rows:
            self.weights.append(attention_weights(query[:, :, -self._rows :].float(), key.float())[0])
        attended = attend(query, key, value)[0].transpose(0, 1).contiguous()
        attended[:, [head for at, head in self._off if at == layer]] = 0
        return attended


def _array(tensor: Tensor) -> Floats:
    return tensor.float().cpu().numpy()
