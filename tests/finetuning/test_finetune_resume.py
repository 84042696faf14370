"""A fine-tuning that was stopped resumes: the same bytes come out, and nothing else is left in the folder."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import FolderError, Interrupted, TrainingError
from headwater.finetuning import FinetuneConfig, FineTuned, finetune
from headwater.finetuning import stage as run
from headwater.model import load_model
from headwater.storage import SILENT, Progress, Stage, open_folder
from headwater.training import read_journal

MEASURED = {"seconds", "tokens_per_second"}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory, sentences: Any) -> dict[str, Path]:
    """Rows for two kinds of task: one sequence an example, and a varying number of them."""
    folder = tmp_path_factory.mktemp("tables")
    with (folder / "reviews.csv").open("w", newline="") as handle:
        csv.writer(handle).writerows([("text", "label"), *zip(*sentences(60), strict=True)])
    rows = [
        {"question": f"film {n}", "answers": ["good", "bad", "plot"][: 2 + n % 2], "label": "AB"[n % 2]}
        for n in range(40)
    ]
    (folder / "choices.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return {"classify": folder / "reviews.csv", "choice": folder / "choices.jsonl"}


def settings(task: str, **changes: Any) -> dict[str, Any]:
    chosen = {"steps": 12, "batch_size": 8, "checkpoint_every": 2, "precision": "fp32", "learning_rate": 5e-3}
    return {"task": task, **chosen, **changes}


def content_of(folder: Path) -> dict[str, Any]:
    """Every file but the lock; the journal without what a clock says."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != ".lock":
            found[path.relative_to(folder).as_posix()] = path.read_bytes()
    lines = read_journal(folder / "metrics.jsonl")
    found["metrics.jsonl"] = [{k: v for k, v in line.items() if k not in MEASURED} for line in lines]
    return found


class Stop(Exception):
    """What ends a process in a test."""


class StopAfter(Progress):
    """Raises after so many updates."""

    def __init__(self, updates: int, error: type[BaseException] = Stop) -> None:
        self.updates, self.error = updates, error

    def advance(self, done: float, **figures: float) -> None:
        if done == self.updates:
            raise self.error


class Notes(Progress):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def note(self, text: str) -> None:
        self.texts.append(text)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("task", ["classify", "choice"])
def test_a_stopped_training_resumes_bit_for_bit(
    base: Path, tables: dict[str, Path], tmp_path: Path, task: str, precision: str
) -> None:
    config = FinetuneConfig.build(settings(task, precision=precision))

    def train(name: str, progress: Progress = SILENT) -> Any:
        return finetune(config, tmp_path / name, model=base, train=tables[task], progress=progress)

    whole = train("whole")
    for updates in (3, 9):
        with pytest.raises(Stop):
            train("stopped", StopAfter(updates))
        with pytest.raises(FolderError, match="is not complete"):
            load_model(tmp_path / "stopped")
        with pytest.raises(FolderError, match="is not complete"):
            FineTuned.load(tmp_path / "stopped")
    notes = Notes()
    assert train("stopped", notes) == whole
    assert "resuming from step 8 of 12" in notes.texts
    assert content_of(tmp_path / "stopped") == content_of(tmp_path / "whole")
    assert [line["step"] for line in read_journal(tmp_path / "whole" / "metrics.jsonl")] == list(range(1, 13))
    assert {"l1", "l2", "validation_accuracy"} <= read_journal(tmp_path / "whole" / "metrics.jsonl")[-1].keys()


def test_trainings_of_a_flow_are_named_by_their_folders(
    base: Path, tables: dict[str, Path], tmp_path: Path
) -> None:
    class Stages(Progress):
        names: tuple[str, ...] = ()

        def start(self, stage: str, total: float | None = None, unit: str = "") -> None:
            self.names += (stage,)

    stages = Stages()
    for name in ("source", "source-from-scratch"):
        config = FinetuneConfig.build(settings("classify", steps=1))
        finetune(config, tmp_path / name, model=base, train=tables["classify"], progress=stages)
    assert {"fine-tuning source", "fine-tuning source-from-scratch"} <= set(stages.names)


