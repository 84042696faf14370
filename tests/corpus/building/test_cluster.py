"""On a cluster the build gives what it gives on one machine; a node may go away."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.cli.main import main
from headwater.corpus import BuildConfig, build_corpus
from headwater.corpus.building import plan as sources
from headwater.corpus.building.parts import PartMaker
from headwater.corpus.building.phases import PhaseRunner
from headwater.corpus.building.plan import PARTS, BuildPlan
from headwater.errors import ResourceError, StorageError
from headwater.storage import open_folder


def write_files(folder: Path, count: int) -> Path:
    folder.mkdir()
    for number in range(count):
        rows = [
            f"Row {row} of file {number % 5}, which tells of the river and of its stones." for row in range(20)
        ]
        (folder / f"{number:02d}.jsonl").write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
    return folder


@pytest.fixture(autouse=True)
def _small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "TASK_FILES", 1)


SBATCH = """#!/bin/bash
# Does what sbatch would, at once: the script for each index of its array, in the reverse order.
echo "$@" >> "$SBATCH_LOG"
while [[ $1 == --* ]]; do
    [[ $1 == --array=0-* ]] && last=${1#*-*-*-} && last=${last%%%*}
    shift
done
for index in $(seq "${last:-0}" -1 0); do
    SLURM_ARRAY_TASK_ID=$index bash "$@" >&2 || exit 1
done
echo "4711;cluster"
"""


@pytest.mark.parametrize("engine", [[], ["--engine", "slurm"]])
def test_an_address_without_ray_is_refused(
    tmp_path: Path, engine: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    files = write_files(tmp_path / "files", 3)
    command = ["corpus", "build", str(files), "--out", str(tmp_path / "corpus"), "--address", "head:6379", *engine]
    assert main(command) == 2
    assert f"--engine {engine[-1] if engine else 'local'} does not use --address" in capsys.readouterr().err
    assert not (tmp_path / "corpus").exists()


@pytest.mark.skipif(os.name != "posix", reason="Slurm's scripts are shell scripts")
def test_slurm_jobs_do_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)  # what is named from here on is found by the jobs too
    files = write_files(tmp_path / "plain", 2)  # called as a recipe is
    (tmp_path / "set.txt").write_text("Nothing of what stands in these few words is in any of the files.")
    command = ["corpus", "build", "plain", "--recipe", "plain", "--out", "corpus"]
    command += ["--set", 'evaluation_sets=["set.txt"]']
    assert main([*command, "--engine", "slurm", "--workers", "3", "--json"]) == 0
    script = json.loads(capsys.readouterr().out)["submit"]
    assert not (tmp_path / "corpus").exists()
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "sbatch").write_text(SBATCH)
    (tools / "sbatch").chmod(0o755)
    environment = os.environ | {"PATH": f"{tools}:{os.environ['PATH']}", "SBATCH_LOG": str(tmp_path / "log")}
    subprocess.run(["sh", script, "--partition=cpu"], env=environment, check=True, cwd=tmp_path)
    first, second, third, *_, last = (tmp_path / "log").read_text().splitlines()
    tasks = "--partition=cpu tasks.slurm"
    assert first == f"--parsable --array=0-1%2 {tasks} parts 2"
    assert second == f"--parsable --dependency=afterany:4711 --array=0-0%1 {tasks} starts 1"
    assert third == f"--parsable --dependency=afterany:4711 --array=0-1%2 {tasks} copies 2"  # not known yet
    assert last == "--dependency=afterany:4711 --partition=cpu finish.slurm"
    build_corpus([files], tmp_path / "here")
    assert open_folder(tmp_path / "corpus").files == open_folder(tmp_path / "here").files


def test_a_source_that_a_node_does_not_have_is_not_left_out(tmp_path: Path) -> None:
    files = write_files(tmp_path / "files", 2)
    plan = BuildPlan(tmp_path / "parts", BuildConfig(), tuple(sources.open_source(0, files).tasks))
    plan.folder.mkdir()
    (files / "01.jsonl").unlink()
    with pytest.raises(ResourceError, match=r"01\.jsonl does not exist on "):
        PhaseRunner(plan).run(PARTS, 1)
    assert PhaseRunner(plan).missing(PARTS) == [0, 1]


def test_a_step_of_datatrove_does_a_task(tmp_path: Path) -> None:
    pytest.importorskip("datatrove")
    from headwater.corpus.building.cluster import DoTask
    from headwater.corpus.building.plan import open_source

    files = write_files(tmp_path / "files", 3)
    plan = BuildPlan(tmp_path / "parts", BuildConfig(), tuple(open_source(0, files).tasks))
    plan.folder.mkdir()
    plan.save()
    (files / "02.jsonl").unlink()
    step = DoTask(PhaseRunner(plan).opener, str(plan.folder), PARTS)
    for rank in range(3):
        assert list(step.run(None, rank, 3)) == []
    assert PhaseRunner(plan).missing(PARTS) == [2]  # the build does it again, and so raises its error


def test_what_failed_on_a_cluster_is_done_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = write_files(tmp_path / "files", 3)

    class Executor:
        def __init__(self, steps: Any, **named: Any) -> None:
            self.step = steps[0]

        def run(self) -> None:
            moved = (files / "01.jsonl").rename(tmp_path / "elsewhere")  # a node does not have this file
            for rank in range(3):
                list(self.step.run(None, rank, 3))
            moved.rename(files / "01.jsonl")

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: True))
    monkeypatch.setitem(sys.modules, "datatrove.executor.ray", SimpleNamespace(RayPipelineExecutor=Executor))
    build_corpus([files], tmp_path / "there", engine="ray")
    build_corpus([files], tmp_path / "here")
    assert open_folder(tmp_path / "there").files == open_folder(tmp_path / "here").files


@pytest.mark.filterwarnings("ignore")
def test_a_missing_ray_cluster_gives_one_message_and_no_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ray = pytest.importorskip("ray")
    pytest.importorskip("datatrove")
    files = write_files(tmp_path / "files", 3)
    command = ["corpus", "build", str(files), "--out", str(tmp_path / "corpus"), "--engine", "ray"]
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = server.getsockname()[1]
    original = PartMaker.fill

    def failing(*arguments: Any) -> dict[str, Any]:
        raise StorageError("the disk is full")

    def once(*arguments: Any) -> dict[str, Any]:
        monkeypatch.setattr(PartMaker, "fill", failing)
        return original(*arguments)

    monkeypatch.setattr(PartMaker, "fill", once)
    with pytest.raises(StorageError):
        build_corpus([files], tmp_path / "corpus")
    monkeypatch.setattr(PartMaker, "fill", original)
    for address, words in (
        (f"127.0.0.1:{free}", f"the Ray cluster at 127.0.0.1:{free} cannot be joined"),
        ("", "timed out"),
    ):

        def timed_out(**options: Any) -> None:
            raise Exception("The current node timed out during startup.\nLook into the logs.")

        monkeypatch.setattr(ray, "init", timed_out)
        assert main([*command, *(["--address", address] if address else [])]) == 1
        error = capsys.readouterr().err
        assert words in error
        assert "Traceback" not in error
    [parts] = tmp_path.glob(".corpus.*.parts")
    assert (parts / "parts-000000").is_dir(), "the task that was done stays done"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_ray_with_a_node_that_goes_away(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    pytest.importorskip("datatrove")
    import threading
    import time

    import ray
    from ray.cluster_utils import Cluster

    files = write_files(tmp_path / "files", 24)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    second = cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False)
    parts: list[int] = []

    def end_one() -> None:
        while not parts:
            parts.extend(1 for _ in tmp_path.glob(".corpus.*.parts/parts-*"))
            time.sleep(0.1)
        cluster.remove_node(second, allow_graceful=False)

    watcher = threading.Thread(target=end_one)
    watcher.start()
    try:
        build_corpus([files], tmp_path / "corpus", BuildConfig(near_duplicates=True), workers=2, engine="ray")
    finally:
        parts.append(1)
        watcher.join()
        ray.shutdown()
        cluster.shutdown()
    build_corpus([files], tmp_path / "here")
    assert open_folder(tmp_path / "corpus").files == open_folder(tmp_path / "here").files
