"""Models that are opened again while they are served."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from model_server import opened

from headwater.serve import ServeConfig, reopening
from headwater.serve.reopening import ModelReopener
from headwater.serve.schema import EmbeddingRequest
from headwater.serve.served import OpenRequest, Served, Server
from headwater.serve.tasks import embed


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
    monkeypatch.setattr(reopening, "_REQUESTS_CHECKED_EVERY", 0.01)
    allocated: list[str] = []
    allocate = Served.allocate
    monkeypatch.setattr(
        Served, "allocate", lambda one: allocated.append(threading.current_thread().name) or allocate(one)
    )

    async def scenario() -> None:
        server = Server(
            opened(f"mine={copied(base_folder, tmp_path / 'm')}", slots=2),
            ServeConfig(),
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

        async with ModelReopener(server):
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
    monkeypatch.setattr(reopening, "_FIRST_PAUSE", 0.01)

    async def scenario() -> None:
        server = Server(
            opened(f"mine={copied(base_folder, tmp_path / 'm')}", slots=2),
            ServeConfig(),
        )
        server.start()
        old, tries = server.find("mine"), 0
        reopen = old.reopen
        monkeypatch.setattr(reopening, "_LONGEST_PAUSE", 0.02)

        def fail(slots: int) -> Served | None:
            nonlocal tries
            tries += 1
            if tries < 4:
                raise RuntimeError("can't allocate memory")  # as torch has it
            return reopen(slots)

        old.reopen = fail
        async with ModelReopener(server):
            copied(base_folder, tmp_path / "m")
            server.reload()
            await until(lambda: bool(old.stale))
            assert 'headwater_model_stale{model="mine"} 1' in server.metrics.text(server.models.values())
            await until(lambda: server.find("mine") is not old)
            assert tries == 4
            assert not server.find("mine").stale
            # A folder that has not changed is not opened again.
            new = server.find("mine")
            server.reload()
            await asyncio.sleep(0.1)
            assert server.find("mine") is new
        server.stop()

    asyncio.run(scenario())
    assert caplog.text.count("mine is not opened again, and is tried again: can't allocate memory") == 1
