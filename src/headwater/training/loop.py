"""The training loop for every objective, from the newest checkpoint to the last update.

Around each update: the next batch is read ahead; then validation, journal, checkpoint and progress. Ctrl-C and
SIGTERM end the run after a checkpoint. Without a folder the loop runs in memory: it writes no journal and no
checkpoints, and copies the best weights.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Container, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import torch
from torch import Tensor

from headwater.errors import StorageError, TrainingError
from headwater.storage import SILENT, Progress, open_folder
from headwater.training.checkpoint import Checkpoints
from headwater.training.config import TrainConfig
from headwater.training.journal import Journal, open_tracker, read_journal
from headwater.training.parallel import is_out_of_memory, out_of_memory
from headwater.training.trainer import SUSPECTS, Trainer, UpdateResult, arithmetic

# The folder of checkpoints and the file of figures in a run folder.
CHECKPOINTS, JOURNAL = "checkpoints", "metrics.jsonl"
# A run ends after so many updates in a row whose loss is above the loss of guessing.
DIVERGED_UPDATES = 50
# The highest peak rate that is proposed after a run diverged: presets of every size learn with it.
_SAFE_RATE = 3e-4

# Called after every update with its line of metrics.jsonl, on the first rank.
OnUpdate = Callable[[dict[str, Any]], None]


class BatchSource(Protocol):
    """The training data of every update: a function of the step alone, so that a resumed run reads the same."""

    def micro_batches(self, step: int) -> Sequence[Any]:
        """Return this rank's micro-batches of update `step` (from 0); each has a method `to(device)`."""

    def tokens(self, step: int) -> int:
        """Return the tokens of update `step`, over all ranks."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """The result of one validation.

    figures: for the journal, such as `validation_loss`. quality: the best state has the largest. details: JSON
    values for the run's curve.
    """

    figures: dict[str, float]
    quality: tuple[float, ...]
    details: dict[str, Any] = field(default_factory=dict)


@dataclass
class TrainingState:
    """The state that a run resumes from, next to its weights and moments; a checkpoint's `state.json`."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    best: dict[str, Any] | None = None  # {"quality": …, "step": …}
    # One entry per validation: step, figures, details, and as "training" the mean losses since the one before.
    curve: list[dict[str, Any]] = field(default_factory=list)
    sums: dict[str, float] = field(default_factory=dict)  # of losses since the last validation
    summed: int = 0

    @property
    def best_step(self) -> int | None:
        """The step with the best measurement."""
        return None if self.best is None else self.best["step"]

    def add_validation(self, validation: Measurement) -> bool:
        """Add a validation of the present step to the curve; return whether it is the best one."""
        means = {name: total / self.summed for name, total in self.sums.items()}
        self.curve.append({"step": self.step, **validation.figures, **validation.details, "training": means})
        self.sums, self.summed = {}, 0
        is_best = self.best is None or validation.quality > tuple(self.best["quality"])
        if is_best:
            self.best = {"quality": list(validation.quality), "step": self.step}
        return is_best


