"""The training loop for every objective, from the newest checkpoint to the last update.

Around each update: the next batch is read ahead; then journal, progress, validation, checkpoint, and warnings of
spikes and stalls. Ctrl-C and SIGTERM wait for a checkpoint. Without a folder the loop runs in memory: no journal
and no checkpoints, and the best weights are copied.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Container, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from headwater.errors import StorageError, TrainingError
from headwater.storage import SILENT, Progress
from headwater.training.checkpoint import Checkpoints
from headwater.training.compile import arithmetic, compile_checked
from headwater.training.interrupt import delayed_interruption
from headwater.training.journal import Journal, open_tracker, read_journal
from headwater.training.loop import TrainConfig, Trainer, UpdateResult
from headwater.training.machine import matmul_rate
from headwater.training.watch import SUSPECTS, Watch

# The folder of checkpoints and the file of figures in a run folder.
CHECKPOINTS, JOURNAL = "checkpoints", "metrics.jsonl"


class BatchSource(Protocol):
    """The training data of every update: a function of the step alone, so that a resumed run reads the same."""

    def micro_batches(self, step: int) -> Sequence[Any]:
        """Return this rank's micro-batches of update `step` (from 0); each has a method `to(device)`."""

    def tokens(self, step: int) -> int:
        """Return the tokens of update `step`, over all ranks."""


class _Ahead:
    """Calls `read(step)` one step ahead, in a thread."""

    def __init__(self, read: Callable[[int], list[Any]], end: int) -> None:
        self._read, self._end = read, end
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="batches")
        self._next: tuple[int, Future[list[Any]]] | None = None

    def take(self, step: int) -> list[Any]:
        if self._next is None or self._next[0] != step:
            self._next = (step, self._pool.submit(self._read, step))
        result = self._next[1].result()
        self._next = (step + 1, self._pool.submit(self._read, step + 1)) if step + 1 < self._end else None
        return result

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


@dataclass(frozen=True, slots=True)
class Measurement:
    """The result of one validation.

    figures: for the journal, including `validation_loss`. rank: the best state has the largest. details: JSON
    values for the run's curve.
    """

    figures: dict[str, float]
    rank: tuple[float, ...]
    details: dict[str, Any] = field(default_factory=dict)


# Called after every update with its line of metrics.jsonl, on the first rank.
OnUpdate = Callable[[dict[str, Any]], None]


