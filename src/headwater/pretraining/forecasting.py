"""Forecasts of a pre-training run: what its memory is used for, and how long it will take, measured.

`headwater pretrain --dry-run` builds the run's model and trains it on the real tokens for about half a minute at
most; nothing is written. It does not try what cannot fit: weights and optimizer are counted first. An update of
the paper's recipe has half a million tokens, which take a CPU minutes or hours: its time is that of its sequences,
which are equally long, and of one step of the optimizer.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headwater.device import available_memory
from headwater.display import byte_size, duration
from headwater.pretraining.cost import Memory, estimate_memory
from headwater.pretraining.pretraining import build_run, describe_run
from headwater.pretraining.recipe import PretrainConfig, resolve
from headwater.pretraining.tokens.sampler import TokenStream
from headwater.storage import SILENT, Progress, read_manifest
from headwater.training import Trainer, process_group

_BUDGET = 20.0  # seconds for all timings, as far as the first sequence leaves a choice
_SHARE = 4  # of the budget for one timing
_TIMINGS, _TIMED = 3, 2.0  # the fewest, after those that choose kernels and allocate memory, and their seconds


@dataclass(frozen=True, slots=True)
class Forecast:
    """The cost of a run. Memory in bytes, for one rank; times in seconds."""

    config: PretrainConfig  # resolved
    described: dict[str, str]  # see `describe_run`
    memory: Memory
    available: int
    tokens_per_second: float | None = None
    seconds: float | None = None

    @property
    def total(self) -> int:
        """Bytes of memory."""
        return sum(self.memory)

    @property
    def advice(self) -> str:
        """Whether it fits, and the largest micro-batch that does."""
        if self.total <= self.available:
            return "It fits"
        assert self.config.micro_batch is not None
        left = self.available - self.memory.state - self.memory.workspace
        fits = int(left / (self.memory.activations / self.config.micro_batch))
        smaller = "Train a smaller model, or use a smaller --set context"
        return f"It does not fit. {f'Use --set micro_batch={fits}' if fits >= 1 else smaller}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        config = self.config
        return {
            "model": config.init_from or config.preset,
            "parameters": config.architecture.parameter_count,
            "updates": config.steps,
            "tokens_per_update": config.batch_size * config.window,
            "micro_batch": config.micro_batch,
            "described": self.described,
            "memory": self.memory._asdict() | {"total": self.total},
            "available": self.available,
            "advice": self.advice,
            "tokens_per_second": self.tokens_per_second,
            "seconds": self.seconds,
        }

    def as_text(self) -> str:
        """Return a table to print."""
        values, memory = self.to_dict(), self.memory
        per_update, updates = values["tokens_per_update"], self.config.steps
        rows = {
            "model": f"{values['model']}, {values['parameters']:,} parameters",
            "per update": f"{per_update:,} tokens",
            "the run": f"{updates:,} updates, {updates * per_update:,} tokens",
            **self.described,
            "state": f"{byte_size(memory.state)} of weights, gradients, optimizer and a checkpoint's copy",
            "activations": f"{byte_size(memory.activations)} at micro_batch = {self.config.micro_batch}",
            "loss": f"{byte_size(memory.workspace)} temporarily",
            "total": f"{byte_size(self.total)} of {byte_size(self.available)} available",
        }
        if self.tokens_per_second is not None and self.seconds is not None:
            rows |= {"speed": f"{self.tokens_per_second:,.0f} tokens/s, measured", "time": duration(self.seconds)}
        rows["advice"] = self.advice
        return "\n".join(f"{name:15}{value}" for name, value in rows.items())


def forecast(config: PretrainConfig, tokens: Path, out: Path, progress: Progress = SILENT) -> Forecast:
    """Return the cost of the run `pretrain(config, tokens, out)`, measured in about half a minute."""
    with process_group(config.device) as ranks:
        resolved = resolve(config, tokens, ranks)
        # The first rank's: all ranks must decide the same, or some would wait for others.
        available = int(ranks.broadcast(available_memory(ranks.device)))
        progress.start("measuring memory")
        run = build_run(resolved, tokens, out, ranks, SILENT)
        assert resolved.micro_batch is not None
        memory = estimate_memory(run.trainer, run.read(0)[0], resolved.micro_batch)
        packed = read_manifest(tokens)
        result = Forecast(resolved, describe_run(config, resolved, packed), memory, available)
        if result.total > available:
            return result
        progress.finish(f"{byte_size(result.total)} of {byte_size(available)}")
        progress.start("measuring speed")
        with run.computing():
            update = time_updates(run.trainer, run.read)
        speed = resolved.batch_size * resolved.window / update
        progress.finish(f"{speed:,.0f} tokens/s")
        stream = TokenStream(tokens, "validation", resolved.window, packed)
        windows = min(resolved.validation_windows, stream.windows)
        validations = -(-resolved.steps // resolved.validate_every)
        # A forward pass is a third of the work of an update.
        seconds = update * (resolved.steps + validations * windows / resolved.batch_size / 3)
        return replace(result, tokens_per_second=speed, seconds=seconds)


def seconds_per_update(config: PretrainConfig, tokens: Path) -> float:
    """Return the seconds of an update of this recipe, measured on real ones; nothing is written."""
    with process_group(config.device) as ranks:
        run = build_run(resolve(config, tokens, ranks), tokens, None, ranks, SILENT)
        with run.computing():
            return time_updates(run.trainer, run.read)


def time_updates(trainer: Trainer, read: Callable[[int], Sequence[Any]]) -> float:
    """Return the seconds of an update, measured in about _BUDGET seconds; every rank must call this.

    The part is as many sequences of a micro-batch as fit the time, on an accelerator all of them: each other shape
    would be compiled. Changes the model.
    """
    ranks, batches = trainer.ranks, read(0)
    sequences = sum(len(batch.ids) for batch in batches)
    part = whole = batches[0]
    if ranks.device.type == "cpu":
        part = whole.first(1)

    def clock(work: Callable[[], Any]) -> float:
        started = time.perf_counter()
        work()
        return time.perf_counter() - started

    def time_part() -> float:
        return clock(lambda: trainer.update([part]))

    seconds = time_part()
    # Ranks decide together: if one did less than the others, they would wait for it. The first time is no measure:
    # kernels are chosen, memory is allocated and threads start, which may take many times as long as an update.
    if not ranks.any(seconds > _BUDGET / 2):
        seconds = time_part()
    fitting = ranks.minimum(int(len(part.ids) * _BUDGET / _SHARE / seconds))
    if fitting >= len(part.ids):
        part = whole.first(min(fitting, len(whole.ids)))
        time_part()  # allocates memory
        timings: list[float] = []
        while ranks.any(len(timings) < _TIMINGS or sum(timings) < _TIMED):
            timings.append(time_part())
        seconds = statistics.median(timings)
    step = clock(lambda: trainer.optimizer.step(0.0))
    return step + max(0.0, seconds - step) * sequences / len(part.ids)
