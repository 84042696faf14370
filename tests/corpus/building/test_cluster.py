"""On a cluster the build gives what it gives on one machine; a node may go away."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.cli.main import main
from headwater.corpus import BuildConfig, build_corpus
from headwater.corpus.building import plan as sources
from headwater.corpus.building.parts import PartMaker
from headwater.corpus.building.plan import PARTS
from headwater.corpus.building.runner import BuildRunner
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


def test_an_address_without_ray_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = write_files(tmp_path / "files", 3)
    command = ["corpus", "build", str(files), "--out", str(tmp_path / "corpus"), "--address", "head:6379"]
    assert main(command) == 2
    assert "--engine local does not use --address" in capsys.readouterr().err
    assert not (tmp_path / "corpus").exists()


def test_a_source_that_a_node_does_not_have_is_not_left_out(tmp_path: Path) -> None:
    files = write_files(tmp_path / "files", 2)
    runner = BuildRunner(tmp_path / "parts", BuildConfig(), (), tuple(sources.open_source(0, files).tasks))
    runner.folder.mkdir()
    (files / "01.jsonl").unlink()
    with pytest.raises(ResourceError, match=r"01\.jsonl does not exist on "):
        runner.run(PARTS, 1)
    assert runner.missing(PARTS, 2) == [0, 1]


class Ray:
    """What `run_on_ray` calls, in this process; a node has not the file `away`."""

    def __init__(self, away: Path) -> None:
        self.away = away

    def is_initialized(self) -> bool:
        return True

    def put(self, value: Any) -> Any:
        return value

    def remote(self, function: Any) -> Any:
        def call(*arguments: Any) -> Any:
            moved = self.away.rename(self.away.with_suffix(".moved"))
            try:
                function(*arguments)
            except ResourceError as error:
                return error
            finally:
                moved.rename(self.away)

        return SimpleNamespace(remote=call)

    def wait(self, running: list[Any]) -> tuple[list[Any], list[Any]]:
        return running[:1], running[1:]

    def get(self, done: Any) -> None:
        if done is not None:
            raise done


def test_what_failed_on_a_cluster_is_done_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = write_files(tmp_path / "files", 3)
    monkeypatch.setitem(sys.modules, "ray", Ray(files / "01.jsonl"))
    build_corpus([files], tmp_path / "there", engine="ray", workers=2)
    build_corpus([files], tmp_path / "here")
    assert open_folder(tmp_path / "there").files == open_folder(tmp_path / "here").files


@pytest.mark.filterwarnings("ignore")
def test_a_missing_ray_cluster_gives_one_message_and_no_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ray = pytest.importorskip("ray")
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
    build_corpus([files], tmp_path / "here", BuildConfig(near_duplicates=True))
    assert open_folder(tmp_path / "corpus").files == open_folder(tmp_path / "here").files
