"""Many ranks train what one does, and a rank that dies does not end the run."""

from __future__ import annotations

import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from headwater.errors import FolderError, TrainingError, UsageError
from headwater.model import load_model
from headwater.training import Ranks, process_group, read_journal
from headwater.training.parallel import agreed_name

Launched = Callable[[list[str], Path], AbstractContextManager[subprocess.Popen[bytes]]]

SETTINGS: dict[str, Any] = {
    "context": 32,
    "model.width": 32,
    "steps": 12,
    "batch_size": 8,
    "micro_batch": 2,
    "validate_every": 6,
    "validation_windows": 5,  # of two ranks one goes through the model twice, the other has enough of one time
    "checkpoint_every": 3,
    "precision": "fp32",
    "device": "cpu",
}
LONG = {"steps": 200, "validate_every": 100}
STANDALONE = ("--standalone", "--nproc-per-node=2")


def headwater(tokens: Path, out: Path, **changes: Any) -> list[str]:
    settings = [f"--set={key}={value}" for key, value in (SETTINGS | changes).items()]
    return ["pretrain", "--preset=gpt2-pico", f"--tokens={tokens}", f"--out={out}", *settings]


def torchrun(*options: str) -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", *options]


HEADWATER = ("-m", "headwater")


def train(launched: Launched, arguments: list[str], out: Path) -> list[dict[str, Any]]:
    log = out.with_suffix(".log")
    with launched(arguments, log) as process:
        assert process.wait(timeout=300) == 0, log.read_text()
    return read_journal(out / "metrics.jsonl")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def assert_same_losses(lines: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    assert [line["step"] for line in lines] == [line["step"] for line in expected]
    for name in ("loss", "validation_loss", "gradient_norm"):
        got = [line[name] for line in lines if name in line]
        assert got == pytest.approx([line[name] for line in expected if name in line], rel=1e-5)


@pytest.mark.parametrize("late", [0, 2])
def test_ranks_agree_on_a_name_of_this_start_alone(late: int) -> None:
    store = dist.HashStore()

    def start(rank: int) -> str:
        time.sleep(0.05 * (rank == late))  # the others find in the store only what dead ranks said
        return agreed_name(store, rank, 3, timedelta(minutes=1))

    with ThreadPoolExecutor(3) as ranks:
        starts = [set(ranks.map(start, range(3))) for _ in range(3)]
    assert [len(names) for names in starts] == [1, 1, 1]
    assert len(set.union(*starts)) == 3


def test_a_rank_that_does_not_come_is_named() -> None:
    with pytest.raises(dist.DistStoreError, match="rank 1 did not come"):
        agreed_name(dist.HashStore(), 0, 2, timedelta(milliseconds=20))


@pytest.mark.parametrize(
    "environment",
    [
        {"RANK": "1"},
        {"WORLD_SIZE": "4"},
        {"RANK": "one"},
        {"WORLD_SIZE": "-2"},
        {"RANK": "2", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"},
    ],
)
def test_ranks_without_torchrun_are_named(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=r"the environment has (RANK|WORLD_SIZE)="), process_group("cpu"):
        pass


def test_empty_ranks_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.setenv(name, "")
    with process_group("cpu") as ranks:
        assert (ranks.rank, ranks.count) == (0, 1)


def test_a_callers_process_group_is_used_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setenv("WORLD_SIZE", "3")  # not that of the caller's group
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with process_group("cpu") as ranks:
            assert (ranks.rank, ranks.count) == (0, 1)
        with pytest.raises(TrainingError, match="rank 0 of 1 lost another one"), process_group("cpu"):
            raise RuntimeError("gloo: the connection is closed")
        assert dist.is_initialized()
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def test_an_error_of_the_first_rank_is_raised_on_every_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[bytes] = []

    def broadcast(self: Ranks, value: Any) -> Any:
        if self.is_first:
            sent.append(pickle.dumps(value))
        return pickle.loads(sent[-1])

    def fail() -> None:
        raise FolderError("every checkpoint is damaged", repair="Remove them")

    monkeypatch.setattr(Ranks, "broadcast", broadcast)
    first, second = Ranks(0, 2), Ranks(1, 2)
    for rank, work in ((first, fail), (second, lambda: pytest.fail("called"))):
        with pytest.raises(FolderError, match=r"every checkpoint is damaged. Remove them"):
            rank.on_first(work)
    assert [first.on_first(lambda: 3), second.on_first(lambda: 4)] == [3, 3]


def test_too_little_memory_is_one_clear_error() -> None:
    with (
        pytest.raises(TrainingError, match=r"too small: .*allocate.*smaller --set micro_batch"),
        process_group("cpu"),
    ):
        torch.empty(1 << 60)


@pytest.fixture(scope="module")
def alone(launched: Launched, tokens: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("alone") / "run"
    train(launched, [sys.executable, *HEADWATER, *headwater(tokens, out)], out)
    return out


@pytest.fixture(scope="module")
def whole(launched: Launched, tokens: Path, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The losses of a long run of two ranks that nothing disturbed."""
    out = tmp_path_factory.mktemp("whole") / "run"
    lines = train(launched, torchrun(*STANDALONE, *HEADWATER, *headwater(tokens, out, **LONG)), out)
    return [line["loss"] for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_give_the_losses_of_one(
    launched: Launched, tokens: Path, tmp_path: Path, alone: Path, ranks: int
) -> None:
    run = tmp_path / "run"
    options = ("--standalone", f"--nproc-per-node={ranks}", *HEADWATER)
    lines = train(launched, torchrun(*options, *headwater(tokens, run)), run)
    assert_same_losses(lines, read_journal(alone / "metrics.jsonl"))


@pytest.mark.slow
def test_sharded_ranks_give_the_losses_and_the_model_of_one(
    launched: Launched, tokens: Path, tmp_path: Path, alone: Path
) -> None:
    run = tmp_path / "run"
    lines = train(launched, torchrun(*STANDALONE, *HEADWATER, *headwater(tokens, run, shard="true")), run)
    assert_same_losses(lines, read_journal(alone / "metrics.jsonl"))
    expected = load_model(alone / "model").state_dict()
    for name, weight in load_model(run / "model").state_dict().items():
        torch.testing.assert_close(weight, expected[name], rtol=0, atol=1e-4, msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("shard", ["false", "true"])
def test_a_run_resumes_with_another_number_of_ranks(
    launched: Launched, tokens: Path, tmp_path: Path, alone: Path, ended: Any, shard: str
) -> None:
    run = tmp_path / "run"
    # The checkpoint of step 3 is complete before that of step 6 is begun.
    command = torchrun(*STANDALONE, *ended(signal.SIGKILL, 7), *headwater(tokens, run, shard=shard))
    with launched(command, tmp_path / "log") as process:
        assert process.wait(timeout=300) == 1
    assert (run / "checkpoints" / "step-00000003").exists()
    assert not (run / "model").exists()
    lines = train(launched, [sys.executable, *HEADWATER, *headwater(tokens, run)], run)
    assert_same_losses(lines, read_journal(alone / "metrics.jsonl"))


STUCK_AT_THE_SECOND = """
import os, sys, threading
import headwater.training.checkpoint as checkpoint
from headwater.cli.main import main

write, calls = checkpoint._write_shards, []

def stuck(folder, state, group):
    calls.append(1)
    if len(calls) == 2 and os.environ["RANK"] == "1":
        threading.Event().wait()  # until the test kills it
    write(folder, state, group)

checkpoint._write_shards = stuck
sys.exit(main())
"""


@pytest.mark.slow
def test_killed_sharded_ranks_end_bit_for_bit_the_same(launched: Launched, tokens: Path, tmp_path: Path) -> None:
    def arguments(run: Path) -> list[str]:
        return torchrun(*STANDALONE, *HEADWATER, *headwater(tokens, run, shard="true"))

    train(launched, arguments(tmp_path / "whole"), tmp_path / "whole")
    killed, script = tmp_path / "killed", tmp_path / "stuck.py"
    script.write_text(STUCK_AT_THE_SECOND)
    command = torchrun(*STANDALONE, str(script), *headwater(tokens, killed, shard="true"))
    log, journal = tmp_path / "log", killed / "metrics.jsonl"
    with launched(command, log) as process:
        # The second checkpoint, of step 6, is being written while training continues to the third.
        while not journal.exists() or not [line for line in read_journal(journal) if line["step"] == 9]:
            assert process.poll() is None, log.read_text()
            time.sleep(0.005)
    (kept,) = (killed / "checkpoints").glob("step-*")
    assert kept.name == "step-00000003"
    assert list((killed / "checkpoints").glob(".step-00000006.*.part"))
    train(launched, arguments(killed), killed)
    weights = [load_model(run / "model").state_dict() for run in (tmp_path / "whole", killed)]
    for name, weight in weights[0].items():
        assert torch.equal(weight, weights[1][name]), name


FULL_AT_FIRST = """
import resource, signal, sys
import headwater.training.checkpoint as checkpoint
from headwater.cli.main import main

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
write, calls = checkpoint._write_shards, []

def full_once(folder, state, group):
    calls.append(1)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000 if len(calls) == 1 else -1, -1))
    try:
        write(folder, state, group)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))

