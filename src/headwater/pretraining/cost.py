"""Estimate the cost of a run from its model: operations and memory.

Floating-point operations per token: 6 for every weight of a matmul (2 forward, 4 backward), and 12 · layers ·
width · context for attention's two matmuls over the whole square, as usual (PaLM, Chowdhery et al. 2022,
appendix B); a causal kernel computes half of that. The output matrix is used once for each predicted token.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headwater.device import available_memory
from headwater.display import byte_size
from headwater.errors import UsageError
from headwater.model import ModelConfig, build_model, workspace_bytes
from headwater.pretraining.masking import CHOSEN
from headwater.training import Ranks, Trainer


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes by purpose, for one rank."""

    weights: int  # what the model computes with
    optimizer: int  # float32 masters, if they differ from the weights, and both moments
    gradients: int  # and, for several ranks, the copy that is reduced
    checkpoint: int  # the copy of masters and moments that is written while training continues; 0 on a GPU
    activations: int = 0  # kept for the backward pass of one micro-batch
    workspace: int = 0  # temporary: the loss's logits

    @property
    def total(self) -> int:
        """Bytes of all purposes."""
        state = self.weights + self.optimizer + self.gradients + self.checkpoint
        return state + self.activations + self.workspace


# Tokens of a micro-batch on a CPU: enough for efficient matmuls, few enough for small activations.
_CPU_TOKENS = 8_192
# Bytes that a block keeps for the backward pass, per token and dimension: 34 in 16 bits (Korthikanti et al. 2022,
# equation 2, without attention's square), and 2 more for each of three float32 tensors of the residual stream; in
# float32 twice as many, without the masks of dropout.
_KEPT_PER_WIDTH = {torch.bfloat16: 40, torch.float32: 68}
_SAVED = 12  # bytes a parameter in a checkpoint: master and two moments
# Share of the free memory for activations; the rest is for logits, workspaces and fragmentation.
_SHARE = 0.6
_MOST_TOKENS = 65_536  # more are not faster


def fitting_tokens(config: ModelConfig, ranks: Ranks, dtype: torch.dtype, *, sharded: bool) -> int:
    """Return the tokens of a micro-batch that use the device fully and fit its memory, a power of two."""
    if ranks.device.type == "cpu":
        return _CPU_TOKENS
    state = state_memory(config.parameter_count, ranks, sharded=sharded, dtype=dtype)
    left = _SHARE * max(0, available_memory(ranks.device) - state.total)
    tokens = int(left / (_KEPT_PER_WIDTH[dtype] * config.width * config.layers))
    return int(ranks.minimum(min(_MOST_TOKENS, 1 << max(0, tokens.bit_length() - 1))))


def require_memory(
    config: ModelConfig, ranks: Ranks, dtype: torch.dtype, *, sharded: bool, optimizer: str
) -> None:
    """Raise UsageError if the memory is too small for weights, gradients, optimizer and a checkpoint's copy."""
    parameters, free = config.parameter_count, available_memory(ranks.device)
    needed = state_memory(parameters, ranks, sharded=sharded, dtype=dtype).total
    if needed <= free:
        _require_host_memory(parameters, ranks, sharded=sharded)
        return
    options = "--set shard=true" + " --set optimizer=adam" * (optimizer == "muon")  # which cannot be sharded
    ranks_needed = math.ceil(
        state_memory(parameters, Ranks(device=ranks.device), sharded=False, dtype=dtype).total / (_SHARE * free)
    )
    more = f"{ranks_needed} ranks" if sharded else f"{options} over {ranks_needed} ranks"
    raise UsageError(
        f"weights and optimizer take {needed / 1e9:.1f} GB, and {ranks.device} has {free / 1e9:.1f} GB free",
        repair=f"Train a smaller model, or use {more}",
    )


