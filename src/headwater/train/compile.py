"""Compilation of the blocks and of the loss's gradient, taken only when it gives what the eager step gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from headwater.model.backend import use_backend
from headwater.model.transformer import Block
from headwater.train.loop import Trainer

Compile = Literal["auto", "on", "off"]

# Largest relative differences of the first batch's loss and gradient norm between the compiled and the eager step.
_TOLERANCE = {torch.float32: (1e-5, 1e-4), torch.bfloat16: (5e-3, 2e-2)}
_COMPILER = "inductor"


def compile_checked(
    trainer: Trainer, micro_batches: Sequence[Any], wish: Compile, note: Callable[[str], None]
) -> None:
    """Compile blocks and loss when `wish` is "on", or "auto" on an accelerator; else leave them eager.

    The first micro-batch decides, without dropout: where its loss or gradient differs on any rank, or no compiler
    is available, everything stays eager on all ranks and `note` says so. Blocks share one compiled form, so that
    depth costs no compilation.
    """
    if wish == "off" or (wish == "auto" and trainer.ranks.device.type == "cpu"):
        return
    blocks = [module for module in trainer.model.modules() if isinstance(module, Block)]
    backend = trainer.backend
    reason = _compile_and_compare(trainer, blocks, micro_batches[0])
    # A rank that computes by other kernels than the rest would have other weights after a restart.
    if not trainer.ranks.any(bool(reason)):
        note("compiled: the first batch gives the eager loss")
        return
    for block in blocks:
        vars(block).pop("forward", None)
    use_backend(trainer.model, backend)
    note(f"not compiled: {reason or 'another rank could not'}")


def _compile_and_compare(trainer: Trainer, blocks: Sequence[Block], batch: Any) -> str:
    """Compile the model; returns why the result cannot be used, empty where it can."""
    eager = _loss_and_norm(trainer, batch, training=False)
    try:
        for block in blocks:
            # Not `block.compile()`, which takes the hooks that gather a sharded block into the graph.
            vars(block)["forward"] = _compile(block.forward)
        use_backend(trainer.model, replace(trainer.backend, compiler=_COMPILER))
        compiled = _loss_and_norm(trainer, batch, training=False)
        if trainer.config.dropout:
            _loss_and_norm(trainer, batch, training=True)  # compiles what dropout adds
    except Exception as error:  # whatever a missing or broken compiler raises
        return f"compilation failed ({(str(error) or type(error).__name__).splitlines()[0]})"
    names, tolerances = ("loss", "gradient norm"), _TOLERANCE[trainer.matrix_dtype]
    for name, got, expected, tolerance in zip(names, compiled, eager, tolerances, strict=True):
        if not abs(got - expected) <= tolerance * abs(expected):
            return f"the compiled {name} {got:.5f} is not the eager {expected:.5f}"
    return ""


def _compile(forward: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(forward, backend=_COMPILER, fullgraph=True)


def _loss_and_norm(trainer: Trainer, batch: Any, *, training: bool) -> tuple[float, float]:
    trainer.model.train(training or not trainer.config.dropout)
    trainer.optimizer.clear_gradients()
    loss: Tensor = trainer.objective(trainer.model, batch)[0]
    loss.backward()  # compiles the backward pass too
    norm = trainer.optimizer.clip(0)
    trainer.optimizer.clear_gradients()
    trainer.model.train()
    return float(loss.detach()), float(norm)
