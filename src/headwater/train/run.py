"""A run: updates from the newest checkpoint to the last, with everything that surrounds them.

Around each update: the next batch read ahead, the journal, the display, the held-out loss, checkpoints, the
watch for spikes and stalls, and Ctrl-C or SIGTERM held until a checkpoint is written. What is learned, and from
what, is handed in.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater.errors import StorageError, TrainingError
from headwater.progress import Progress
from headwater.train.ahead import Ahead
from headwater.train.checkpoint import Checkpoints
from headwater.train.compile import compile_checked
from headwater.train.interrupt import held_interruption
from headwater.train.journal import Journal
from headwater.train.loop import SUSPECTS, RunConfig, Trainer, UpdateResult
from headwater.train.machine import matmul_rate
from headwater.train.tracking import open_trackers
from headwater.train.watch import Watch


@dataclass
class Run:
    """One run in the folder `out`; `train` is called once.

    read: this rank's micro-batches of an update. validate: the held-out loss now, the same data each time.
    follow: further figures for the journal, asked for after every update; it may give none.
    """

    trainer: Trainer
    config: RunConfig
    out: Path
    read: Callable[[int], Sequence[Any]]
    validate: Callable[[], float]
    tokens_an_update: int
    flops_a_token: float
    progress: Progress
    follow: Callable[[], dict[str, float]] | None = None
    best: tuple[float, int] | None = None  # held-out loss, and the step after which it was measured
    seconds: float = 0.0
    checkpoints: Checkpoints = field(init=False)

    def __post_init__(self) -> None:
        self.checkpoints = Checkpoints(
            self.out / "checkpoints", keep=self.config.keep, ranks=self.trainer.ranks, note=self.progress.note
        )

    def train(self) -> None:
        """Raises TrainingError when the loss is not finite, with the state before it kept as a checkpoint, or the
        held-out loss is not, with nothing kept of the update that spoilt the weights; KeyboardInterrupt when asked
        to stop, after a checkpoint.
        """
        trainer, config, progress = self.trainer, self.config, self.progress
        self._resume()
        if trainer.step < config.steps:
            compile_checked(trainer, self.read(trainer.step), config.compile, progress.note)
        rate = matmul_rate(trainer.matrix_dtype, trainer.ranks.device) * trainer.ranks.count
        trackers = []
        if trainer.ranks.is_first:
            trackers = open_trackers(config.track, self.out, config.to_dict())
        journal = self._open_journal()
        watch = Watch(config.steps)
        batches = Ahead(self.read, config.steps)
        progress.start("pre-training", config.steps, "updates")
        progress.advance(trainer.step)
        try:
            with held_interruption() as interruption:
                while trainer.step < config.steps:
                    started = time.perf_counter()
                    result = self._update(batches)
                    took = time.perf_counter() - started
                    self.seconds += took
                    line = self._line(result, took, rate)
                    self._look(watch, result.loss)
                    stop = trainer.ranks.any(interruption.requested)
                    due = self._measure(line) or stop
                    # The journal first: a run that goes on from a checkpoint has every line up to it.
                    if journal is not None and (warning := journal.write(line)):
                        progress.note(warning)
                    if due:
                        self._checkpoint()
                    for tracker in trackers:
                        tracker.log(line)
                    shown = ("loss", "validation_loss", "tokens_per_second")
                    progress.advance(trainer.step, **{name: line[name] for name in shown if name in line})
                    if stop and trainer.step < config.steps:
                        raise KeyboardInterrupt
        finally:
            batches.close()
            self.checkpoints.wait()
            for tracker in trackers:
                tracker.close()
            if journal is not None:
                journal.close()
        if not self._is_kept(trainer.step):
            raise StorageError(
                f"the checkpoint of the last update, {trainer.step:,}, could not be written",
                repair="Free some space, and run the same command again: it goes on from the checkpoint before",
            )
        progress.finish(f"{trainer.step:,} updates" + (f", held-out loss {self.best[0]:.3f}" if self.best else ""))

    def restore_best(self) -> None:
        """Give the trainer the weights with the lowest held-out loss; every rank must ask."""
        if self.best is None or self.best[1] == self.trainer.step:
            return
        path = self.checkpoints.path_of(self.best[1])
        self.checkpoints.check(path)
        self.checkpoints.load(path, self.trainer.optimizer.state(), sharded=self.config.shard)
        self.trainer.optimizer.load(self.best[1])

    def _update(self, batches: Ahead[Sequence[Any]]) -> UpdateResult:
        trainer = self.trainer
        try:
            return trainer.update(batches.take(trainer.step))
        except TrainingError as error:
            self.checkpoints.pinned.add(trainer.step)
            self._checkpoint()
            if not self._is_kept(trainer.step):
                raise
            kept = f"; the state after update {trainer.step} is kept as a checkpoint"
            raise TrainingError(error.seen + kept, repair=error.repair) from None

    def _line(self, result: UpdateResult, took: float, rate: float) -> dict[str, Any]:
        step, tokens = self.trainer.step, self.tokens_an_update
        return {
            "step": step,
            "tokens": step * tokens,
            "loss": result.loss,
            "learning_rate": result.learning_rate,
            "gradient_norm": result.gradient_norm,
            "tokens_per_second": tokens / took,
            "flops_utilization": self.flops_a_token * tokens / took / rate,
            "seconds": self.seconds,
            **result.logged,
        }

    def _measure(self, line: dict[str, Any]) -> bool:
        """The held-out loss, when it is due; returns whether a checkpoint is: a new best is always kept."""
        step, config = self.trainer.step, self.config
        due = step == config.steps or step % config.checkpoint_every == 0
        if step == config.steps or step % config.validate_every == 0:
            loss = line["validation_loss"] = self.validate()
            if not math.isfinite(loss):
                raise TrainingError(f"the held-out loss is {loss} after update {step}", repair=SUSPECTS)
            if self.best is None or loss < self.best[0]:
                self.best = (loss, step)
                due = True
        if self.follow is not None:
            line |= self.follow()
        return due

    def _look(self, watch: Watch, loss: float) -> None:
        step = self.trainer.step
        if spike := watch.spike(step, loss):
            before = self.checkpoints.newest_step()
            if before is not None:
                self.checkpoints.pinned.add(before)
                spike += f" The checkpoint before it, of step {before}, is kept."
            self.progress.note(spike)
        if stall := watch.stall(step, loss):
            self.progress.note(stall)

    def _is_kept(self, step: int) -> bool:
        """Whether the checkpoint of a step is on the disk; every rank must ask."""
        self.checkpoints.wait()
        return bool(self.trainer.ranks.share(self.checkpoints.path_of(step).is_dir()))

    def _checkpoint(self) -> None:
        """Write a checkpoint, unless the best one before it is missing: none is gone on from without it."""
        if self.best and self.best[1] != self.trainer.step and not self._is_kept(self.best[1]):
            self.progress.note(f"Warning: no checkpoint at step {self.trainer.step}: that of the best is missing")
            return
        pinned = self.checkpoints.pinned | ({self.best[1]} if self.best else set())
        record = {
            "step": self.trainer.step,
            "seconds": self.seconds,
            "best": list(self.best) if self.best else None,
            "pinned": sorted(self.checkpoints.pinned),
        }
        state = self.trainer.optimizer.state()
        self.checkpoints.save(self.trainer.step, state, record, pinned, sharded=self.config.shard)

    def _resume(self) -> None:
        ranks = self.trainer.ranks
        found = ranks.share(self.checkpoints.newest() if ranks.is_first else None)
        if found is None:
            return
        path, record = found
        self.checkpoints.load(path, self.trainer.optimizer.state(), sharded=self.config.shard)
        self.trainer.optimizer.load(record["step"])
        self.seconds = record["seconds"]
        self.best = tuple(record["best"]) if record["best"] else None
        if self.best and not self._is_kept(self.best[1]):
            self.progress.note(
                f"Warning: the best checkpoint, of step {self.best[1]}, is gone: a later one serves"
            )
            self.best = None
        self.checkpoints.pinned = set(record["pinned"])
        self.progress.note(f"going on from step {record['step']:,} of {self.config.steps:,}")

    def _open_journal(self) -> Journal | None:
        if not self.trainer.ranks.is_first:
            return None
        return Journal(self.out / "metrics.jsonl", resume_step=self.trainer.step)
