"""The loop around the updates: the best state, and what a resumed run does if its checkpoint is gone."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from headwater.errors import StorageError
from headwater.storage.progress import Progress
from headwater.train.loop import TrainConfig
from headwater.train.run import Measurement, Run

from .test_loop import batch_of, tiny_trainer


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
    monkeypatch.setattr("headwater.train.checkpoint.save_file", save)
    run, notes = trained(tmp_path, ranks)
    assert any(f"the best checkpoint, of step {full}, is missing" in text for text in notes)
    assert run.best is not None
    assert run.best["step"] == best


@pytest.mark.parametrize("how", ["missing", "damaged"])
def test_a_finished_run_uses_its_last_state_if_the_best_checkpoint_is_gone(tmp_path: Path, how: str) -> None:
    run, _ = trained(tmp_path, [1.0, 3.0, 3.0, 2.0])
    assert run.best == {"rank": [3.0], "step": 2}  # the first of equals
    last = run.trainer.full_weights()
    best = tmp_path / "checkpoints" / "step-00000002"
    if how == "missing":
        shutil.rmtree(best)
    else:
        content = bytearray((best / "state.safetensors").read_bytes())
        content[-1] ^= 1
        (best / "state.safetensors").write_bytes(content)
    run, notes = trained(tmp_path, [1.0, 3.0, 3.0, 2.0])
    assert any("the best checkpoint, of step 2, is missing or damaged" in text for text in notes)
    assert run.best is not None
    assert run.best["step"] == 4
    run.restore_best()
    for name, weight in run.trainer.full_weights().items():
        assert torch.equal(weight, last[name])
