"""The loop around the updates: the best state, and what a resumed run does if its checkpoint is gone."""

from __future__ import annotations

import errno
import io
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from headwater.errors import StorageError, TrainingError
from headwater.storage import Progress
from headwater.training import Measurement, Run, TrainConfig, read_journal
from headwater.training.checkpoint import Checkpoints
from headwater.training.journal import Journal
from headwater.training.loop import delayed_interruption

from .test_trainer import batch_of, tiny_trainer


class Source:
    """One batch an update."""

    def micro_batches(self, step: int) -> list[Any]:
        return [batch_of(2, seed=step)]

    def tokens(self, step: int) -> int:
        return 24


class Notes(Progress):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def note(self, text: str) -> None:
        self.texts.append(text)


def trained(out: Path, ranks: list[float]) -> tuple[Run, list[str]]:
    """Train for as many updates as `ranks`, the rank of each measurement; return the run and its notes."""
    notes = Notes()
    config = TrainConfig(steps=len(ranks), validate_every=1, checkpoint_every=1, keep=1, precision="fp32")

    def validate() -> Measurement:
        return Measurement({"validation_loss": 1.0}, (ranks[run.trainer.step - 1],))

    run = Run(tiny_trainer(steps=len(ranks)), config, Source(), validate, out=out, progress=notes)
    run.train()
    return run, notes.texts


@pytest.mark.parametrize(("ranks", "best"), [([1.0, 3.0, 2.0, 2.0], 4), ([1.0, 2.0, 3.0, 2.0], 4)])
def test_later_checkpoints_are_written_if_the_best_one_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranks: list[float], best: int
) -> None:
    full = ranks.index(max(ranks)) + 1

    def save(state: Any, path: Path) -> None:
        written.append(path)
        if len(written) == full:
            raise StorageError("no space is left")
        save_file(state, path)

    written: list[Path] = []
    monkeypatch.setattr("headwater.training.checkpoint.save_file", save)
    run, notes = trained(tmp_path, ranks)
    assert any(f"the best checkpoint, of step {full}, is missing" in text for text in notes)
    assert run.state.best_step == best


def damage(checkpoint: Path) -> None:
    content = bytearray((checkpoint / "state.safetensors").read_bytes())
    content[-1] ^= 1
    (checkpoint / "state.safetensors").write_bytes(content)


@pytest.mark.parametrize("how", ["missing", "damaged"])
def test_a_run_without_its_best_checkpoint_uses_the_last_state(tmp_path: Path, how: str) -> None:
    run, _ = trained(tmp_path, [1.0, 3.0, 3.0, 2.0])
    assert run.state.best == {"quality": [3.0], "step": 2}  # the first of equals
    last = run.trainer.full_weights()
    best = tmp_path / "checkpoints" / "step-00000002"
    if how == "missing":
        shutil.rmtree(best)
    else:
        damage(best)
    run, notes = trained(tmp_path, [1.0, 3.0, 3.0, 2.0])
    assert any("the best checkpoint, of step 2, is missing or damaged" in text for text in notes)
    assert run.state.best_step == 4
    run.restore_best()
    for name, weight in run.trainer.full_weights().items():
        assert torch.equal(weight, last[name])


def begin(out: Path, on_update: Callable[[dict[str, Any]], None], source: Any = None, **changes: Any) -> Run:
    """Return a run of six updates that validates after the last one."""
    config = TrainConfig(**{"steps": 6, "validate_every": 6, "keep": 1, "precision": "fp32"} | changes)
    measured = Measurement({"validation_loss": 1.0}, (1.0,))
    run = Run(tiny_trainer(steps=6), config, source or Source(), lambda: measured, out=out)
    run.on_update = on_update
    return run


