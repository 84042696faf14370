"""What a run will cost, before it is spent: arithmetic, memory, and the time of a few real updates.

Floating-point operations a token: 6 for every weight of a matrix product (2 forward, 4 backward), and
12 · layers · width · context for attention's two products over the whole square, which is the field's way to
count (PaLM, Chowdhery et al. 2022, appendix B); a causal kernel does half of that.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headwater.errors import UsageError
from headwater.model.backend import backend_of
from headwater.model.config import PRESETS, ModelConfig, preset
from headwater.model.loss import workspace_bytes
from headwater.train.loop import Trainer
from headwater.train.machine import available_memory
from headwater.train.optimizer import bytes_a_parameter
from headwater.train.parallel import Ranks

# The first updates pay for choosing kernels and for fresh memory; a short update needs many of them to be known.
_WARMUP = (2, 1.0)  # at least so many updates and seconds
_TIMED = (5, 2.0)


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes by purpose, for one rank."""

    weights: int  # what the model computes with
    optimizer: int  # float32 masters where they differ from the weights, and both moments
    gradients: int  # and, among ranks, their copy on the way
    activations: int  # kept for the backward pass of one micro-batch
    workspace: int  # for a moment: logits and what becomes of them

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.optimizer + self.gradients + self.activations + self.workspace


# Tokens that go through the model at a time on a CPU: enough for efficient matrix products, few enough that their
# activations stay small.
_CPU_TOKENS = 8_192
# Bytes that a block keeps of a token for the backward pass, for each of its width: 34 in 16 bits (Korthikanti et
# al. 2022, equation 2, without attention's square), and 2 more for each of three float32 tensors of the residual.
_KEPT_A_WIDTH = 40
# Share of the free memory for activations: the rest is for logits, workspaces and fragmentation.
_SHARE = 0.6
_MOST_TOKENS = 65_536  # more gain nothing


def fitting_tokens(config: ModelConfig, ranks: Ranks, *, sharded: bool) -> int:
    """Return the tokens of a micro-batch that keep the device busy and fit it: a power of two on a device."""
    if ranks.device.type == "cpu":
        return _CPU_TOKENS
    free = _SHARE * max(0, available_memory(ranks.device) - _state_bytes(config, ranks, sharded))
    tokens = int(free / (_KEPT_A_WIDTH * config.width * config.layers))
    fits = min(_MOST_TOKENS, 1 << max(0, tokens.bit_length() - 1))
    return int(ranks.smallest(fits))


def require_memory(config: ModelConfig, ranks: Ranks, *, sharded: bool) -> None:
    """Raise UsageError where a GPU has no room for weights and optimizer, and say what would fit."""
    if ranks.device.type != "cuda":
        return
    needed, free = _state_bytes(config, ranks, sharded), available_memory(ranks.device)
    if needed <= free:
        return
    alike = (config.architecture, config.norm, config.attention)
    shapes = {name: preset(name) for name in PRESETS}
    fitting = [
        name
        for name, shape in shapes.items()
        if (shape.architecture, shape.norm, shape.attention) == alike
        and _state_bytes(shape, Ranks(), False) < _SHARE * free
    ]
    largest = max(fitting, key=lambda name: inner_weights(shapes[name]), default=None)
    smaller = f"Use --preset {largest}" if largest else "Use a smaller --preset"
    raise UsageError(
        f"weights and optimizer take {needed / 1e9:.1f} GB, and {ranks.device} has {free / 1e9:.1f} GB free",
        repair=f"{smaller}, or --set shard=true over {math.ceil(needed / (_SHARE * free))} ranks",
    )


def _state_bytes(config: ModelConfig, ranks: Ranks, sharded: bool) -> int:
    """Return the bytes of weights, masters, moments and gradients on one rank."""
    parameters = inner_weights(config) + config.vocabulary * config.width
    return bytes_a_parameter(torch.bfloat16) * parameters // (ranks.count if sharded else 1)


def training_flops_a_token(config: ModelConfig, context: int) -> int:
    """Model floating-point operations of forward and backward pass, a token of a window of `context`."""
    width = config.width
    attention = 0 if config.is_recurrent else 12 * config.layers * width * context
    predictions = 2 if config.architecture == "bilstm" else 1  # of a token: from either side
    return 6 * (inner_weights(config) + predictions * config.vocabulary * width) + attention


def inner_weights(config: ModelConfig) -> int:
    """Weights that a token is multiplied by between the embeddings and the head."""
    width = config.width
    units = config.units or 0
    if config.architecture == "bilstm":
        return 2 * config.layers * units * (4 * (width + units) + width)
    if config.architecture == "lstm":
        gates = sum(4 * units * ((width if layer == 0 else units) + units) for layer in range(config.layers))
        return gates + units * width
    return 12 * config.layers * width**2


def estimate_memory(trainer: Trainer, batch: Any, sequences: int) -> Memory:
    """Memory of a run whose micro-batch has `sequences` sequences, measured on a batch of any number of them.

    Weights, optimizer and gradients are counted from the tensors; activations by what the backward pass keeps of
    one and of two sequences, because some of it does not grow with them. `batch` has at least one.
    """
    optimizer = trainer.optimizer
    model: Any = trainer.model
    ranks = trainer.ranks.count if trainer.sharded else 1
    weights = _bytes(optimizer.parameters)
    masters = _bytes([m for p, m in zip(optimizer.parameters, optimizer.masters, strict=True) if m is not p])
    parameters = sum(master.numel() for master in optimizer.masters)

    def kept(count: int) -> int:
        return _bytes_kept(lambda: trainer.objective(model, batch.first(count))[0], optimizer.parameters)

    first = kept(1)
    growth = kept(2) - first if len(batch.ids) > 1 else first
    copies = 2 if trainer.ranks.count > ranks else 1
    matrix = model.output_matrix().detach()
    return Memory(
        weights=weights // ranks,
        optimizer=(masters + 8 * parameters) // ranks,
        gradients=4 * parameters * copies // ranks,
        activations=first + growth * (sequences - 1),
        workspace=workspace_bytes(matrix, sequences * batch.ids.shape[1], backend_of(model)),
    )


def time_updates(trainer: Trainer, read: Callable[[int], Sequence[Any]]) -> float:
    """Median seconds of an update, over a few real ones, as many on every rank; the trainer is changed by them."""
    step = 0
    seconds: list[float] = []
    for updates, least in (_WARMUP, _TIMED):
        seconds = []
        # No two clocks agree, and a rank that stopped before the others would leave them waiting for it.
        while trainer.ranks.any(len(seconds) < updates or sum(seconds) < least):
            batches = read(step)
            started = time.perf_counter()
            trainer.update(batches)
            seconds.append(time.perf_counter() - started)
            step += 1
    return statistics.median(seconds)


def _bytes(tensors: Sequence[Tensor]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def _bytes_kept(forward: Callable[[], Tensor], parameters: Sequence[Tensor]) -> int:
    """Bytes of distinct storage that the graph of `forward` keeps for its backward pass, parameters left out."""
    own = {p.untyped_storage()._cdata for p in parameters}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            kept[storage._cdata] = storage.nbytes()
        return tensor.detach()  # a result that is kept as it is would keep its own graph for ever

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = forward()  # alive until all is counted: memory that is given back would be counted again
    del loss
    return sum(kept.values())
