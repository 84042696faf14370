"""Many ranks train what one does, and a rank that dies does not end the run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from headwater.model.folder import load_model
from headwater.train.journal import read_journal

pytestmark = pytest.mark.slow

SETTINGS: dict[str, Any] = {
    "context": 32,
    "model.width": 32,
    "steps": 12,
    "batch_size": 8,
    "micro_batch": 2,
    "validate_every": 6,
    "checkpoint_every": 3,
    "precision": "fp32",
    # Named, since what a measurement chooses may differ from one run to the next.
    "matmul": "torch",
    "attention": "fused",
    "compiled": "[]",
    "device": "cpu",
}


def command(tokens: Path, out: Path, ranks: int, *launch: str, **changes: Any) -> list[str]:
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", *launch]
    settings = [f"--set={key}={value}" for key, value in (SETTINGS | changes).items()]
    headwater = [
        "-m",
        "headwater",
        "pretrain",
        "--preset=gpt2-pico",
        f"--tokens={tokens}",
        f"--out={out}",
        *settings,
    ]
    return [sys.executable, *(launcher if ranks > 1 else []), *headwater]


def kill_with_descendants(pid: int) -> None:
    """SIGKILL a launcher and its ranks, which are in sessions of their own and would go on without it."""
    children = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()
    os.kill(pid, signal.SIGKILL)
    for child in children:
        kill_with_descendants(int(child))


def train(tokens: Path, out: Path, ranks: int, *launch: str, **changes: Any) -> list[dict[str, Any]]:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    arguments = command(tokens, out, ranks, *launch, **changes)
    result = subprocess.run(arguments, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return read_journal(out / "metrics.jsonl")


def assert_same_losses(lines: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    assert [line["step"] for line in lines] == [line["step"] for line in expected]
    for name in ("loss", "validation_loss", "gradient_norm"):
        got = [line[name] for line in lines if name in line]
        assert got == pytest.approx([line[name] for line in expected if name in line], rel=1e-5)


@pytest.fixture(scope="module")
def alone(tokens: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("alone") / "run"
    train(tokens, out, 1)
    return out


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_give_the_losses_of_one(tokens: Path, tmp_path: Path, alone: Path, ranks: int) -> None:
    assert_same_losses(train(tokens, tmp_path / "run", ranks), read_journal(alone / "metrics.jsonl"))


def test_sharded_ranks_give_the_losses_and_the_model_of_one(tokens: Path, tmp_path: Path, alone: Path) -> None:
    lines = train(tokens, tmp_path / "run", 2, shard="true")
    assert_same_losses(lines, read_journal(alone / "metrics.jsonl"))
    expected = load_model(alone / "model").state_dict()
    for name, weight in load_model(tmp_path / "run" / "model").state_dict().items():
        torch.testing.assert_close(weight, expected[name], rtol=0, atol=1e-4, msg=name)


@pytest.mark.parametrize("shard", ["false", "true"])
def test_a_run_goes_on_with_another_number_of_ranks(tokens: Path, tmp_path: Path, alone: Path, shard: str) -> None:
    run = tmp_path / "run"
    interrupted = command(tokens, run, 2, shard=shard)
    process = subprocess.Popen(interrupted, env=os.environ | {"OMP_NUM_THREADS": "1"}, start_new_session=True)
    while not list((run / "checkpoints").glob("step-*")):
        assert process.poll() is None
        time.sleep(0.005)
    kill_with_descendants(process.pid)
    process.wait()
    assert not (run / "model").exists()
    assert_same_losses(train(tokens, run, 1), read_journal(alone / "metrics.jsonl"))


def test_torchrun_restarts_a_rank_that_was_killed(tokens: Path, tmp_path: Path, alone: Path) -> None:
    run = tmp_path / "run"
    steps = 200
    arguments = command(tokens, run, 2, "--max-restarts=2", steps=steps, validate_every=100)
    process = subprocess.Popen(arguments, env=os.environ | {"OMP_NUM_THREADS": "1"})
    while not list((run / "checkpoints").glob("step-*")):
        assert process.poll() is None
        time.sleep(0.005)
    victims = subprocess.run(
        ["pgrep", "-P", str(process.pid), "-f", "headwater pretrain"], capture_output=True, text=True
    ).stdout.split()
    os.kill(int(victims[-1]), signal.SIGKILL)
    assert process.wait(timeout=300) == 0
    assert [line["step"] for line in read_journal(run / "metrics.jsonl")] == list(range(1, steps + 1))
    whole = train(tokens, tmp_path / "whole", 2, steps=steps, validate_every=100)
    assert [line["loss"] for line in read_journal(run / "metrics.jsonl")] == [line["loss"] for line in whole]
