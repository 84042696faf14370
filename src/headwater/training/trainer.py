"""`Trainer`: one update, the same for pre-training and fine-tuning.

An objective is a function of (model, batch) that returns a loss and what to log. Losses are summed over the
micro-batches of an update and over ranks, because the weights of all its batches sum to 1. Accumulated
micro-batches therefore give the loss and gradient of one large batch, and the number of ranks only changes
dropout's masks. `arithmetic` and `compile_blocks` decide how an update is computed: with TF32, by deterministic
algorithms, by torch.compile.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import MethodType
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from headwater import native
from headwater.device import bf16_is_fast
from headwater.errors import TrainingError
from headwater.model import Backend, Block, with_own_code
from headwater.training.config import TrainConfig, TrainingPrecision
from headwater.training.optimizer import Optimizer, inner_matrices, master_weights
from headwater.training.parallel import Ranks, is_out_of_memory, shard
from headwater.training.schedule import learning_rate_factor

_COMPILER = "inductor"
# Held while torch's generators, which all threads share, have a training's state.
_RANDOM_STATE = threading.RLock()

# What to check where training goes wrong.
SUSPECTS = (
    "Check, in this order: the learning rate (halve it, or increase warmup_steps), the batch (too few tokens per "
    "update), the precision (--set precision=fp32), and the data"
)
# (model, batch) -> the loss, and what to write into the journal by name.
Objective = Callable[[Any, Any], tuple[Tensor, Mapping[str, Tensor]]]


@dataclass(frozen=True, slots=True)
class UpdateResult:
    """The result of one update; the loss is over the whole batch of all ranks, before the update."""

    loss: float
    gradient_norm: float
    learning_rate: float
    logged: dict[str, float]


class _ModelAndObjective(nn.Module):
    """A sharded model and its objective as one module, which gathers all parameters that the objective reads."""

    def __init__(self, model: nn.Module, objective: Objective) -> None:
        super().__init__()
        self.model, self.objective = model, objective

    def forward(self, batch: Any) -> Any:
        """Return the objective's result."""
        return self.objective(self.model, batch)


