"""Compilation of the model's blocks, taken only when it gives what the eager step gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from headwater.train.loop import Trainer

Compile = Literal["auto", "on", "off"]

# Largest relative difference of the first batch's loss between the compiled and the eager step.
_TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 5e-3}


def compile_checked(
    trainer: Trainer, micro_batches: Sequence[Any], wish: Compile, note: Callable[[str], None]
) -> None:
    """Compile each block in place when `wish` is "on", or "auto" on an accelerator; else leave them eager.

    The first micro-batch decides: where its loss differs, or no compiler is there, the blocks stay eager and
    `note` says so, as it does where "on" cannot be: with dropout, or without blocks. Blocks share one compiled
    form, so that depth costs no compilation.
    """
    on_accelerator = trainer.ranks.device.type != "cpu"
    blocks = getattr(trainer.model, "blocks", None)
    if wish == "off" or (wish == "auto" and not on_accelerator):
        return
    if blocks is None or trainer.config.dropout:
        if wish == "on":
            why = "an LSTM has no blocks" if blocks is None else "with dropout no two losses can be compared"
            note(f"not compiled: {why}")
        return
    eager = _loss(trainer, micro_batches[0])
    try:
        for block in blocks:
            block.compile()
        compiled = _loss(trainer, micro_batches[0])
    except Exception as error:  # whatever a missing or broken compiler raises
        reason = f"compilation failed ({(str(error) or type(error).__name__).splitlines()[0]})"
    else:
        if abs(compiled - eager) <= _TOLERANCE[trainer.matrix_dtype] * abs(eager):
            note("compiled: the first batch gives the eager loss")
            return
        reason = f"the compiled loss {compiled:.5f} is not the eager {eager:.5f}"
    for block in blocks:
        block._compiled_call_impl = None
    note(f"not compiled: {reason}")


def _loss(trainer: Trainer, batch: Any) -> float:
    trainer.model.train()
    loss: Tensor = trainer.objective(trainer.model, batch)[0]
    loss.backward()  # compiles the backward pass too
    trainer.optimizer.clear_gradients()
    return float(loss.detach())
