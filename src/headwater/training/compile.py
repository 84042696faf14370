"""How an update is computed: TF32, deterministic algorithms, and torch.compile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import MethodType
from typing import Any

import torch

from headwater.model import Block, with_own_code
from headwater.training.parallel import is_out_of_memory
from headwater.training.trainer import Trainer, preserved_random_state

_COMPILER = "inductor"


@contextmanager
def arithmetic(device: torch.device, *, deterministic: bool) -> Iterator[None]:
    """Within the block use TF32 for float32 matmuls on CUDA, and deterministic algorithms if asked."""
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision == "tf32", torch.are_deterministic_algorithms_enabled()
    try:
        if device.type == "cuda":
            # If `fp32_precision` is set, torch's compiler raises an error where it reads the old setting (pytorch
            # 166387).
            matmul.allow_tf32 = True
        if deterministic:
            torch.use_deterministic_algorithms(True)
        yield
    finally:
        if device.type == "cuda":
            matmul.allow_tf32 = before[0]
        if deterministic:
            torch.use_deterministic_algorithms(before[1])


def compile_blocks(
    trainer: Trainer,
    micro_batches: Sequence[Any],
    mode: str,
    note: Callable[[str], None],
    *,
    dynamic: bool | None = None,
) -> None:
    """Compile blocks and loss if `mode` is "on", or "auto" on an accelerator; `note` reports the choice.

    The first micro-batch is computed once, so that a missing or broken compiler is noticed on all ranks, which
    stay eager then. Blocks share one compilation, so depth does not matter. dynamic: True compiles once for
    batches of any shape; None for the first shape, and for any after a second one.
    """
    if mode == "off" or (mode == "auto" and trainer.ranks.device.type == "cpu"):
        return
    reason = ""
    try:
        forward = _compile(with_own_code(Block.forward), dynamic)
        for block in filter(lambda module: isinstance(module, Block), trainer.model.modules()):
            # `block.compile()` would include the hooks that gather a sharded block in the graph.
            vars(block)["forward"] = MethodType(forward, block)
        replace(trainer.backend, compiler=_COMPILER).assign_to(trainer.model)
        trainer.model.train()
        with preserved_random_state(trainer.ranks.device):
            trainer.loss(micro_batches[0])[0].backward()
    except Exception as error:  # whatever a missing or broken compiler raises
        if is_out_of_memory(error):
            raise
        reason = f"compilation failed ({(str(error) or type(error).__name__).splitlines()[0]})"
    trainer.optimizer.clear_gradients()
    # All ranks need the same kernels, or their weights would differ after a restart.
    if trainer.ranks.any(bool(reason)):
        trainer.compute_eagerly()
        note(f"not compiled: {reason or 'another rank could not'}")
    else:
        note("compiled")


def _compile(forward: Callable[..., Any], dynamic: bool | None) -> Callable[..., Any]:
    return torch.compile(forward, backend=_COMPILER, fullgraph=True, dynamic=dynamic)
