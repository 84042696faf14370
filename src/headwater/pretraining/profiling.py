"""`headwater pretrain --profile`: the time of each part of an update, compared with its lower bound.

A few real updates run under torch's profiler; every operation's own time counts for one part, by its name and its
callers. Bounds: for matmuls the machine's measured matmul rate, for everything else the measured rate of reading
and writing memory. Idle is the time between operations: Python, and waiting.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from headwater.model import ModelConfig
from headwater.pretraining.cost import inner_weights, predictions_a_token
from headwater.training import Trainer, matmul_rate, memory_rate

PARTS = ("matrix products", "attention", "head and loss", "element-wise", "optimizer", "data", "idle")
_UPDATES = 3
_PRODUCTS = (
    "aten::mm",
    "aten::addmm",
    "aten::bmm",
    "mkldnn::_linear_pointwise",
    "aten::linear",
    "aten::mkldnn_rnn_layer",  # an LSTM's, with its element-wise operations
    "aten::mkldnn_rnn_layer_backward",
)
_OWNERS = {
    "attention": ("_BlockedAttention", "scaled_dot_product"),
    "head and loss": ("_ChunkedCrossEntropy",),
    "optimizer": ("Optimizer.step", "_fused_adamw", "linalg_vector_norm", "_foreach_"),
}


@dataclass(frozen=True, slots=True)
class TimeShare:
    """One part of an update: its seconds, and their lower bound on this machine, None if it has none."""

    part: str
    seconds: float
    limit: float | None


def profile_updates(
    trainer: Trainer, read: Callable[[int], Sequence[Any]], config: ModelConfig, context: int
) -> list[TimeShare]:
    """Return the time of an update by part, in the order of PARTS; this trains for a few updates."""
    trainer.update(read(0))
    spent = dict.fromkeys(PARTS, 0.0)
    on_device = trainer.ranks.device.type == "cuda"
    activities = [torch.profiler.ProfilerActivity.CPU]
    if on_device:
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    least = 1 if on_device else 20  # microseconds of an operation; views and book-keeping take less
    wall = 0.0
    moved = 0
    sequences = 0
    for step in range(1, _UPDATES + 1):
        started = time.perf_counter()
        batches = read(step)
        spent["data"] += time.perf_counter() - started
        sequences = sum(len(batch.ids) for batch in batches)
        with torch.profiler.profile(activities=activities, record_shapes=True) as profiler:
            started = time.perf_counter()
            trainer.update(batches)
            if on_device:
                torch.cuda.synchronize()
            wall += time.perf_counter() - started
        for event in profiler.events():
            # Leave out a device's kernels: the operation that launched them has their time.
            if event.device_type != torch.autograd.DeviceType.CPU:
                continue
            part = _part_of(event)
            microseconds = event.self_device_time_total if on_device else event.self_cpu_time_total
            spent[part] += microseconds / 1e6
            if part == "element-wise" and microseconds >= least:
                moved += _bytes_moved(event)
    spent["idle"] = max(0.0, wall - sum(seconds for part, seconds in spent.items() if part != "data"))
    limits = _limits(trainer, config, sequences * context, context, moved // _UPDATES)
    return [TimeShare(part, spent[part] / _UPDATES, limits.get(part)) for part in PARTS]


def _part_of(event: Any) -> str:
    """Return the part of an operation: the nearest owner among its callers, else by its own name."""
    above = event
    while above is not None:
        for part, names in _OWNERS.items():
            if any(name in above.name for name in names):
                return part
        above = above.cpu_parent
    return "matrix products" if event.name in _PRODUCTS else "element-wise"


def _bytes_moved(event: Any) -> int:
    """Return the bytes of an operation's tensor operands, and of one result of the largest one's size."""
    if not event.name.startswith("aten::"):
        return 0
    sizes = [math.prod(n if isinstance(n, int) else 0 for n in shape or [0]) for shape in event.input_shapes or []]
    return 2 * (sum(sizes) + max(sizes, default=0))  # at least two bytes an element


def _limits(trainer: Trainer, config: ModelConfig, tokens: int, context: int, moved: int) -> dict[str, float]:
    rate = matmul_rate(trainer.matrix_dtype, trainer.ranks.device)
    memory = memory_rate(trainer.ranks.device)
    parameters = sum(master.numel() for master in trainer.optimizer.masters)
    width, square = config.width, 1 if config.is_masked else 0.5  # a causal kernel computes half of it
    return {
        "matrix products": 6 * inner_weights(config) * tokens / rate,
        # Both matmuls, forward and twice backward.
        "attention": 0.0 if config.is_recurrent else 12 * square * config.layers * width * context * tokens / rate,
        "head and loss": 6 * predictions_a_token(config) * config.vocabulary * width * tokens / rate,
        "element-wise": moved / memory,
        # Read weight, gradient and two moments, write three of them, 4 bytes each. In bfloat16 the gradient has 2
        # bytes, and so has the copy that computes.
        "optimizer": 28 * parameters / memory,
    }


def as_table(shares: Sequence[TimeShare]) -> str:
    """Return a table to print."""
    whole = sum(share.seconds for share in shares)
    lines = [f"{'':18}{'share':>7}{'ms':>10}{'limit ms':>10}{'times it':>10}"]
    for share in shares:
        limit = f"{1e3 * share.limit:10.1f}" if share.limit else f"{'':10}"
        distance = f"{share.seconds / share.limit:10.1f}" if share.limit and share.seconds else ""
        lines.append(f"{share.part:18}{share.seconds / whole:7.0%}{1e3 * share.seconds:10.1f}{limit}{distance}")
    return "\n".join(lines)