@dataclass
class Run:
    """One run, in the folder `out` or, if that is None, in memory; call `train` once.

    validate: measures the current weights, always on the same data. measured_after: the updates to validate after,
    besides the last one; None is every `validate_every`. patience: stop after so many validations without a better
    one. flops_per_token: None omits the utilization from the journal. dynamic: see `compile_checked`. follow:
    called after every update, returns more figures for the journal. describe: writes
    into a checkpoint what makes it a model folder. watches_loss: warn of spikes and stalls.
    """

    trainer: Trainer
    config: TrainConfig
    source: BatchSource
    validate: Callable[[], Measurement]
    out: Path | None = None
    name: str = "training"
    progress: Progress = SILENT
    flops_per_token: float | None = None
    dynamic: bool | None = None
    measured_after: Container[int] | None = None
    patience: int | None = None
    watches_loss: bool = False
    follow: Callable[[], dict[str, float]] | None = None
    on_update: OnUpdate | None = None
    describe: Callable[[Path], None] | None = None
    # One entry a validation: its step, figures and details, and as "training" the mean losses since the previous
    # one.
    curve: list[dict[str, Any]] = field(default_factory=list)
    # The record of a state that the trainer's weights are already in, as that of a checkpoint.
    begins_with: dict[str, Any] | None = None
    best: dict[str, Any] | None = None  # {"rank": …, "step": …}
    tokens: int = 0
    seconds: float = 0.0
    checkpoints: Checkpoints | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._sums: dict[str, float] = {}  # of losses since the last validation
        self._summed = 0
        self._watch = Watch(self.config.steps) if self.watches_loss else None
        self._best_weights: list[Tensor] = []
        if self.out is not None:
            trainer = self.trainer
            self.checkpoints = Checkpoints(
                self.out / CHECKPOINTS,
                keep=self.config.keep,
                ranks=trainer.ranks,
                note=self.progress.note,
                sharded=trainer.sharded,
                describe=self.describe,
            )

    def read(self, step: int) -> list[Any]:
        """Return this rank's micro-batches of an update, on its device."""
        return [batch.to(self.trainer.ranks.device) for batch in self.source.micro_batches(step)]

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Within the block compute as `train` does: float32 matmuls in its precision, compiled if configured."""
        trainer, config = self.trainer, self.config
        # Before compilation, which depends on these settings.
        with arithmetic(trainer.ranks.device, deterministic=config.deterministic):
            if not self._is_over():
                batches = self.read(trainer.step)
                compile_checked(trainer, batches, config.compile, self.progress.note, dynamic=self.dynamic)
            yield

    def train(self) -> None:
        """Train to the last update, or until `patience` is exhausted.

        Raises TrainingError if the loss is not finite, after a checkpoint of the state before it, or if the
        validation loss is not finite, without a checkpoint; KeyboardInterrupt after Ctrl-C or SIGTERM and a
        checkpoint.
        """
        trainer, config, progress = self.trainer, self.config, self.progress
        self._resume()
        with ExitStack() as stack:
            stack.enter_context(self.computing())
            progress.start(self.name, config.steps, "updates")
            progress.advance(trainer.step)
            if self.checkpoints is not None:
                stack.callback(self.checkpoints.wait)
            journal = self._open_journal(stack)
            ahead = _Ahead(self.read, config.steps)
            stack.callback(ahead.close)
            signals: list[int] = []
            written = time.monotonic()
            if self.out is not None:  # a library call does not change the process's signals
                signals = stack.enter_context(delayed_interruption())
            while not self._is_over():
                started = time.perf_counter()
                result = self._update(ahead)
                line = self._line(result, time.perf_counter() - started)
                self._warn(result.loss)
                stop = trainer.ranks.any(bool(signals))
                old = time.monotonic() - written > 60 * config.checkpoint_minutes
                due = self._measure(line) or stop or trainer.ranks.any(old)
                # The journal first: it must have every line up to a checkpoint.
                journal(line, due)
                if due:
                    self._checkpoint()
                    written = time.monotonic()
                shown = ("loss", "validation_loss", "tokens_per_second")
                progress.advance(trainer.step, **{name: line[name] for name in shown if name in line})
                if self.on_update is not None and trainer.ranks.is_first:
                    self.on_update(dict(line))
                if stop and not self._is_over():
                    raise KeyboardInterrupt
        self._require_kept(trainer.step)
        progress.finish(self._summary())

    def restore_best(self) -> None:
        """Load the best weights into the trainer; every rank must call this."""
        if self.best is None or self.best["step"] == self.trainer.step:
            return
        optimizer = self.trainer.optimizer
        if self.checkpoints is None:
            with torch.no_grad():
                torch._foreach_copy_(optimizer.masters, self._best_weights)
            optimizer.copy_to_model()
            return
        path = self.checkpoints.path_of(self.best["step"])
        self.checkpoints.check(path)
        self.checkpoints.load(path, optimizer.state())
        optimizer.load(self.best["step"])

    def _is_over(self) -> bool:
        if self.trainer.step >= self.config.steps:
            return True
        if self.patience is None or self.best is None:
            return False
        return sum(entry["step"] > self.best["step"] for entry in self.curve) >= self.patience

    def _update(self, ahead: _Ahead) -> UpdateResult:
        trainer = self.trainer
        try:
            return trainer.update(ahead.take(trainer.step))
        except TrainingError as error:
            if self.checkpoints is None:
                raise
            self.checkpoints.pinned.add(trainer.step)
            self._checkpoint()
            if not self._is_kept(trainer.step):
                raise
            kept = f"; the state after update {trainer.step} is kept as a checkpoint"
            raise TrainingError(error.seen + kept, repair=error.repair) from None

    def _line(self, result: UpdateResult, took: float) -> dict[str, Any]:
        tokens = self.source.tokens(self.trainer.step - 1)
        self.tokens += tokens
        self.seconds += took
        for name, value in {"loss": result.loss, **result.logged}.items():
            self._sums[name] = self._sums.get(name, 0.0) + value
        self._summed += 1
        line = {
            "step": self.trainer.step,
            "tokens": self.tokens,
            "loss": result.loss,
            "learning_rate": result.learning_rate,
            "gradient_norm": result.gradient_norm,
            "tokens_per_second": tokens / took,
        }
        if self.flops_per_token is not None:
            trainer = self.trainer
            rate = matmul_rate(trainer.matrix_dtype, trainer.ranks.device) * trainer.ranks.count
            line["flops_utilization"] = self.flops_per_token * tokens / took / rate
        return line | {"seconds": self.seconds, **result.logged}

    def _measure(self, line: dict[str, Any]) -> bool:
        """Validate if it is due; return whether a checkpoint is due, as for every new best."""
        step, config = self.trainer.step, self.config
        last = step == config.steps
        due = last or step % config.checkpoint_every == 0
        if last or (
            step % config.validate_every == 0 if self.measured_after is None else step in self.measured_after
        ):
            measured = self.validate()
            loss = measured.figures["validation_loss"]
            if not math.isfinite(loss):
                raise TrainingError(f"the validation loss is {loss} after update {step}", repair=SUSPECTS)
            line |= measured.figures
            means = {name: total / self._summed for name, total in self._sums.items()}
            self.curve.append({"step": step, **measured.figures, **measured.details, "training": means})
            self._sums, self._summed = {}, 0
            if self.best is None or measured.rank > tuple(self.best["rank"]):
                self.best = {"rank": list(measured.rank), "step": step}
                due = True
            due = due or self._is_over()
        if self.follow is not None:
            line |= self.follow()
        return due

    def _warn(self, loss: float) -> None:
        if self._watch is None:
            return
        step = self.trainer.step
        if spike := self._watch.spike(step, loss):
            before = self.checkpoints.newest_step() if self.checkpoints is not None else None
            if before is not None and self.checkpoints is not None:
                self.checkpoints.pinned.add(before)
                spike += f" The checkpoint before it, of step {before}, is kept."
            self.progress.note(spike)
        if stall := self._watch.stall(step, loss):
            self.progress.note(stall)

    def _is_kept(self, step: int) -> bool:
        """Return whether the state of a step can be loaded; every rank must call this."""
        if self.checkpoints is None:
            return True
        self.checkpoints.wait()
        return bool(self.trainer.ranks.broadcast(self.checkpoints.path_of(step).is_dir()))

    def _require_kept(self, step: int) -> None:
        """Raise StorageError if the checkpoint of a step could not be written; every rank must call this."""
        if not self._is_kept(step):
            raise StorageError(
                f"the checkpoint of update {step:,} could not be written",
                repair="Free some space, and run the same command again: it resumes from the last good checkpoint",
            )

    def _checkpoint(self) -> None:
        """Write a checkpoint; if the run has no folder, keep the weights in memory if they are the best."""
        step, optimizer = self.trainer.step, self.trainer.optimizer
        if self.checkpoints is None:
            if self.best is not None and self.best["step"] == step:
                self._best_weights = self._best_weights or [torch.empty_like(m) for m in optimizer.masters]
                with torch.no_grad():
                    torch._foreach_copy_(self._best_weights, [m.detach() for m in optimizer.masters])
            return
        if self.best is not None and self.best["step"] != step and not self._is_kept(self.best["step"]):
            self._forget_best(step)
        record = {
            "step": step,
            "tokens": self.tokens,
            "seconds": self.seconds,
            "best": self.best,
            "curve": list(self.curve),  # copies: they change while a thread writes
            "sums": dict(self._sums),
            "summed": self._summed,
            "pinned": sorted(self.checkpoints.pinned),
        }
        pinned = self.checkpoints.pinned | ({self.best["step"]} if self.best is not None else set())
        self.checkpoints.save(step, optimizer.state(), record, pinned)

    def _resume(self) -> None:
        if self.checkpoints is None:
            return
        ranks, optimizer = self.trainer.ranks, self.trainer.optimizer
        newest = ranks.broadcast(self.checkpoints.newest() if ranks.is_first else None)
        path, record = newest or (None, self.begins_with)
        if record is None:
            return
        if path is not None:
            self.checkpoints.load(path, optimizer.state())
        optimizer.load(record["step"])
        self.tokens, self.seconds, self.best = record["tokens"], record["seconds"], record["best"]
        self.curve, self._sums, self._summed = record["curve"], record["sums"], record["summed"]
        self.checkpoints.pinned = set(record["pinned"])
        step = record["step"]
        if path is None:
            self._checkpoint()  # the best state so far
            self._require_kept(step)
        if self.best and not self._has_best(self.best["step"], step):
            self._forget_best(step)
        self.progress.note(f"resuming from step {step:,} of {self.config.steps:,}")

    def _forget_best(self, step: int) -> None:
        """Forget the best state, whose checkpoint is gone, so that a later one is used. step: the current one."""
        assert self.best is not None
        gone = f"the best checkpoint, of step {self.best['step']}, is missing or damaged"
        self.progress.note(f"Warning: {gone}: a later one is used")
        # A finished run measures no later state: its last one is used.
        self.best = {"rank": [], "step": step} if step == self.config.steps else None

    def _has_best(self, best: int, resumed: int) -> bool:
        """Return whether the best checkpoint is undamaged; every rank must call this.

        The checkpoint of step `resumed` was loaded, so it is undamaged.
        """
        assert self.checkpoints is not None
        path, ranks = self.checkpoints.path_of(best), self.trainer.ranks
        good = best == resumed or (ranks.is_first and path.is_dir() and self.checkpoints.is_good(path))
        return bool(ranks.broadcast(good))

    def _open_journal(self, stack: ExitStack) -> Callable[[dict[str, Any], bool], None]:
        """Return a function that writes a line to the journal and the trackers; flush: the journal to the disk."""
        if self.out is None or not self.trainer.ranks.is_first:
            return lambda line, flush: None
        config = self.config.to_dict()
        trackers = [open_tracker(name, self.out, config) for name in self.config.track]
        for _, close in trackers:
            stack.callback(close)
        path = self.out / JOURNAL
        lines = read_journal(path) if path.exists() else []
        lines = [line for line in lines if line["step"] <= self.trainer.step]
        if self._watch is not None:
            self._watch.resume(lines)
        journal = Journal(path, lines)
        stack.callback(journal.close)

        def write(line: dict[str, Any], flush: bool) -> None:
            if warning := journal.write(line):
                self.progress.note(warning)
            if flush:
                journal.sync()
            for log, _ in trackers:
                log(line)

        return write

    def _summary(self) -> str:
        """Return a summary, such as `24 updates; best after 16: validation loss 3.211`."""
        text = f"{self.trainer.step:,} updates"
        best = [entry for entry in self.curve if self.best and entry["step"] == self.best["step"]]
        for entry in best:
            figures = [f"{k.replace('_', ' ')} {v:.3f}" for k, v in entry.items() if isinstance(v, float)]
            text += f"; best after {entry['step']:,}: {', '.join(figures)}"
        return text
