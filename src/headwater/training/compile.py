"""How an update is computed: TF32, deterministic algorithms, and torch.compile if it gives the eager result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import FunctionType, MethodType
from typing import Any

import torch

from headwater.model import Block
from headwater.training.loop import Trainer, preserved_random_state

# Largest relative differences of the first batch's loss and gradient norm between the compiled and the eager step.
_TOLERANCE = {torch.float32: (1e-5, 1e-4), torch.bfloat16: (5e-3, 2e-2)}
_TF32_TOLERANCE = (6e-4, 2.5e-3)  # matmuls in TF32 keep three bits more than in bfloat16
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


def compile_checked(
    trainer: Trainer,
    micro_batches: Sequence[Any],
    mode: str,
    note: Callable[[str], None],
    *,
    dynamic: bool | None = None,
) -> None:
    """Compile blocks and loss if `mode` is "on", or "auto" on an accelerator.

    The first micro-batch decides, without dropout in the blocks: if its loss or gradient differs on any rank, or
    there is no compiler, all ranks stay eager and `note` says so. Blocks share one compilation, so depth does not
    matter. dynamic: True compiles once for batches of any shape; None for the first shape, and for any after a
    second one.
    """
    if mode == "off" or (mode == "auto" and trainer.ranks.device.type == "cpu"):
        return
    reason = _compile_and_compare(trainer, micro_batches[0], dynamic)
    # All ranks need the same kernels, or their weights would differ after a restart.
    if not trainer.ranks.any(bool(reason)):
        note("compiled: the first batch gives the eager loss")
        return
    trainer.compute_eagerly()
    note(f"not compiled: {reason or 'another rank could not'}")


def _compile_and_compare(trainer: Trainer, batch: Any, dynamic: bool | None) -> str:
    """Compile the model; return why the result cannot be used, or an empty string."""
    eager = _loss_and_norm(trainer, batch, training=False)
    try:
        forward = _compile(_with_own_code(Block.forward), dynamic)
        for block in filter(lambda module: isinstance(module, Block), trainer.model.modules()):
            # `block.compile()` would include the hooks that gather a sharded block in the graph.
            vars(block)["forward"] = MethodType(forward, block)
        replace(trainer.backend, compiler=_COMPILER).assign_to(trainer.model)
        compiled = _loss_and_norm(trainer, batch, training=False)
        if trainer.config.dropout != 0:  # None is the model's own
            _loss_and_norm(trainer, batch, training=True)  # compiles the variant with dropout
    except Exception as error:  # whatever a missing or broken compiler raises
        return f"compilation failed ({(str(error) or type(error).__name__).splitlines()[0]})"
    names, tolerances = ("loss", "gradient norm"), _TOLERANCE[trainer.matrix_dtype]
    if trainer.matrix_dtype == torch.float32 and torch.backends.cuda.matmul.fp32_precision == "tf32":
        tolerances = _TF32_TOLERANCE
    for name, got, expected, tolerance in zip(names, compiled, eager, tolerances, strict=True):
        if not abs(got - expected) <= tolerance * abs(expected):
            return f"the compiled {name} {got:.5f} is not the eager {expected:.5f}"
    return ""


def _compile(forward: Callable[..., Any], dynamic: bool | None) -> Callable[..., Any]:
    return torch.compile(forward, backend=_COMPILER, fullgraph=True, dynamic=dynamic)


def _with_own_code(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a copy that shares no compilations with the original.

    torch stores them by code object, and refuses to compile one more than eight times: with shared code, a process
    that trains several models would fail.
    """
    assert isinstance(function, FunctionType)
    return FunctionType(
        function.__code__.replace(), function.__globals__, function.__name__, function.__defaults__
    )


def _loss_and_norm(trainer: Trainer, batch: Any, *, training: bool) -> tuple[float, float]:
    trainer.model.train(training or trainer.config.dropout == 0)
    trainer.optimizer.clear_gradients()
    with preserved_random_state(trainer.ranks.device):
        torch.manual_seed(trainer.config.seed)  # the same mask of a classifier's dropout, which is not compiled
        loss = trainer.loss(batch)[0]
        loss.backward()  # compiles the backward pass too
    norm = trainer.optimizer.clip(0)
    trainer.optimizer.clear_gradients()
    trainer.model.train()
    return float(loss.detach()), float(norm)