def _require_host_memory(parameters: int, ranks: Ranks, *, sharded: bool) -> None:
    """Raise UsageError if the machine of a GPU has too little memory for the copy that a checkpoint takes."""
    copy = _SAVED * parameters // (ranks.count if sharded else 1)
    free = available_memory(torch.device("cpu"))
    if ranks.device.type == "cuda" and (sharded or ranks.is_first) and copy > free:
        raise UsageError(
            f"a checkpoint is copied to the machine's memory: {byte_size(copy)}, and {byte_size(free)} are free",
            repair="Train a smaller model, or on a machine with more memory",
        )


def state_memory(parameters: int, ranks: Ranks, *, sharded: bool, dtype: torch.dtype) -> Memory:
    """Return the memory of weights, optimizer and gradients on each rank, for parameters of one dtype."""
    share = parameters // (ranks.count if sharded else 1)
    copied = ranks.device.type != "cuda" and (sharded or ranks.is_first)  # else it is in the machine's memory
    return Memory(
        weights=dtype.itemsize * share,
        optimizer=(8 + (0 if dtype == torch.float32 else 4)) * share,
        gradients=4 * share * (2 if ranks.count > 1 and not sharded else 1),
        checkpoint=_SAVED * share if copied else 0,
    )


def training_flops_per_token(config: ModelConfig, context: int) -> int:
    """Return the floating-point operations of forward and backward pass, per token of a window of `context`."""
    width = config.width
    attention = 0 if config.is_recurrent else 12 * config.layers * width * context
    # For each token that is read; a model of two directions predicts it twice.
    predictions = CHOSEN if config.is_masked else config.output_width // width
    return round(6 * (inner_weights(config) + predictions * config.vocabulary * width)) + attention


def inner_weights(config: ModelConfig) -> int:
    """Return the number of matrix entries between the embeddings and the head."""
    model = build_model(config, device="meta")
    outer = ("tokens.", "positions.", "segments.", "output.", "output_transform.")
    return sum(p.numel() for name, p in model.named_parameters() if p.dim() > 1 and not name.startswith(outer))


def estimate_memory(trainer: Trainer, batch: Any, sequences: int) -> Memory:
    """Return the memory of a run with micro-batches of `sequences` sequences, measured on a batch of one or more.

    Activations are what the backward pass keeps of one and of two sequences, extrapolated, because some of it is
    constant.
    """
    optimizer = trainer.optimizer
    model: Any = trainer.model
    vectors = sum(master.numel() for master in optimizer.masters if master.dim() < 2)
    matrices = sum(master.numel() for master in optimizer.masters) - vectors
    state = state_memory(matrices, trainer.ranks, sharded=trainer.sharded, dtype=trainer.matrix_dtype)
    others = state_memory(vectors, trainer.ranks, sharded=trainer.sharded, dtype=torch.float32)

    def kept(count: int) -> int:
        return _bytes_kept(lambda: trainer.loss(batch.first(count))[0], optimizer.parameters)

    first = kept(1)
    growth = kept(2) - first if len(batch.ids) > 1 else first
    matrix = model.output_matrix().detach()
    return Memory(
        weights=state.weights + others.weights,
        optimizer=state.optimizer + others.optimizer,
        gradients=state.gradients + others.gradients,
        checkpoint=state.checkpoint + others.checkpoint,
        activations=first + growth * (sequences - 1),
        workspace=workspace_bytes(matrix, sequences * batch.ids.shape[1], trainer.backend),
    )


def _bytes_kept(forward: Callable[[], Tensor], parameters: Sequence[Tensor]) -> int:
    """Return the bytes of distinct storage, without parameters, that `forward` keeps for its backward pass."""
    own = {p.untyped_storage()._cdata for p in parameters}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            kept[storage._cdata] = storage.nbytes()
        return tensor.detach()  # keeping the tensor itself would keep its graph forever

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = forward()  # alive until all is counted: freed memory would be counted again
    del loss
    return sum(kept.values())
