"""Ranks: the processes that train together, and their communication.

Under torchrun the environment names every process's rank; without it there is one rank. Losses and gradients are
sums over ranks, never means: the weights of a batch sum to 1 over the update.
"""

from __future__ import annotations

import os
import re
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from headwater.device import choose_device
from headwater.errors import HeadwaterError, TrainingError, UsageError

# For the slowest rank to start: it may load Python from storage that a thousand ranks read.
PATIENCE = timedelta(minutes=10)
# For a collective: a rank may write a large checkpoint to slow storage. NCCL's default is 10 minutes.
TIMEOUT = timedelta(minutes=30)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process among all that train together."""

    rank: int = 0
    count: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    group: dist.ProcessGroup | None = None  # None is torch's default group

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and messages."""
        return self.rank == 0

    def sum_(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over all ranks."""
        if self.count == 1 or not tensors:
            return
        flat = torch._utils._flatten_dense_tensors(tensors)
        dist.all_reduce(flat, group=self.group)
        for tensor, total in zip(tensors, torch._utils._unflatten_dense_tensors(flat, tensors), strict=True):
            tensor.copy_(total)

    def any(self, flag: bool) -> bool:
        """Return whether `flag` is true on any rank, on every rank."""
        return not self.minimum(int(not flag))

    def minimum(self, value: int) -> int:
        """Return the smallest `value` of all ranks, on every rank."""
        if self.count == 1:
            return value
        box = torch.tensor(value, device=self.device)
        dist.all_reduce(box, op=dist.ReduceOp.MIN, group=self.group)
        return int(box.item())

    def broadcast(self, value: Any) -> Any:
        """Return the first rank's `value`, on every rank."""
        if self.count == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, group=self.group, device=self.device)
        return box[0]

    def on_first(self, work: Callable[[], T]) -> T:
        """Call `work` on the first rank; return its result, or raise its HeadwaterError, on every rank."""
        outcome: tuple[T | None, HeadwaterError | None] = None, None
        if self.is_first:
            try:
                outcome = work(), None
            except HeadwaterError as raised:
                outcome = None, raised
        result, error = self.broadcast(outcome)
        if error is not None:
            raise error
        return result

    def barrier(self) -> None:
        """Wait for all ranks."""
        if self.count > 1:
            dist.barrier(group=self.group)

    def for_a_thread(self) -> Ranks:
        """Return the same ranks with another process group, on the CPU; every rank must call this.

        A thread uses it while the main thread communicates in the default group.
        """
        if self.count == 1:
            return self
        return replace(self, device=torch.device("cpu"), group=dist.new_group(timeout=TIMEOUT, backend="gloo"))


@contextmanager
def process_group(device: str = "auto") -> Iterator[Ranks]:
    """Yield this process's rank and device; under torchrun, within a process group of all ranks.

    `device`: "auto" (CUDA, then MPS, then CPU), or a torch device name. Raises TrainingError if another rank is
    gone or the device's memory is too small. A process group that exists already is used and not destroyed.
    """
    has_ended, is_ours = False, not dist.is_initialized()
    try:
        yield _join(device)
        has_ended = True
    except (RuntimeError, MemoryError) as error:
        if is_out_of_memory(error):
            raise out_of_memory(error) from error
        # Gloo has no exception type: its messages name it or one of its files.
        if not isinstance(error, dist.DistError) and "gloo" not in str(error).lower():
            raise
        rank, count = _rank_and_count()
        reason = re.sub(r"\[\S+:\d+\] ", "", str(error).splitlines()[0]).split(". ")[0]
        raise TrainingError(
            f"rank {rank} of {count} lost another one: {reason}",
            repair="With --max-restarts N torchrun starts all of them again; without, run the same command again. "
            "Both resume from the newest checkpoint",
        ) from error
    finally:
        # Without this, gloo's threads may abort the process at its end; NCCL would wait here for a dead rank.
        if is_ours and dist.is_initialized() and (has_ended or dist.get_backend() == "gloo"):
            dist.destroy_process_group()


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an exception means that the device or the machine is out of memory."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)


