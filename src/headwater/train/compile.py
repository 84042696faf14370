"""Compilation of the model's blocks, taken only when it gives what the eager step gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from headwater.model.transformer import Block
from headwater.train.loop import Trainer

Compile = Literal["auto", "on", "off"]

# Largest relative difference of the first batch's loss between the compiled and the eager step.
_TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 5e-3}


def compile_checked(
    trainer: Trainer, micro_batches: Sequence[Any], wish: Compile, note: Callable[[str], None]
) -> None:
    """Compile each block when `wish` is "on", or "auto" on an accelerator; else leave them eager.

    The first micro-batch decides, without dropout: where its loss differs on any rank, or no compiler is
    available, the blocks stay eager on all ranks and `note` says so, as it does where "on" is asked of a model
    without blocks. Blocks share one compiled form, so that depth costs no compilation.
    """
    if wish == "off" or (wish == "auto" and trainer.ranks.device.type == "cpu"):
        return
    blocks = [module for module in trainer.model.modules() if isinstance(module, Block)]
    if not blocks:
        if wish == "on":
            note("not compiled: an LSTM has no blocks")
        return
    reason = _compile_and_compare(trainer, blocks, micro_batches[0])
    # A rank that computes by other kernels than the rest would have other weights after a restart.
    if not trainer.ranks.any(bool(reason)):
        note("compiled: the first batch gives the eager loss")
        return
    for block in blocks:
        vars(block).pop("forward", None)
    note(f"not compiled: {reason or 'another rank could not'}")


def _compile_and_compare(trainer: Trainer, blocks: Sequence[Block], batch: Any) -> str:
    """Compile the blocks; returns why the result cannot be used, empty where it can."""
    eager = _loss(trainer, batch, training=False)
    try:
        for block in blocks:
            # Not `block.compile()`, which takes the hooks that gather a sharded block into the graph.
            vars(block)["forward"] = _compile(block.forward)
        compiled = _loss(trainer, batch, training=False)
        if trainer.config.dropout:
            _loss(trainer, batch, training=True)  # compiles what dropout adds
    except Exception as error:  # whatever a missing or broken compiler raises
        return f"compilation failed ({(str(error) or type(error).__name__).splitlines()[0]})"
    if abs(compiled - eager) <= _TOLERANCE[trainer.matrix_dtype] * abs(eager):
        return ""
    return f"the compiled loss {compiled:.5f} is not the eager {eager:.5f}"


def _compile(forward: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(forward)


def _loss(trainer: Trainer, batch: Any, *, training: bool) -> float:
    trainer.model.train(training or not trainer.config.dropout)
    loss: Tensor = trainer.objective(trainer.model, batch)[0]
    loss.backward()  # compiles the backward pass too
    trainer.optimizer.clear_gradients()
    trainer.model.train()
    return float(loss.detach())