class Trainer:
    """A model, an objective and an optimizer. backend: replaces the model's, unless it is None.

    The model's matrices have the dtype of `config.precision` until `end_training`.
    """

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        config: TrainConfig,
        *,
        ranks: Ranks | None = None,
        sharded: bool = False,
        recompute: bool = False,
        muon: bool = False,
        backend: Backend | None = None,
    ) -> None:
        self.model, self.config = model, config
        self.loss: Callable[[Any], tuple[Tensor, Mapping[str, Tensor]]] = partial(objective, model)
        """Returns the objective's loss of a batch and what to log."""
        self.ranks = ranks or Ranks()
        self.sharded = sharded
        self.matrix_dtype = compute_dtype(config.precision, self.ranks.device)
        if backend is not None:
            backend.assign_to(model)
        held = (getattr(part, "backend", None) for part in model.modules())
        self.backend = next((own for own in held if isinstance(own, Backend)), Backend())
        blocks: Any = getattr(model, "blocks", ())
        if recompute:
            from torch.distributed._composable import checkpoint

            for block in blocks:
                checkpoint(block)  # keeps only its input: the backward pass computes its activations again
        if sharded:
            self.loss = whole = _ModelAndObjective(model, objective)
            shard(whole, blocks, self.ranks, self.matrix_dtype)
        uses_kernels = self.backend.native and not sharded and self.ranks.device.type == "cpu" and not muon
        # Sharded parameters are float32, and are gathered in the matrices' dtype for the computation.
        weights = master_weights(model, torch.float32 if sharded else self.matrix_dtype, contiguous=uses_kernels)
        kernels = native.kernels() if uses_kernels else None
        self.optimizer = Optimizer(weights, config, kernels, inner_matrices(model, weights) if muon else ())

    @property
    def step(self) -> int:
        """The number of updates done."""
        return self.optimizer.updates

    def compile_blocks(
        self, batch: Any, mode: str, note: Callable[[str], None], *, dynamic: bool | None = None
    ) -> None:
        """Compile blocks and loss if `mode` is "on", or "auto" on an accelerator; `note` reports the choice.

        The batch is computed once, so that a missing or broken compiler is noticed on all ranks, which stay eager
        then. Blocks share one compilation, so depth does not matter. dynamic: True compiles once for batches of
        any shape; None for the first shape, and for any after a second one.
        """
        if mode == "off" or (mode == "auto" and self.ranks.device.type == "cpu"):
            return
        reason = ""
        try:
            forward = _compile(with_own_code(Block.forward), dynamic)
            for block in filter(lambda module: isinstance(module, Block), self.model.modules()):
                # `block.compile()` would include the hooks that gather a sharded block in the graph.
                vars(block)["forward"] = MethodType(forward, block)
            replace(self.backend, compiler=_COMPILER).assign_to(self.model)
            self.model.train()
            with preserved_random_state(self.ranks.device):
                self.loss(batch)[0].backward()
        except Exception as error:  # whatever a missing or broken compiler raises
            if is_out_of_memory(error):
                raise
            reason = f"compilation failed ({(str(error) or type(error).__name__).splitlines()[0]})"
        self.optimizer.clear_gradients()
        # All ranks need the same kernels, or their weights would differ after a restart.
        if self.ranks.any(bool(reason)):
            self.compute_eagerly()
            note(f"not compiled: {reason or 'another rank could not'}")
        else:
            note("compiled")

    def compute_eagerly(self) -> None:
        """Undo the compilation of the model."""
        for block in self.model.modules():
            if isinstance(block, Block):
                vars(block).pop("forward", None)
        self.backend.assign_to(self.model)

    def end_training(self) -> None:
        """Make the model eager, give it its float32 weights, and free the gradients."""
        self.compute_eagerly()
        for parameter, master in zip(self.optimizer.parameters, self.optimizer.masters, strict=True):
            parameter.data = master.detach()
        self.optimizer.free_gradients()

    def full_weights(self) -> dict[str, Tensor]:
        """Return the whole float32 weights by name, on the CPU; every rank of a sharded run calls this."""
        weights = {}
        for name, master in zip(self.optimizer.names, self.optimizer.masters, strict=True):
            whole = master.full_tensor() if hasattr(master, "full_tensor") else master
            weights[name] = whole.detach().cpu()
        return weights

    def update(self, micro_batches: Sequence[Any]) -> UpdateResult:
        """Update the model on this rank's micro-batches.

        Raises TrainingError, with all state unchanged, if the loss or a gradient is not finite.
        """
        config, ranks = self.config, self.ranks
        self.model.train()
        self.optimizer.clear_gradients()
        sums: dict[str, Tensor] = {}
        with preserved_random_state(ranks.device):
            for index, batch in enumerate(micro_batches):
                # Dropout is a function of the step and the micro-batch, so that a resumed run draws the same.
                torch.manual_seed(_seed_of(config.seed, self.step, index, ranks.rank))
                loss, logged = self.loss(batch)
                loss.backward()
                for name, value in {"loss": loss, **logged}.items():
                    sums[name] = sums.get(name, 0.0) + value.detach().float()
        if ranks.count > 1:
            ranks.sum_(list(sums.values()))
            if not self.sharded:  # else the backward pass summed them
                ranks.sum_(self.optimizer.gradients)
        norm = self.optimizer.clip(config.clip)
        names = ["gradient_norm", *sums]
        figures = torch.stack([norm.float(), *sums.values()]).tolist()  # the one wait for the device
        result = dict(zip(names, figures, strict=True))
        if not all(map(math.isfinite, figures)):
            raise TrainingError(
                f"the loss or its gradient is not finite at update {self.step + 1}: loss {result['loss']}, "
                f"gradient norm {result['gradient_norm']}",
                repair=SUSPECTS,
            )
        learning_rate = config.learning_rate * learning_rate_factor(
            config.schedule, self.step, config.steps, config.warmup_steps, config.final_rate
        )
        self.optimizer.step(learning_rate)
        return UpdateResult(result.pop("loss"), result.pop("gradient_norm"), learning_rate, result)


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


def _compile(forward: Callable[..., Any], dynamic: bool | None) -> Callable[..., Any]:
    return torch.compile(forward, backend=_COMPILER, fullgraph=True, dynamic=dynamic)


@contextmanager
def preserved_random_state(device: torch.device) -> Iterator[None]:
    """Restore the process's random state after the block. One thread at a time can be in such a block."""
    with _RANDOM_STATE, torch.random.fork_rng([device] if device.type == "cuda" else []):
        yield


C = TypeVar("C", bound=TrainConfig)


def resolve_precision(config: C, begun: TrainConfig | None, device: torch.device) -> C:
    """Return `config` with precision "auto" resolved: as in the run to resume, `begun`, or for this device."""
    precision = begun.precision if begun is not None and config.precision == "auto" else config.precision
    bf16 = compute_dtype(precision, device) == torch.bfloat16
    return config.model_copy(update={"precision": "bf16" if bf16 else "fp32"})


def compute_dtype(precision: TrainingPrecision, device: torch.device) -> torch.dtype:
    """Return the dtype that the model's matrices compute in; "auto" follows from the device's features."""
    bf16 = precision == "bf16" or (precision == "auto" and bf16_is_fast(device))
    return torch.bfloat16 if bf16 else torch.float32


def _seed_of(seed: int, step: int, micro_batch: int, rank: int) -> int:
    mixed = 0
    for part in (seed, step, micro_batch, rank):
        mixed = ((mixed ^ part) * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019) & (2**63 - 1)
        mixed ^= mixed >> 29
    return mixed
