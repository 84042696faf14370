"""A Transformer at one position: attention, residual stream and logits; without chosen heads, or step by step.

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
from headwater.model import Backend, attend, attention_weights

Floats = npt.NDArray[np.float32]
Head = tuple[int, int]  # (layer, head), from 0


class HeadSteps(NamedTuple):
    """How one head comes to its output at the last position: softmax(q·k / √head_dim) · values."""

    query: Floats  # (head_dim,)
    keys: Floats  # (time, head_dim)
    values: Floats  # (time, head_dim)
    products: Floats  # (time,): q·k, before they are divided by √head_dim
    weights: Floats  # (time,)
    output: Floats  # (head_dim,)


class Units(NamedTuple):
    """The hidden units of one MLP with the largest activations at the last position, and what they add.

    A state's logits are linear in what is added to the state once the scale of the norms is fixed, so each unit
    has its share of the logits that the logit lens reads after this block.
    """

    numbers: npt.NDArray[np.int64]  # (units,), the largest activation first
    inputs: Floats  # (units,): before the activation
    activations: Floats  # (units,)
    lengths: Floats  # (units,): of the vectors that they add
    logits: Floats  # (units, vocabulary): what they add to the logits after this block
    hidden: int  # units of the MLP


class Inside(NamedTuple):
    """What the model computes at the last of the given ids.

    States are the residual stream: after the embeddings, then after each block.
    """

    attention: Floats  # (layer, head, time): from the position to each token
    recent: Floats  # (layer, head, window, window): among the last tokens; rows attend to columns
    token: Floats  # (width,): the row of the token embedding
    position: Floats  # (width,): the row of the position embedding
    norms: Floats  # (layer + 1,): length of each state
    writes: Floats  # (layer, 2): length of the vectors that attention and the MLP of each block add
    logits: Floats  # (layer + 1, vocabulary): of each state, as if it were the last (the logit lens)
    head: HeadSteps | None  # of the head that was asked for
    units: Units | None  # of the MLP in that head's layer


@torch.inference_mode()
def look_inside(
    network: Network,
    ids: Sequence[int],
    vocabulary: int,
    *,
    window: int = 0,
    off: Sequence[Head] = (),
    head: Head | None = None,
    units: int = 8,
) -> Inside:
    """Return what the model computes at the last of `ids`, (time,), without the heads in `off`.

    The final norm, if the model has one, and the output matrix are applied to each state (the "logit lens",
    nostalgebraist, 2020). `window` is how many of the last tokens the attention matrices cover. `head` is shown
    step by step, with this many `units` of the MLP in its layer. Raises UsageError for a model without attention.
    """
    layered = network.layered()
    rows = torch.tensor(list(ids), device=layered.device)
    positions = torch.arange(len(ids), device=layered.device)
    attention = _Attention(layered, off, rows=max(1, min(window, len(ids))), head=head)
    states, added = [layered.embed(rows[-1:], positions[-1:])[0]], list[Tensor]()

    def observe(attended: Tensor, mlp: Tensor, x: Tensor) -> None:
        added.append(torch.stack([attended[-1].float(), mlp[-1].float()]))
        states.append(x[-1])

    layered.forward(rows, positions, attention, observe=observe)
    stream = torch.stack(states)
    weights = attention.weights
    return Inside(
        attention=_array(torch.stack([rows[:, -1] for rows in weights])),
        recent=_array(torch.stack([rows[:, :, -window:] if window else rows[:, :0, :0] for rows in weights])),
        token=_array(layered.tokens[ids[-1]]),
        position=_array(layered.positions[len(ids) - 1]),
        norms=_array(stream.norm(dim=-1)),
        writes=_array(torch.stack(added).norm(dim=-1)),
        logits=_array(layered.logits(layered.normed(stream))[:, :vocabulary]),
        head=attention.steps,
        units=None
        if head is None
        else _units(layered, head[0], states[head[0]], added[head[0]], units, vocabulary),
    )


def _units(network: TorchNetwork, layer: int, state: Tensor, added: Tensor, count: int, vocabulary: int) -> Units:
    """state: (width,), before the block; added: (2, width), what its attention and its MLP add."""
    block = network.layers[layer]
    middle = state + added[0]
    inputs = block.expand((block.norm_2 if block.pre_norm else block.norm_1)(middle[None]))
    activations = Backend().activate(inputs, block.activation)[0].float()
    largest = activations.abs().topk(min(count, len(activations))).indices
    # A row of the second matrix times its unit. The matrix is only known by its products.
    alone = torch.zeros(len(largest) + 1, len(activations), dtype=inputs.dtype, device=inputs.device)
    alone[range(len(largest)), largest] = activations[largest].to(alone.dtype)
    outputs = block.contract(alone).float()
    shares = writes = outputs[:-1] - outputs[-1]
    summed = (middle if block.pre_norm else block.norm_1(middle)) + added[1]
    for norm in ([] if block.pre_norm else [block.norm_2]) + ([network.final_norm] if network.final_norm else []):
        # The norm is linear but for its division by the deviation of the whole state, which is kept.
        deviation = (summed.var(correction=0) + norm.epsilon).sqrt()
        shares = (shares - shares.mean(dim=-1, keepdim=True)) / deviation * norm.weight
        summed = norm(summed)
    return Units(
        numbers=largest.cpu().numpy(),
        inputs=_array(inputs[0, largest]),
        activations=_array(activations[largest]),
        lengths=_array(writes.norm(dim=-1)),
        logits=_array(network.logits(shares)[:, :vocabulary]),
        hidden=len(activations),
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

    `weights`: (head, rows, time) a layer, of the last `rows` positions, if `rows` is not 0. `steps`: of `head`.
    """

    def __init__(
        self, network: TorchNetwork, off: Sequence[Head], rows: int = 0, head: Head | None = None
    ) -> None:
        self.weights: list[Tensor] = []
        self.steps: HeadSteps | None = None
        self._off, self._rows, self._head = off, rows, head
        self._seen: list[tuple[Tensor, Tensor] | None] = [None] * len(network.layers)

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Each (rows, head, head_dim) -> (rows, head, head_dim)."""
        if (seen := self._seen[layer]) is not None:
            key, value = torch.cat([seen[0], key]), torch.cat([seen[1], value])
        self._seen[layer] = key, value
        query, key, value = (x.transpose(0, 1)[None] for x in (query, key, value))  # (1, head, rows, head_dim)
        if self._rows:
            self.weights.append(attention_weights(query[:, :, -self._rows :].float(), key.float())[0])
        if self._head is not None and self._head[0] == layer:
            self.steps = _steps(*(x[0, self._head[1]].float() for x in (query[:, :, -1:], key, value)))
        attended = attend(query, key, value)[0].transpose(0, 1).contiguous()
        attended[:, [head for at, head in self._off if at == layer]] = 0
        return attended


def _steps(query: Tensor, keys: Tensor, values: Tensor) -> HeadSteps:
    """query: (1, head_dim); keys, values: (time, head_dim)."""
    weights = attention_weights(query[None, None], keys[None, None])[0, 0]
    steps = query[0], keys, values, (query @ keys.T)[0], weights[0], (weights @ values)[0]
    return HeadSteps(*map(_array, steps))


def _array(tensor: Tensor) -> Floats:
    return tensor.float().cpu().numpy()