def test_patience_counts_across_a_stop(base: Path, tables: dict[str, Path], tmp_path: Path) -> None:
    """The best state, the measurements since and the losses since the last one are all in the checkpoint."""
    config = FinetuneConfig.build(settings("classify", epochs=30, patience=3, validate_every=1, steps=None))
    whole = finetune(config, tmp_path / "whole", model=base, train=tables["classify"])
    last = whole["curve"][-1]["step"]
    assert last == whole["best_step"] + 3 == whole["steps"]
    assert whole["epochs"] < 30
    with pytest.raises(Stop):
        finetune(config, tmp_path / "m", model=base, train=tables["classify"], progress=StopAfter(last - 1))
    assert finetune(config, tmp_path / "m", model=base, train=tables["classify"]) == whole
    assert content_of(tmp_path / "m") == content_of(tmp_path / "whole")


def test_the_same_command_completes_after_a_kill_at_the_end(
    base: Path, tables: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed while the model is written, and between its last word and the removal of the checkpoints."""
    config = FinetuneConfig.build(settings("classify"))

    def train(name: str) -> Any:
        return finetune(config, tmp_path / name, model=base, train=tables["classify"])

    def stop(*_: Any, **__: Any) -> Any:
        raise Stop

    def finish_and_stop(stage: Stage, *, only: Any) -> None:
        finish(stage, only=only)
        raise Stop

    finish = Stage.finish
    train("whole")
    for place, name, instead in (
        (run, "report_page", stop),
        (Stage, "finish", stop),
        (Stage, "finish", finish_and_stop),
    ):
        with monkeypatch.context() as patched, pytest.raises(Stop):
            patched.setattr(place, name, instead)
            train("stopped")
    assert (tmp_path / "stopped" / "checkpoints").exists()
    train("stopped")
    assert content_of(tmp_path / "stopped") == content_of(tmp_path / "whole")
    open_folder(tmp_path / "stopped", "model")


def test_a_loss_that_is_not_finite_ends_training_with_a_reason(
    base: Path, tables: dict[str, Path], tmp_path: Path
) -> None:
    config = FinetuneConfig.build(settings("classify", learning_rate=1e30))
    with pytest.raises(TrainingError, match=r"not finite at update|validation loss is nan"):
        finetune(config, tmp_path / "m", model=base, train=tables["classify"])
    assert not (tmp_path / "m" / "model.safetensors").exists()


def test_ctrl_c_outside_an_update_announces_the_resume(
    base: Path, tables: dict[str, Path], tmp_path: Path
) -> None:
    config = FinetuneConfig.build(settings("classify"))
    with pytest.raises(Interrupted):
        finetune(
            config,
            tmp_path / "m",
            model=base,
            train=tables["classify"],
            progress=StopAfter(5, KeyboardInterrupt),
        )


def command(base: Path, table: Path, task: str, out: Path, **changes: Any) -> list[str]:
    chosen = settings(task, recipe="gpt1", **changes)
    given = [f"--set={key}={value}" for key, value in chosen.items() if key != "task"]
    files = [f"--model={base}", f"--train={table}", f"--task={task}", f"--out={out}"]
    return ["finetune", *files, *given]


def run_command(arguments: list[str], program: Sequence[str] = ("-m", "headwater")) -> tuple[int, str]:
    """Return a command's exit status and what it said."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *program, *arguments], env=environment, capture_output=True, text=True)
    return done.returncode, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("task", ["classify", "choice"])
def test_a_killed_training_ends_bit_for_bit_the_same(
    base: Path, tables: dict[str, Path], tmp_path: Path, ended: Any, task: str
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    config = FinetuneConfig.build(settings(task, steps=120, checkpoint_every=10))
    finetune(config, whole, model=base, train=tables[task])
    arguments = command(base, tables[task], task, killed, steps=120, checkpoint_every=10)
    for step in (12, 45, 90):
        assert run_command(arguments, ended(signal.SIGKILL, step))[0] == -signal.SIGKILL
        assert read_journal(killed / "metrics.jsonl")[-1]["step"] == step
    status, errors = run_command(arguments)
    assert status == 0, errors
    assert "resuming from step" in errors
    found, expected = content_of(killed), content_of(whole)
    for given in (found, expected):  # its command line differs
        del given["headwater.json"]
    assert found == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["killed", "whole"]


@pytest.mark.slow
def test_ctrl_c_writes_a_checkpoint_to_resume_from(
    base: Path, tables: dict[str, Path], tmp_path: Path, ended: Any
) -> None:
    out = tmp_path / "m"
    arguments = command(base, tables["classify"], "classify", out, steps=40, checkpoint_every=100_000)
    status, errors = run_command(arguments, ended(signal.SIGINT, 3))
    assert status == 130, errors
    assert "Run the same command again to resume" in errors
    status, errors = run_command(arguments)
    assert status == 0, errors
    assert "resuming from step" in errors
    assert not (out / "checkpoints").exists()