def kept(out: Path) -> list[str]:
    return sorted(path.name for path in (out / "checkpoints").iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_training_after_a_checkpoint(tmp_path: Path, number: signal.Signals) -> None:
    def send(line: dict[str, Any]) -> None:
        if line["step"] == 2:
            signal.raise_signal(number)

    with pytest.raises(KeyboardInterrupt):
        begin(tmp_path, send, checkpoint_every=100).train()
    assert kept(tmp_path) == ["step-00000003"]


def test_a_second_signal_does_not_wait_for_the_first() -> None:
    def handle(handler: Any, point: int) -> None:
        """Call the handler, and once more within it, before its bytecode instruction number `point`."""
        step = count()

        def trace(frame: Any, event: str, _: Any) -> Any:
            frame.f_trace_opcodes = True
            if event == "opcode" and next(step) == point:
                sys.settrace(None)
                handler(signal.SIGTERM, frame)
            return trace

        with suppress(KeyboardInterrupt):
            sys.settrace(trace)
            try:
                handler(signal.SIGINT, None)
            finally:
                sys.settrace(None)

    for point in range(40):
        with delayed_interruption():
            handler = signal.getsignal(signal.SIGINT)
        thread = threading.Thread(target=handle, args=(handler, point), daemon=True)
        thread.start()
        thread.join(10)
        assert not thread.is_alive()


def test_the_state_before_a_loss_that_is_not_finite_is_kept(tmp_path: Path) -> None:
    class Poisoned(Source):
        def micro_batches(self, step: int) -> list[Any]:
            (batch,) = super().micro_batches(step)
            if step == 4:
                batch.weights[0, 0] = float("nan")
            return [batch]

    with pytest.raises(TrainingError, match=r"at update 5.*the state after update 4 is kept as a checkpoint"):
        begin(tmp_path, print, Poisoned(), checkpoint_every=100).train()
    assert kept(tmp_path) == ["step-00000004"]


def test_a_run_without_its_last_checkpoint_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(state: Any, path: Path) -> None:
        raise StorageError("no space is left")

    monkeypatch.setattr("headwater.training.checkpoint.save_file", full)
    with pytest.raises(StorageError, match=r"the last checkpoint, of update 6, was not written"):
        begin(tmp_path, print, checkpoint_every=2).train()
    monkeypatch.undo()
    begin(tmp_path, print, checkpoint_every=2).train()
    assert "step-00000006" in kept(tmp_path)


def test_a_disk_without_room_for_a_checkpoint_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=100))
    with pytest.raises(StorageError, match=r"100 B of free space, and . checkpoints and the model take"):
        begin(tmp_path, print).train()
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.parametrize(("minutes", "left"), [(1e-9, ["step-00000002"]), (60.0, [])])
def test_a_checkpoint_is_due_after_minutes_as_well(tmp_path: Path, minutes: float, left: list[str]) -> None:
    def stop(line: dict[str, Any]) -> None:
        if line["step"] == 2:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        begin(tmp_path, stop, checkpoint_every=100, checkpoint_minutes=minutes).train()
    assert (kept(tmp_path) if (tmp_path / "checkpoints").exists() else []) == left


def test_the_journal_is_on_disk_before_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    write, sync, save = Journal.write, Journal.sync, Checkpoints.save

    def watched_write(journal: Journal, line: dict[str, Any]) -> str | None:
        events.append(f"line {line['step']}")
        return write(journal, line)

    def watched_sync(journal: Journal) -> None:
        events.append("flush")
        sync(journal)

    def watched_save(checkpoints: Checkpoints, step: int, *state: Any) -> None:
        events.append(f"checkpoint {step}")
        save(checkpoints, step, *state)

    monkeypatch.setattr(Journal, "write", watched_write)
    monkeypatch.setattr(Journal, "sync", watched_sync)
    monkeypatch.setattr(Checkpoints, "save", watched_save)
    begin(tmp_path, print, checkpoint_every=3).train()
    expected = [["line 1", "line 2"], ["line 3", "flush", "checkpoint 3"]]
    expected += [["line 4", "line 5"], ["line 6", "flush", "checkpoint 6"]]
    assert events == [event for part in expected for event in part]


def test_a_disk_that_fills_within_a_line_loses_no_line(tmp_path: Path) -> None:
    class Filling(io.FileIO):
        free = 5

        def write(self, data: Any) -> int:
            if not self.free:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            count = super().write(bytes(data)[: self.free])
            self.free -= count
            return count

    journal = Journal(tmp_path / "metrics.jsonl")
    assert journal.write({"step": 1}) is None
    journal._handle.close()
    journal._handle = io.BufferedWriter(disk := Filling(journal.path, "ab"), 1 << 20)
    warning = journal.write({"step": 2})
    assert "no space is left" in str(warning)
    assert [line["step"] for line in read_journal(journal.path)] == [1]  # the half of a line is left out
    disk.free = 1_000
    assert journal.write({"step": 3}) is None
    assert [line["step"] for line in read_journal(journal.path)] == [1, 2, 3]
    journal.close()


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes")]
)
def test_too_little_memory_keeps_the_state(tmp_path: Path, error: Exception) -> None:
    class Full(Source):
        def micro_batches(self, step: int) -> list[Any]:
            if step == 3:
                raise error
            return super().micro_batches(step)

    with pytest.raises(
        TrainingError, match=r"memory .* too small: .*; the state after update 3 is kept .*micro_batch"
    ):
        begin(tmp_path, lambda line: None, Full(), checkpoint_every=100).train()
    assert "step-00000003" in kept(tmp_path)