@dataclass
class Run:
    """One run, in the folder `out` or, if that is None, in memory; call `train` once.

    validate: measures the current weights, always on the same data. measured_after: the updates to validate after,
    besides the last one; None is every `validate_every`. patience: stop after so many validations without a better
    one. dynamic: see `Trainer.compile_blocks`. more_figures: called after every update, returns further figures
    for the journal. describe: writes into a checkpoint what makes it a model folder. identity: recorded by
    checkpoints and trackers; a checkpoint with another one in the run's folder is refused. highest_loss: the run
    ends as diverged after DIVERGED_UPDATES updates in a row above it; None does not check.
    """

    trainer: Trainer
    config: TrainConfig
    source: BatchSource
    validate: Callable[[], Measurement]
    out: Path | None = None
    name: str = "training"
    progress: Progress = SILENT
    dynamic: bool | None = None
    measured_after: Container[int] | None = None
    patience: int | None = None
    more_figures: Callable[[], dict[str, float]] | None = None
    on_update: OnUpdate | None = None
    describe: Callable[[Path], None] | None = None
    identity: str = ""
    highest_loss: float | None = None
    state: TrainingState = field(init=False, default_factory=TrainingState)
    checkpoints: Checkpoints | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._best_weights: list[Tensor] = []
        self._high_losses = 0  # in a row
        if self.out is not None:
            trainer = self.trainer
            self.checkpoints = Checkpoints(
                self.out / CHECKPOINTS,
                keep=self.config.keep,
                ranks=trainer.ranks,
                note=self.progress.note,
                sharded=trainer.sharded,
                describe=self.describe,
                run=self.identity,
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
                batch = self.read(trainer.step)[0]
                trainer.compile_blocks(batch, config.compile, self.progress.note, dynamic=self.dynamic)
            yield

    def train(self) -> None:
        """Train to the last update, or until `patience` is exhausted.

        Raises TrainingError if a loss is not finite, if memory runs out, or if the run diverges; before the error
        of a training loss or of memory, a checkpoint of the state before the update is written. Raises
        StorageError if the disk cannot hold the checkpoints, or the last one was not written. With a folder, the
        first Ctrl-C or SIGTERM ends the run with KeyboardInterrupt after a checkpoint; in memory, signals act as
        usual.
        """
        trainer, config, progress = self.trainer, self.config, self.progress
        self._resume()
        if self.checkpoints is not None and not self._is_over():
            self.checkpoints.require_space(trainer.optimizer.state(), trainer.ranks)
        with ExitStack() as stack:
            stack.enter_context(self.computing())
            progress.start(self.name, config.steps, "updates")
            progress.advance(trainer.step)
            # A resumed run that has made its last update but not validated it: its length was changed.
            last: dict[str, Any] = {}
            if trainer.step == config.steps and all(entry["step"] != trainer.step for entry in self.state.curve):
                self._validate_if_due(last)
            if self.checkpoints is not None:
                stack.callback(self.checkpoints.wait)
            journal = self._open_journal(stack, last)
            batches = stack.enter_context(closing(self._read_ahead()))
            # A library call does not change the process's signals.
            signals = [] if self.out is None else stack.enter_context(delayed_interruption())
            self._update_until_over(batches, journal, signals)
        if not self._has_checkpoint(trainer.step):
            raise StorageError(
                f"the last checkpoint, of update {trainer.step:,}, was not written: the warning above says why",
                repair="Free space or make the folder writable, then run the same command again. It resumes from "
                "the newest undamaged checkpoint",
            )
        progress.finish(self._summary())

    def _update_until_over(
        self, batches: Iterator[list[Any]], journal: Callable[[dict[str, Any], bool], None], signals: list[int]
    ) -> None:
        """Do the updates that are left; around each: journal, validation, checkpoint, progress."""
        trainer, written = self.trainer, time.monotonic()
        while not self._is_over():
            started = time.perf_counter()
            result = self._update(batches)
            line = self._line(result, time.perf_counter() - started)
            stop = trainer.ranks.any(bool(signals))
            old = time.monotonic() - written > 60 * self.config.checkpoint_minutes
            due = self._validate_if_due(line) or stop or trainer.ranks.any(old)
            # The journal first: it must have every line up to a checkpoint.
            journal(line, due)
            if due:
                self._checkpoint()
                written = time.monotonic()
            shown = ("loss", "validation_loss", "tokens_per_second")
            self.progress.advance(trainer.step, **{name: line[name] for name in shown if name in line})
            if self.on_update is not None and trainer.ranks.is_first:
                self.on_update(dict(line))
            if stop and not self._is_over():
                raise KeyboardInterrupt
            if self.highest_loss is not None:
                self._high_losses = self._high_losses + 1 if result.loss > self.highest_loss else 0
                if self._high_losses == DIVERGED_UPDATES:
                    raise diverged("training loss", result.loss, self.highest_loss, self.config.learning_rate)

    def restore_best(self) -> None:
        """Load the best weights into the trainer; every rank must call this."""
        best, optimizer = self.state.best_step, self.trainer.optimizer
        if best is None or best == self.trainer.step:
            return
        if self.checkpoints is None:
            with torch.no_grad():
                torch._foreach_copy_(optimizer.masters, self._best_weights)
            optimizer.copy_to_model()
            return
        path = self.checkpoints.path_of(best)
        self.trainer.ranks.on_first(lambda: open_folder(path, "checkpoint", hashes=True))
        self.checkpoints.load(path, optimizer.state())
        optimizer.load(best)

    def _is_over(self) -> bool:
        if self.trainer.step >= self.config.steps:
            return True
        best = self.state.best_step
        if self.patience is None or best is None:
            return False
        return sum(entry["step"] > best for entry in self.state.curve) >= self.patience

    def _read_ahead(self) -> Generator[list[Any], None, None]:
        """Yield the micro-batches of each update that is left, read one update ahead in a thread."""
        steps = range(self.trainer.step, self.config.steps)
        with ThreadPoolExecutor(1, thread_name_prefix="batches") as pool:
            following = pool.submit(self.read, steps.start) if steps else None
            for step in steps:
                assert following is not None
                batches = following.result()
                following = pool.submit(self.read, step + 1) if step + 1 in steps else None
                yield batches

    def _update(self, batches: Iterator[list[Any]]) -> UpdateResult:
        trainer, step = self.trainer, self.trainer.step
        try:
            return trainer.update(next(batches))
        except TrainingError as error:
            clause = self._save_before_error()
            raise TrainingError(error.seen + clause, expected=error.expected, repair=error.repair) from None
        except (RuntimeError, MemoryError) as error:
            # Only before the weights changed, and only alone: a rank that is gone cannot write its part.
            if not is_out_of_memory(error) or trainer.step != step or trainer.ranks.count > 1:
                raise
            trainer.optimizer.free_gradients()
            raise out_of_memory(error, self._save_before_error()) from None

    def _save_before_error(self) -> str:
        """Write a checkpoint; return a clause on it for the error message, empty without a checkpoint."""
        if self.checkpoints is None:
            return ""
        step = self.trainer.step
        self._checkpoint()
        return f"; the state after update {step} is kept as a checkpoint" if self._has_checkpoint(step) else ""

    def _line(self, result: UpdateResult, took: float) -> dict[str, Any]:
        tokens = self.source.tokens(self.trainer.step - 1)
        state = self.state
        state.step = self.trainer.step
        state.tokens += tokens
        state.seconds += took
        for name, value in {"loss": result.loss, **result.logged}.items():
            state.sums[name] = state.sums.get(name, 0.0) + value
        state.summed += 1
        return {
            "step": self.trainer.step,
            "tokens": state.tokens,
            "loss": result.loss,
            "learning_rate": result.learning_rate,
            "gradient_norm": result.gradient_norm,
            "tokens_per_second": tokens / took,
            "seconds": state.seconds,
            **result.logged,
        }

    def _validate_if_due(self, line: dict[str, Any]) -> bool:
        """Add the figures of a validation, if one is due, to the line; return whether a checkpoint is due.

        Every new best state is due for one.
        """
        step, config = self.trainer.step, self.config
        last = step == config.steps
        due = last or step % config.checkpoint_every == 0
        if last or (
            step % config.validate_every == 0 if self.measured_after is None else step in self.measured_after
        ):
            validation = self.validate()
            for name, figure in validation.figures.items():
                if name.endswith("_loss") and not math.isfinite(figure):
                    raise TrainingError(
                        f"the {name.replace('_', ' ')} is {figure} after update {step}", repair=SUSPECTS
                    )
            line |= validation.figures
            due = self.state.add_validation(validation) or due or self._is_over()
        if self.more_figures is not None:
            line |= self.more_figures()
        return due

    def _has_checkpoint(self, step: int) -> bool:
        """Return whether the checkpoint of a step was written; True in memory. Every rank must call this."""
        if self.checkpoints is None:
            return True
        self.checkpoints.wait()
        return bool(self.trainer.ranks.broadcast(self.checkpoints.path_of(step).is_dir()))

    def _checkpoint(self) -> None:
        """Write a checkpoint; if the run has no folder, keep the weights in memory if they are the best."""
        step, best, optimizer = self.trainer.step, self.state.best_step, self.trainer.optimizer
        if self.checkpoints is None:
            if best == step:
                self._best_weights = self._best_weights or [torch.empty_like(m) for m in optimizer.masters]
                with torch.no_grad():
                    torch._foreach_copy_(self._best_weights, [m.detach() for m in optimizer.masters])
            return
        if best is not None and best != step and not self._has_checkpoint(best):
            self._forget_best(step)
        record = asdict(self.state)  # a copy: the state changes while a thread writes
        self.checkpoints.save(step, optimizer.state(), record, self.state.best_step)

    def _resume(self) -> None:
        if self.checkpoints is None:
            return
        ranks, optimizer = self.trainer.ranks, self.trainer.optimizer
        newest = ranks.on_first(self.checkpoints.newest)
        if newest is None:
            return
        path, record = newest
        self.checkpoints.load(path, optimizer.state())
        optimizer.load(record["step"])
        self.state = TrainingState(**record)
        step, best = self.state.step, self.state.best_step
        if best is not None and best != step:
            path = self.checkpoints.path_of(best)
            if not ranks.broadcast(ranks.is_first and path.is_dir() and self.checkpoints.is_good(path)):
                self._forget_best(step)
        self.progress.note(f"resuming from step {step:,} of {self.config.steps:,}")

    def _forget_best(self, step: int) -> None:
        """Forget the best state, whose checkpoint is gone, so that a later one is used. step: the current one."""
        best = f"the best checkpoint, of step {self.state.best_step}, is missing or damaged"
        self.progress.note(f"Warning: {best}: a later one is used")
        # A finished run measures no later state: its last one is used.
        self.state.best = {"quality": [], "step": step} if step == self.config.steps else None

    def _open_journal(
        self, stack: ExitStack, figures: Mapping[str, Any]
    ) -> Callable[[dict[str, Any], bool], None]:
        """Return a function that writes a line to the journal and the trackers, and may flush it to the disk.

        figures: what to add to the line of the present step, which the journal has.
        """
        if self.out is None or not self.trainer.ranks.is_first:
            return lambda line, flush: None
        config = self.config.to_dict()
        step = self.trainer.step
        trackers = [open_tracker(name, self.out, config, self.identity, step) for name in self.config.track]
        for _, close in trackers:
            stack.callback(close)
        path = self.out / JOURNAL
        lines = read_journal(path) if path.exists() else []
        lines = [line for line in lines if line["step"] <= self.trainer.step]
        lines[-1:] = [{**line, **figures} for line in lines[-1:]]
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
        for entry in self.state.curve:
            figures = [f"{k.replace('_', ' ')} {v:.3f}" for k, v in entry.items() if isinstance(v, float)]
            if entry["step"] == self.state.best_step and figures:
                text += f"; best after {entry['step']:,}: {', '.join(figures)}"
        return text


def diverged(quantity: str, loss: float, highest: float, learning_rate: float) -> TrainingError:
    """Return the error of a run whose loss is above `highest`; the repair is a rate with which presets learn."""
    return TrainingError(
        f"the run diverged: its {quantity} is {loss:.1f}",
        expected=f"less than {highest:.1f}, about the loss of guessing among all tokens",
        repair=f"Choose a lower rate: --set learning_rate={min(learning_rate / 10, _SAFE_RATE):g} --out NEW",
    )


@contextmanager
def delayed_interruption() -> Iterator[list[int]]:
    """Within the block, only append the first SIGINT or SIGTERM to the list; a second raises KeyboardInterrupt."""
    signals: list[int] = []  # not an Event: a signal during `Event.set` would wait forever for its lock
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return

    def request(number: int, frame: FrameType | None) -> None:
        if signals:
            raise KeyboardInterrupt
        signals.append(number)

    previous = {number: signal.signal(number, request) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield signals
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
