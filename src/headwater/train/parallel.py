"""Ranks: how many processes train together, which one this is, and what they say to each other.

Under torchrun every process finds its place in the environment; alone there is one rank and nothing to say.
Losses and gradients are sums over ranks, never means: a batch carries weights that sum to 1 over the update.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from headwater.errors import UsageError


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process among all that train together."""

    rank: int = 0
    count: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and speaks to the user."""
        return self.rank == 0

    def sum_(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over all ranks."""
        if self.count == 1 or not tensors:
            return
        flat = torch._utils._flatten_dense_tensors(tensors)
        dist.all_reduce(flat)
        for tensor, total in zip(tensors, torch._utils._unflatten_dense_tensors(flat, tensors), strict=True):
            tensor.copy_(total)

    def any(self, flag: bool) -> bool:
        """Whether `flag` is true on any rank; the same answer on all of them."""
        if self.count == 1:
            return flag
        votes = torch.tensor(float(flag), device=self.device)
        dist.all_reduce(votes, op=dist.ReduceOp.MAX)
        return bool(votes.item())

    def share(self, value: Any) -> Any:
        """The first rank's `value`, on every rank."""
        if self.count == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, device=self.device)
        return box[0]

    def wait(self) -> None:
        """Go on when all ranks have come here."""
        if self.count > 1:
            dist.barrier()


def join(device: str = "auto") -> Ranks:
    """Find this process's place and device; under torchrun, meet the others.

    `device`: "auto" (CUDA, then MPS, then CPU), or a torch device name.
    """
    count = int(os.environ.get("WORLD_SIZE", "1"))
    rank = int(os.environ.get("RANK", "0"))
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    chosen = choose_device(device, local_rank)
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
    if count > 1 and not dist.is_initialized():
        dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo")
    return Ranks(rank, count, chosen)


def leave() -> None:
    """Part from the other ranks, at the end of training."""
    if dist.is_initialized():
        dist.destroy_process_group()


def choose_device(device: str, local_rank: int = 0) -> torch.device:
    """The device that `device` names; raises UsageError when it is not there."""
    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda", local_rank)
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        chosen = torch.device(device)
        torch.empty(1, device=chosen)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(
            f"device {device!r} cannot be used: {reason}", expected="auto, cpu, cuda or mps"
        ) from None
    return chosen


class _Sharded(nn.Module):
    """Model and objective as one module, so that whatever the objective reads has been gathered."""

    def __init__(self, model: nn.Module, objective: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.model, self.objective = model, objective

    def forward(self, batch: Any) -> Any:
        return self.objective(self.model, batch)


def shard(
    model: nn.Module, objective: Callable[[Any, Any], Any], ranks: Ranks, matrix_dtype: torch.dtype
) -> Callable[[Any, Any], Any]:
    """Divide parameters, gradients and optimizer state among the ranks (FSDP2, "fully sharded"), in place.

    Each block is gathered when it computes, in `matrix_dtype`, and recomputed in the backward pass, so that
    a rank holds about 1/ranks of the state and the activations of one block. Returns the objective to call
    instead of `objective`. Gradients are summed over ranks, in float32, by the backward pass.
    """
    from torch.distributed._composable import checkpoint
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh(ranks.device.type, (ranks.count,))
    policy = MixedPrecisionPolicy(param_dtype=matrix_dtype, reduce_dtype=torch.float32, cast_forward_inputs=False)
    root = _Sharded(model, objective)
    blocks = getattr(model, "blocks", ())
    for block in blocks:
        checkpoint(block)
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(root, mesh=mesh, mp_policy=policy)
    for module in (root, *blocks):
        module.set_gradient_divide_factor(1.0)
        module.set_force_sum_reduction_for_comms(True)  # a sum that every backend knows
    return lambda _, batch: root(batch)
