"""Forecasts of a pre-training run: what its memory is used for, and how long it will take, measured.

`headwater pretrain --dry-run` builds the run's model and trains it on the real tokens for about half a minute at
most (`timing`); nothing is written. It does not try what cannot fit: weights and optimizer are counted first.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from headwater.device import available_cores, available_memory, cores_in_use
from headwater.display import byte_size
from headwater.pretraining.cost import Memory, estimate_memory, sharding, state_memory
from headwater.pretraining.pretraining import build_run
from headwater.pretraining.preview import passes_of, passes_text, passes_warning, rate_text
from headwater.pretraining.recipe import PretrainConfig, resolve
from headwater.pretraining.timing import time_updates
from headwater.pretraining.tokens.sampler import TokenStream
from headwater.storage import SILENT, Progress, read_manifest
from headwater.training import Ranks, process_group

_BUSY = 0.3  # cores used by other programs above which a measured speed is misleading
_VALIDATED = 5.0  # seconds of a validation that is measured; that of a longer one follows from the updates


@dataclass(frozen=True, slots=True)
class Forecast:
    """The cost of a run. Memory in bytes, for one rank; times in seconds."""

    preset: str  # or the trained model that the run continues from
    parameters: int
    precision: str
    tokens_per_update: int
    updates: int
    tokens: int
    train_tokens: int  # of the training part
    passes: float  # over it
    learning_rate: str  # its peak and the way there
    micro_batch: int
    available: int
    advice: str
    memory: Memory | None = None  # None if not even the weights fit
    tokens_per_second: float | None = None
    seconds: float | None = None
    cores_in_use: float = 0.0  # by other programs, before anything was measured

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        plain = asdict(self)
        if self.memory is not None:
            plain["memory"]["total"] = self.memory.total
        return plain

    def as_text(self) -> str:
        """Return a table to print."""
        rows = [
            ("model", f"{self.preset}, {self.parameters:,} parameters, {self.precision}"),
            ("per update", f"{self.tokens_per_update:,} tokens"),
            ("the run", f"{self.updates:,} updates, {self.tokens:,} tokens"),
            ("the text", passes_text(self.passes, self.train_tokens)),
            ("learning rate", self.learning_rate),
        ]
        if self.memory is not None:
            memory = self.memory
            rows += [
                ("weights", byte_size(memory.weights)),
                ("optimizer", byte_size(memory.optimizer)),
                ("gradients", byte_size(memory.gradients)),
                ("activations", f"{byte_size(memory.activations)} at micro_batch = {self.micro_batch}"),
                ("total", f"{byte_size(memory.total)} of {byte_size(self.available)} available"),
            ]
            if memory.workspace:
                rows.insert(-1, ("loss", f"{byte_size(memory.workspace)} temporarily"))
        if self.tokens_per_second is not None and self.seconds is not None:
            hours = self.seconds / 3600
            duration = f"{self.seconds / 60:.1f} minutes" if hours < 2 else f"{hours:.1f} hours"
            rows += [("speed", f"{self.tokens_per_second:,.0f} tokens/s, measured"), ("time", duration)]
        if warning := passes_warning(self.passes):
            rows.append(("warning", warning))
        if self.cores_in_use >= _BUSY and self.tokens_per_second is not None:
            others = f"other programs use {self.cores_in_use:.1f} of {available_cores()} cores"
            rows.append(("warning", f"the machine is busy: {others}. The run is faster without them"))
        rows.append(("advice", self.advice))
        return "\n".join(f"{name:14}{value}" for name, value in rows)


def forecast(config: PretrainConfig, tokens: Path, out: Path, progress: Progress = SILENT) -> Forecast:
    """Return the cost of the run `pretrain(config, tokens, out)`, measured in about half a minute."""
    with process_group(config.device) as ranks:
        return _forecast(config, resolve(config, tokens, ranks), tokens, out, ranks, progress)


def seconds_per_update(config: PretrainConfig, tokens: Path) -> float:
    """Return the seconds of an update of this recipe, measured on real ones; nothing is written."""
    with process_group(config.device) as ranks:
        run = build_run(resolve(config, tokens, ranks), tokens, None, ranks, SILENT)
        with run.computing():
            return time_updates(run.trainer, run.read)


def _forecast(
    asked: PretrainConfig, config: PretrainConfig, tokens: Path, out: Path, ranks: Ranks, progress: Progress
) -> Forecast:
    assert config.micro_batch is not None
    # The first rank's: all ranks must decide the same, or some would wait for others.
    available = int(ranks.broadcast(available_memory(ranks.device)))
    busy = cores_in_use() if ranks.device.type == "cpu" else 0.0
    dtype = torch.bfloat16 if config.precision == "bf16" else torch.float32
    count = read_manifest(tokens).config["counts"]["train"]["tokens"]
    tokens_per_update = config.batch_size * config.window
    result = Forecast(
        preset=config.init_from or config.preset,
        parameters=config.architecture.parameter_count,
        precision=config.precision,
        tokens_per_update=tokens_per_update,
        updates=config.steps,
        tokens=config.steps * tokens_per_update,
        train_tokens=count,
        passes=passes_of(config, count),
        learning_rate=rate_text(asked, config),
        micro_batch=config.micro_batch,
        available=available,
        cores_in_use=busy,
        advice="It fits",
    )
    state = state_memory(result.parameters, dtype, ranks, config.shard).total
    if state > available:
        more = "more ranks" if config.shard else f"{sharding(config.optimizer)} over several ranks"
        advice = f"It does not fit: weights and optimizer alone take {byte_size(state)}. "
        advice += f"Train a smaller model, or use {more}"
        return replace(result, advice=advice)
    progress.start("measuring memory")
    run = build_run(config, tokens, out, ranks, SILENT)
    memory = estimate_memory(run.trainer, run.read(0)[0], config.micro_batch)
    result = replace(result, memory=memory)
    if memory.total > available:
        fits = int((available - memory.total + memory.activations) / (memory.activations / config.micro_batch))
        advice = "It does not fit. "
        advice += (
            f"Use --set micro_batch={fits}"
            if fits >= 1
            else "Train a smaller model, or use a smaller --set context"
        )
        return replace(result, advice=advice)
    progress.finish(f"{byte_size(memory.total)} of {byte_size(available)}")
    progress.start("measuring speed", unit="s")
    with run.computing():
        update = time_updates(run.trainer, run.read, progress)
        # A forward pass is a third of the work of an update's sequence.
        windows = min(
            config.validation_windows,
            TokenStream(tokens, "validation", config.window, read_manifest(tokens)).windows,
        )
        validation = update / 3 * windows / config.batch_size
        if not ranks.any(validation > _VALIDATED):
            started = time.perf_counter()
            run.validate()
            validation = time.perf_counter() - started
    speed = result.tokens_per_update / update
    progress.finish(f"{speed:,.0f} tokens/s")
    measurements = -(-config.steps // config.validate_every)
    return replace(
        result,
        tokens_per_second=speed,
        seconds=config.steps * update + measurements * validation,
    )