checkpoint._write_shards = full_once
sys.exit(main())
"""


@pytest.mark.slow
def test_a_full_disk_costs_sharded_ranks_only_a_checkpoint(
    launched: Launched, tokens: Path, tmp_path: Path
) -> None:
    run, script = tmp_path / "run", tmp_path / "full.py"
    script.write_text(FULL_AT_FIRST)
    arguments = headwater(tokens, run, shard="true")
    lines = train(launched, torchrun(*STANDALONE, str(script), *arguments), run)
    assert len(lines) == SETTINGS["steps"]
    said = run.with_suffix(".log").read_text()
    assert said.count("no checkpoint was written at step 3: no space is left") == 1
    assert (run / "model" / "config.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [1, 2])
def test_torchrun_restarts_a_rank_that_was_killed(
    launched: Launched, tokens: Path, tmp_path: Path, whole: list[float], ended: Any, nodes: int
) -> None:
    run = tmp_path / "run"
    options = list(STANDALONE)
    if nodes == 2:  # each with one rank, and with a count of restarts of its own
        endpoint = f"--rdzv-endpoint=127.0.0.1:{free_port()}"
        options = ["--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d", endpoint, "--local-addr=127.0.0.1"]
    program = [*ended(signal.SIGKILL, 7, rank=1), *headwater(tokens, run, **LONG)]
    arguments = torchrun(*options, "--max-restarts=2", *program)
    logs = [tmp_path / f"{node}.log" for node in range(nodes)]
    with ExitStack() as stack:
        launchers = [stack.enter_context(launched(arguments, log)) for log in logs]
        states = [launcher.wait(timeout=300) for launcher in launchers]
    assert states == [0] * nodes, "\n".join(log.read_text() for log in logs)
    lines = read_journal(run / "metrics.jsonl")
    assert [line["step"] for line in lines] == list(range(1, LONG["steps"] + 1))
    assert [line["loss"] for line in lines] == whole


@pytest.mark.slow
@pytest.mark.parametrize("shard", ["false", "true"])
def test_a_rank_that_lost_another_ends_with_an_error(
    launched: Launched, tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: Any, shard: str
) -> None:
    run = tmp_path / "run"
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(free_port()))
    monkeypatch.setenv("WORLD_SIZE", "2")
    program = [*ended(signal.SIGKILL, 7, rank=1), *headwater(tokens, run, steps=100_000, shard=shard)]
    with ExitStack() as stack:
        processes = []
        for rank in range(2):  # without torchrun, which would stop the survivor as soon as it sees the death
            monkeypatch.setenv("RANK", str(rank))
            processes.append(stack.enter_context(launched([sys.executable, *program], tmp_path / f"{rank}.log")))
        assert [process.wait(timeout=300) for process in processes] == [1, -signal.SIGKILL]
    said = (tmp_path / "0.log").read_text()
    assert said.count("Error: rank 0 of 2 lost another one: ") == 1
    assert "Traceback" not in said
    assert "newest checkpoint" in said
