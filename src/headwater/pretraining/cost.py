"""Estimate the memory of a run from its model."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from headwater.device import available_memory
from headwater.display import byte_size
from headwater.errors import UsageError
from headwater.model import ModelConfig, workspace_bytes
from headwater.training import Ranks, Trainer


class Memory(NamedTuple):
    """Bytes by purpose, for one rank."""

    state: int  # weights, gradients, optimizer, and the copy of a checkpoint that is written: see `state_bytes`
    activations: int  # kept for the backward pass of one micro-batch
    workspace: int  # temporary: the loss's logits


# Tokens of a micro-batch on a CPU: enough for efficient matmuls, few enough for small activations.
_CPU_TOKENS = 8_192
# Bytes that a block keeps for the backward pass, per token and dimension: 34 in 16 bits (Korthikanti et al. 2022,
# equation 2, without attention's square), and 2 more for each of three float32 tensors of the residual stream; in
# float32 twice as many, without the masks of dropout.
_KEPT_PER_WIDTH = {torch.bfloat16: 40, torch.float32: 68}
_SAVED = 12  # bytes per parameter in a checkpoint: master and two moments
# Share of the free memory for activations; the rest is for logits, workspaces and fragmentation.
_SHARE = 0.6
_MOST_TOKENS = 65_536  # more are not faster


def fitting_tokens(config: ModelConfig, ranks: Ranks, dtype: torch.dtype, *, sharded: bool) -> int:
    """Return the tokens of a micro-batch that use the device fully and fit its memory, a power of two."""
    if ranks.device.type == "cpu":
        return _CPU_TOKENS
    state = state_bytes(config.parameter_count, ranks, sharded=sharded, dtype=dtype)
    left = _SHARE * max(0, available_memory(ranks.device) - state)
    tokens = int(left / (_KEPT_PER_WIDTH[dtype] * config.width * config.layers))
    return int(ranks.minimum(min(_MOST_TOKENS, 1 << max(0, tokens.bit_length() - 1))))


def require_memory(
    config: ModelConfig, ranks: Ranks, dtype: torch.dtype, *, sharded: bool, optimizer: str
) -> None:
    """Raise UsageError if the memory is too small for weights, gradients, optimizer and a checkpoint's copy."""
    parameters, free = config.parameter_count, available_memory(ranks.device)
    needed = state_bytes(parameters, ranks, sharded=sharded, dtype=dtype)
    if needed > free:
        options = "--set shard=true" + " --set optimizer=adam" * (optimizer == "muon")  # which cannot be sharded
        whole = state_bytes(parameters, Ranks(device=ranks.device), sharded=False, dtype=dtype)
        ranks_needed = math.ceil(whole / (_SHARE * free))
        more = f"{ranks_needed} ranks" if sharded else f"{options} over {ranks_needed} ranks"
        raise UsageError(
            f"weights and optimizer take {needed / 1e9:.1f} GB, and {ranks.device} has {free / 1e9:.1f} GB free",
            repair=f"Train a smaller model, or use {more}",
        )
    copy = _SAVED * parameters // (ranks.count if sharded else 1)  # of a GPU's state, for a checkpoint
    free = available_memory(torch.device("cpu"))
    if ranks.device.type == "cuda" and (sharded or ranks.is_first) and copy > free:
        raise UsageError(
            f"a checkpoint is copied to the machine's memory: {byte_size(copy)}, and {byte_size(free)} are free",
            repair="Train a smaller model, or on a machine with more memory",
        )


def state_bytes(parameters: int, ranks: Ranks, *, sharded: bool, dtype: torch.dtype) -> int:
    """Return the memory of a run on this rank without its batches, for matrices of one dtype.

    A parameter takes its weight, a float32 master if that is another tensor, two moments and a gradient. Ranks
    that are not sharded reduce a copy of the gradients. A checkpoint is copied before it is written; from a GPU to
    the machine's memory.
    """
    master = 0 if dtype == torch.float32 else 4
    gradients = 4 * (2 if ranks.count > 1 and not sharded else 1)
    checkpoint = _SAVED if ranks.device.type != "cuda" and (sharded or ranks.is_first) else 0
    each = dtype.itemsize + master + 8 + gradients + checkpoint
    return each * (parameters // (ranks.count if sharded else 1))


def estimate_memory(trainer: Trainer, batch: Any, sequences: int) -> Memory:
    """Return the memory of a run with micro-batches of `sequences` sequences, measured on a batch of one or more.

    Activations are what the backward pass keeps of one and of two sequences, extrapolated, because some of it is
    constant.
    """
    model: Any = trainer.model
    ranks, sharded = trainer.ranks, trainer.sharded
    first = _kept_bytes(trainer, batch.first(1))
    growth = _kept_bytes(trainer, batch.first(2)) - first if len(batch.ids) > 1 else first
    matrix = model.output_matrix().detach()
    return Memory(
        state=state_bytes(model.config.parameter_count, ranks, sharded=sharded, dtype=trainer.matrix_dtype),
        activations=first + growth * (sequences - 1),
        workspace=workspace_bytes(matrix, sequences * batch.ids.shape[1], trainer.backend),
    )


def _kept_bytes(trainer: Trainer, batch: Any) -> int:
    """Return the bytes that the loss of a batch keeps for its backward pass, without the parameters."""
    own = {p.untyped_storage()._cdata for p in trainer.optimizer.parameters}
    sizes: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            sizes[storage._cdata] = storage.nbytes()
        return tensor.detach()  # keeping the tensor itself would keep its graph forever

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = trainer.loss(batch)[0]  # alive until all is counted: freed memory would be counted again
    del loss
    return sum(sizes.values())
