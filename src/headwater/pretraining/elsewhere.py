"""Forecast a pre-training run on another machine, from the published rates of its GPUs: nothing is measured there.

The time is operations divided by 40 % of the GPUs' peak rate, the share that training of small and middle-sized
models reaches, and the number of GPUs is assumed to divide it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import torch

from headwater.display import byte_size
from headwater.errors import UsageError
from headwater.pretraining.cost import (
    KEPT_PER_WIDTH,
    REACHED,
    fitting_tokens,
    sharding,
    state_memory,
    training_flops_per_token,
)
from headwater.pretraining.plan import Forecast, begin_forecast
from headwater.pretraining.recipe import PretrainConfig, resolve
from headwater.training import GPUS, Gpu, Ranks


def forecast_for(
    config: PretrainConfig, tokens: Path, machine: str, *, price_per_hour: float | None = None
) -> Forecast:
    """Return the cost of a run on `machine`, a GPU of `GPUS` and their number: `h100x8`.

    `price_per_hour` is that of the whole machine. Raises UsageError for an unknown machine.
    """
    name, gpu, count = _read(machine)
    wanted = config.micro_batch
    asked = config.precision if "precision" in config.model_fields_set else "auto"
    precision = "fp32" if asked == "fp32" else "bf16"  # what this machine would choose for auto does not matter
    recipe = config
    config = resolve(recipe.model_copy(update={"device": "cpu"}), tokens, Ranks(count=count))
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    shape, window = config.architecture, config.window
    ranks = Ranks(count=count, device=torch.device("cuda"))
    state = state_memory(shape.parameter_count, dtype, ranks, config.shard)
    largest = -(-config.batch_size // count)
    fitting = fitting_tokens(shape, ranks, sharded=config.shard, free=gpu.memory)
    micro_batch = min(largest, wanted or max(1, fitting // window))
    kept = KEPT_PER_WIDTH * shape.width * shape.layers * window * micro_batch
    result = begin_forecast(
        recipe,
        config,
        tokens,
        precision=precision,
        micro_batch=micro_batch,
        available=int(gpu.memory),
        memory=replace(state, activations=kept),
        machine=f"{count} × {name}, from their data sheet: {_rate(gpu, dtype) / 1e12:,.0f} TFLOP/s and "
        f"{byte_size(gpu.memory)} each. Nothing was measured there",
        advice="It should fit",
    )
    if state.total + kept > gpu.memory:
        shards = "" if config.shard else f"{sharding(config.optimizer)}, "
        repair = f"Use {shards}more GPUs, or a smaller model"
        if state.total < gpu.memory:
            repair = "Use a smaller --set micro_batch"
        needed = byte_size(state.total + kept)
        return replace(result, advice=f"It does not fit: each GPU would need {needed}. {repair}")
    speed = REACHED * _rate(gpu, dtype) * count / training_flops_per_token(shape, window)
    seconds = result.tokens / speed
    cost = None if price_per_hour is None else seconds / 3600 * price_per_hour
    return replace(result, tokens_per_second=speed, seconds=seconds, cost=cost)


def _read(machine: str) -> tuple[str, Gpu, int]:
    """Return name, GPU and number of GPUs of `h100x8` or `h100`."""
    parts = re.fullmatch(r"(.+?)(?:x(\d+))?", machine.lower())
    assert parts is not None
    count = int(parts[2] or 1)
    if parts[1] not in GPUS or count < 1:
        raise UsageError(f"--for {machine!r} is unknown", expected=f"one of {', '.join(GPUS)}, as in h100x8")
    return GPUS[parts[1]].name, GPUS[parts[1]], count


def _rate(gpu: Gpu, dtype: torch.dtype) -> float:
    return gpu.bf16 if dtype == torch.bfloat16 else gpu.tf32
