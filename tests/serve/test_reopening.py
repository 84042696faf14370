"""Models that are opened again while they are served."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from model_server import opened

from headwater.serve import ServeConfig, opening
from headwater.serve.completions import complete, stream
from headwater.serve.inspection import inspect
from headwater.serve.opening import reopened_models
from headwater.serve.schema import CompletionRequest, EmbeddingRequest, InspectRequest
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
    monkeypatch.setattr(opening, "_REQUESTS_CHECKED_EVERY", 0.01)
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
        encode_texts = old.lm.encode_texts

        def wait(texts: Any) -> Any:
            begun.set()
            assert go.wait(60)
            return encode_texts(texts)

        monkeypatch.setattr(old.lm, "encode_texts", wait)

        async def ask() -> Any:
            with OpenRequest(server, "mine", {}) as request:
                return await embed(request, EmbeddingRequest(input="the river"))

        async with reopened_models(server):
            asked = asyncio.create_task(ask())
            await asyncio.to_thread(begun.wait, 60)
            copied(base_folder, tmp_path / "m")
            server.reload()
            await until(lambda: server.find("mine") is not old)
            await asyncio.sleep(0.1)  # several looks: it is not stopped yet
            go.set()
            assert (await asked)["usage"]["total_tokens"] > 0
            await until(lambda: old.worker is not None and old.worker._stopping)
            new_worker = server.find("mine").worker
            assert new_worker is not None
            assert not new_worker._stopping
        server.stop()

    asyncio.run(scenario())
    # The weights are packed in a thread of their own; the first time before anything is served.
    assert allocated[1:] == ["opening_0"]


def test_a_failed_reopening_is_logged_until_a_later_one_succeeds(
    base_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        server = Server(
            opened(f"mine={copied(base_folder, tmp_path / 'm')}", slots=2),
            ServeConfig(),
        )
        server.start()
        old = server.find("mine")
        reopen = old.reopen

        def fail(slots: int) -> Served | None:
            raise RuntimeError("can't allocate memory")  # as torch has it

        old.reopen = fail
        async with reopened_models(server):
            copied(base_folder, tmp_path / "m")
            server.reload()
            await until(lambda: bool(old.stale))
            assert 'headwater_model_stale{model="mine"} 1' in server.metrics.text().decode()
            old.reopen = reopen
            server.reload()
            await until(lambda: server.find("mine") is not old)
            assert not server.find("mine").stale
            # A folder that has not changed is not opened again.
            new = server.find("mine")
            server.reload()
            await asyncio.sleep(0.1)
            assert server.find("mine") is new
        server.stop()

    asyncio.run(scenario())
    assert caplog.text.count("mine is not opened again: can't allocate memory") == 1


def test_a_replaced_model_is_freed_without_a_collection(base_folder: Path, tmp_path: Path) -> None:
    """Every reopening kept the old model in a cycle of references, and full collections almost never come."""

    async def scenario() -> None:
        server = Server(opened(f"mine={copied(base_folder, tmp_path / 'm')}", slots=2), ServeConfig())
        server.start()
        async with reopened_models(server):
            for _ in range(2):  # the model of the start, and one that was opened again
                with OpenRequest(server, "mine", {}) as request:
                    body = CompletionRequest(prompt=["the river", "a"], max_tokens=4, n=2, echo=True, logprobs=2)
                    assert (await complete(request, body))["choices"]
                    async for _chunk in stream(
                        request, CompletionRequest(prompt="the", max_tokens=2, stream=True)
                    ):
                        pass
                    await embed(request, EmbeddingRequest(input="the river"))
                    await inspect(request, InspectRequest(prompt="the river", continuation=2))
                    del request
                served = server.find("mine")
                parts = (
                    served,
                    served.worker,
                    served.engine,
                    served.lm.network,
                    served.scorer,
                    served.lm.tokenizer,
                )
                references = {type(part).__name__: weakref.ref(part) for part in parts}
                del served, parts
                copied(base_folder, tmp_path / "m")
                server.reload()
                await until(lambda references=references: not any(one() for one in references.values()))  # type: ignore[misc]
        server.stop()

    gc.collect()
    gc.disable()
    try:
        asyncio.run(scenario())
    finally:
        gc.enable()


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_files_that_are_overwritten_change_no_answer(
    base_folder: Path,
    masked_folder: Path,
    task_folders: dict[str, Path],
    tmp_path: Path,
    start_server: Callable[..., Any],
) -> None:
    """`cp new served/` mixed both models, or ended the server with SIGBUS."""
    named = {"base": base_folder, "blanks": masked_folder, "classes": task_folders["classify"]}
    folders = {name: copied(folder, tmp_path / name) for name, folder in named.items()}
    running = start_server(*(f"--model={name}={folder}" for name, folder in folders.items()))
    calls: list[tuple[str, dict[str, Any]]] = [
        (
            "/v1/completions",
            {"prompt": "the river", "max_tokens": 4, "temperature": 0, "logprobs": 2, "echo": True},
        ),
        ("/v1/embeddings", {"model": "base", "input": "the river"}),
        ("/inspect", {"prompt": "the river", "details": True}),
        ("/v1/fill", {"input": "the [MASK] is blue"}),
        ("/v1/embeddings", {"model": "blanks", "input": "the river"}),
        ("/classify", {"input": "the river runs", "explain": True}),
    ]
    varying = {"id": "", "created": 0}
    try:
        with running.client() as client:

            def answers() -> list[dict[str, Any]]:
                return [client.post(path, json=body).json() | varying for path, body in calls]

            before = answers()
            assert not [answer for answer in before if "error" in answer]
            for folder in folders.values():
                for file in folder.glob("*.safetensors"):
                    data = bytearray(file.read_bytes())
                    data[-2_000:] = bytes(2_000)
                    with file.open("r+b") as overwritten:
                        overwritten.write(data)
            assert answers() == before
            for folder in folders.values():
                for file in folder.glob("*.safetensors"):
                    os.truncate(file, 0)
            assert answers() == before
            running.process.send_signal(signal.SIGHUP)  # they cannot be opened; the old models answer
            for _ in range(600):
                if len(client.get("/health").json()["stale"]) == 3:
                    break
                time.sleep(0.05)
            assert sorted(client.get("/health").json()["stale"]) == ["base", "blanks", "classes"]
            assert answers() == before
    finally:
        assert running.stop() == 0
