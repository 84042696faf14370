"""A served run: its losses and samples, and its model again at each new checkpoint."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from headwater.report import report
from headwater.serve import Limits, opening
from headwater.serve.api import create_app
from headwater.serve.opening import ModelFollower, open_models
from headwater.serve.schema import EmbeddingRequest
from headwater.serve.served import OpenRequest, Served, Server
from headwater.serve.tasks import embed
from headwater.storage import Stage


@pytest.mark.slow
def test_a_served_run_is_followed_and_its_model_replaced(
    train_run: Callable[[int | None], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "_EVERY", 0.05)
    run = train_run(2)
    models = open_models([f"mine={run}"], precision="fp32", slots=2)
    with TestClient(create_app(models, Limits()), base_url="http://127.0.0.1") as client:
        asked = {"model": "mine", "prompt": "the river", "max_tokens": 5, "temperature": 0}
        state = client.get("/run", params={"model": "mine"}).json()
        assert (state["complete"], state["served_update"], state["updates"]) == (False, 2, 4)
        assert len(state["training"]) >= 2
        assert len(state["held_out"]) >= 1
        assert state["samples"][0]["prompt"] == "the river"
        assert client.get("/v1/models").json()["data"][0]["run"] is True
        assert client.post("/v1/completions", json=asked).status_code == 200
        page = report([run], tmp_path / "report.html").read_text(encoding="utf-8")
        assert "is not finished" in page
        train_run(None)
        for _ in range(600):
            state = client.get("/run", params={"model": "mine"}).json()
            if state["complete"] and state["served_update"] is None:
                break
            time.sleep(0.05)
        assert state["update"] == 4
        assert state["served_update"] is None, "the finished model has taken the checkpoint's place"
        assert client.post("/v1/completions", json=asked).status_code == 200


@pytest.mark.slow
def test_a_run_named_by_a_relative_path_is_opened_once(
    train_run: Callable[[int | None], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was opened again at every look for a newer checkpoint: the paths of one folder differed."""
    run = train_run(None)
    monkeypatch.chdir(run.parent)
    (served,) = open_models([run.name], precision="fp32", slots=1)
    assert opening._open_newer(served) is None


def copied(folder: Path, to: Path) -> Path:
    """Replace a model folder by another with the same files."""
    shutil.rmtree(to, ignore_errors=True)
    return Path(shutil.copytree(folder, to))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


def test_a_request_keeps_the_model_that_it_began_with(
    base_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was failed with 503 or 500 when the old model's threads were stopped while its text was read."""
    monkeypatch.setattr(opening, "_EVERY", 0.01)
    allocated: list[str] = []
    allocate = Served.allocate
    monkeypatch.setattr(
        Served, "allocate", lambda one: allocated.append(threading.current_thread().name) or allocate(one)
    )

    async def scenario() -> None:
        server = Server(
            open_models([f"mine={copied(base_folder, tmp_path / 'm')}"], precision="fp32", slots=2), Limits()
        )
        server.start()
        old, begun, go = server.find("mine"), threading.Event(), threading.Event()
        as_read = old.lm.as_read

        def wait(text: str) -> str:
            begun.set()
            assert go.wait(60)
            return as_read(text)

        monkeypatch.setattr(old.lm, "as_read", wait)

        async def ask() -> Any:
            with OpenRequest(server, "mine", {}) as request:
                return await embed(request, EmbeddingRequest(input="the river"))

        async with ModelFollower(server):
            asked = asyncio.create_task(ask())
            await asyncio.to_thread(begun.wait, 60)
            copied(base_folder, tmp_path / "m")
            server.reload()
            await until(lambda: server.find("mine") is not old)
            await asyncio.sleep(0.1)  # several looks: it is not stopped yet
            go.set()
            assert (await asked)["usage"]["total_tokens"] > 0
            await until(lambda: old.worker._stopping)
            assert not server.find("mine").worker._stopping
        server.stop()

    asyncio.run(scenario())
    # The weights are packed in a thread of their own; the first time before anything is served.
    assert allocated[1:] == ["opening_0"]


def test_a_failed_reopening_is_logged_and_tried_again(
    base_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(opening, "_EVERY", 0.01)

    async def scenario() -> None:
        server = Server(
            open_models([f"mine={copied(base_folder, tmp_path / 'm')}"], precision="fp32", slots=2), Limits()
        )
        server.start()
        old, tries = server.find("mine"), 0
        reopen = old.reopen
        assert reopen is not None

        def fail() -> Served:
            nonlocal tries
            tries += 1
            if tries < 4:
                raise RuntimeError("can't allocate memory")  # as torch has it
            return reopen()

        old.reopen = fail
        async with ModelFollower(server):
            copied(base_folder, tmp_path / "m")
            server.reload()
            await until(lambda: server.find("mine") is not old)
            assert tries == 4
            # A folder that has not changed is not opened again.
            new = server.find("mine")
            server.reload()
            await asyncio.sleep(0.1)
            assert server.find("mine") is new
        server.stop()

    asyncio.run(scenario())
    assert caplog.text.count("mine is not opened again, and is tried again: can't allocate memory") == 1


def test_a_removed_run_is_answered_with_404(base_folder: Path, tmp_path: Path) -> None:
    with Stage(tmp_path / "run", kind="run", config={}, inputs={}).write() as work:
        shutil.copytree(base_folder, work / "model")
    models = open_models([f"mine={tmp_path / 'run'}"], precision="fp32", slots=2)
    with TestClient(create_app(models, Limits()), base_url="http://127.0.0.1") as client:
        assert client.get("/run").status_code == 200
        shutil.rmtree(tmp_path / "run")
        answer = client.get("/run")
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "run_unreadable")
        assert client.post("/v1/completions", json={"prompt": "the", "max_tokens": 1}).status_code == 200


def test_a_model_without_a_run_has_no_losses(base_folder: Path) -> None:
    models = open_models([f"mine={base_folder}"], precision="fp32", slots=2)
    with TestClient(create_app(models, Limits()), base_url="http://127.0.0.1") as client:
        answer = client.get("/run")
        assert answer.status_code == 400
        assert "not of a run folder" in answer.json()["error"]["message"]