def out_of_memory(error: BaseException, clause: str = "") -> TrainingError:
    """Return the user's error; clause: names the checkpoint that was written, or nothing."""
    lines = str(error).splitlines() or [type(error).__name__]
    return TrainingError(
        f"the memory of the device is too small: {lines[0].split('] ')[-1]}{clause}",
        repair="Use a smaller --set micro_batch, or train a smaller model; --dry-run says what fits",
    )


def _rank_and_count() -> tuple[int, int]:
    """Return this process's rank and the number of ranks, from the process group or else from torchrun."""
    if dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    values = {name: os.environ.get(name, "") for name in names}
    rank, count = (values[name] or default for name, default in (("RANK", "0"), ("WORLD_SIZE", "1")))
    numbers = rank.isdecimal() and count.isdecimal() and (values["LOCAL_RANK"] or "0").isdecimal()
    alone = count == "1" and rank == "0"
    if not numbers or not (alone or (int(rank) < int(count) and values["MASTER_ADDR"] and values["MASTER_PORT"])):
        shown = ", ".join(f"{name}={value!r}" for name, value in values.items() if name in os.environ)
        raise UsageError(
            f"the environment has {shown}",
            expected="RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, as torchrun sets them",
            repair="Start the ranks with torchrun, or for one process: unset RANK WORLD_SIZE",
        )
    return int(rank), int(count)


def _join(device: str) -> Ranks:
    rank, count = _rank_and_count()
    local_rank = int(os.environ.get("LOCAL_RANK") or 0)
    chosen = choose_device(device, local_rank)
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
    if count > 1 and not dist.is_initialized():
        backend = "nccl" if chosen.type == "cuda" else "gloo"
        store, *_ = next(dist.rendezvous("env://", rank, count, timeout=PATIENCE))
        # torchrun keeps one store over its restarts (pytorch 135712), with the addresses of dead ranks; its
        # restart count, which differs between nodes, cannot tell them apart.
        own = dist.PrefixStore(agreed_name(store, rank, count, PATIENCE), store)
        device_id = chosen if chosen.type == "cuda" else None  # without it NCCL guesses, and a barrier may hang
        dist.init_process_group(
            backend, store=own, rank=rank, world_size=count, timeout=TIMEOUT, device_id=device_id
        )
    return Ranks(rank, count, chosen)


def agreed_name(store: dist.Store, rank: int, count: int, patience: timedelta) -> str:
    """Return a name that the ranks of this start agree on and that no earlier start in `store` had.

    Each rank stores a new random key; the first rank writes the name under that key until the rank confirms it.
    Keys of dead ranks stay in the store and are answered without effect. Raises torch's DistStoreError if a rank
    is missing.
    """
    word = uuid.uuid4().hex
    if rank != 0:
        store.set(f"word of {rank}", word)
        store.wait([f"name for {word}"], patience)
        name = store.get(f"name for {word}").decode()
        store.set(f"{name} has {rank}", "")
        return name
    absent, deadline = set(range(1, count)), time.monotonic() + patience.total_seconds()
    while absent:
        for other in absent:
            if store.check([f"word of {other}"]):
                store.set(f"name for {store.get(f'word of {other}').decode()}", word)
        absent = {other for other in absent if not store.check([f"{word} has {other}"])}
        if absent and time.monotonic() > deadline:
            raise dist.DistStoreError(f"rank {min(absent)} did not come within {patience}")
        time.sleep(0.01)
    return word


def shard(root: Any, blocks: Sequence[Any], ranks: Ranks, matrix_dtype: torch.dtype) -> None:
    """Shard parameters, gradients and optimizer state over the ranks (FSDP2), in place. `blocks` are in `root`.

    Each block is gathered for its computation, in `matrix_dtype`. Gradients are summed over ranks in float32.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh(ranks.device.type, (ranks.count,))
    policy = MixedPrecisionPolicy(param_dtype=matrix_dtype, reduce_dtype=torch.float32, cast_forward_inputs=False)
    for block in blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(root, mesh=mesh, mp_policy=policy)
    for module in (root, *blocks):
        module.set_gradient_divide_factor(1.0)
        module.set_force_sum_reduction_for_comms(True)  # a sum, which every backend supports
