"""The engine's thread: a step that fails ends what runs, by name, and nothing else."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.inference import DecodeRow, LanguageModel, PromptChunk, Request
from headwater.serve.problems import Problem
from headwater.serve.threads import Worker


class Failing:
    """A runner whose next step fails when asked to."""

    def __init__(self, runner: Any) -> None:
        self._runner, self.fails = runner, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    def step(self, steps: Sequence[DecodeRow], block: PromptChunk | None) -> Any:
        if self.fails:
            self.fails = False
            raise MemoryError("no memory for this step")
        return self._runner.step(steps, block)


def checked(lm: LanguageModel, **options: Any) -> tuple[Request, int]:
    request = lm.request("the river", **options)
    return request, request.length(64, lm.tokenizer.vocabulary_size)


async def tokens_of(worker: Worker, requests: list[tuple[Request, int]]) -> list[int]:
    with worker.open(requests) as events:
        return [event.token async for _, event in events if event.token is not None]


def test_a_failed_step_ends_what_runs_and_the_worker_continues(
    base_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        lm = hw.load(base_folder, slots=2)
        expected = lm.submit("the river", max_tokens=20, seed=3).wait().tokens
        runner = Failing(lm.engine.runner)
        lm.engine.runner = runner  # type: ignore[assignment]
        worker = Worker(lm.engine, 4, "test")
        requests = [checked(lm, max_tokens=20, min_tokens=20, seed=3, sample=s) for s in range(4)]
        runner.fails = True
        with pytest.raises(Problem) as raised:
            await tokens_of(worker, requests)
        assert raised.value.status == 500
        while worker.held:
            await asyncio.sleep(0.01)
        assert await tokens_of(worker, [checked(lm, max_tokens=20, seed=3)]) == expected
        with worker.open(requests):
            assert worker.held == 4
        while worker.held:
            await asyncio.sleep(0.01)
        with worker.open(requests[:3]), pytest.raises(Problem) as full, worker.open(requests):
            pass
        assert full.value.status == 429
        await asyncio.to_thread(worker.stop)
        assert lm.engine.load == (0, 0)

    asyncio.run(scenario())
    assert "a step of the engine failed" in caplog.text


class Held:
    """A runner that waits before the step of the second token."""

    def __init__(self, runner: Any) -> None:
        self._runner, self._tokens = runner, 0
        self.waits, self.go = threading.Event(), threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    def step(self, steps: Sequence[DecodeRow], block: PromptChunk | None) -> Any:
        self._tokens += bool(steps)
        if self._tokens == 2:
            self.waits.set()
            assert self.go.wait(30)
        return self._runner.step(steps, block)


def test_an_abandoned_request_ends_before_its_next_token(base_folder: Path) -> None:
    async def scenario() -> None:
        lm = hw.load(base_folder, slots=2)
        runner = Held(lm.engine.runner)
        lm.engine.runner = runner  # type: ignore[assignment]
        worker = Worker(lm.engine, 4, "test")
        with worker.open([checked(lm, max_tokens=50, min_tokens=50)]) as events:
            await anext(events)
            assert await asyncio.to_thread(runner.waits.wait, 30)
            (generation,) = worker._running
        runner.go.set()
        while worker.held:
            await asyncio.sleep(0.01)
        assert (generation.finished, len(generation.tokens)) == ("cancelled", 2)
        await asyncio.to_thread(worker.stop)

    asyncio.run(scenario())


def test_a_request_that_the_engine_refuses_frees_its_slots(
    base_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        lm = hw.load(base_folder, slots=2)
        worker = Worker(lm.engine, 4, "test")
        requests = [checked(lm, max_tokens=4, seed=3, sample=sample) for sample in range(3)]
        submit, taken = lm.engine.submit, []

        def second_fails(*arguments: Any) -> Any:
            taken.append(arguments)
            if len(taken) == 2:
                raise MemoryError("no memory for this request")
            return submit(*arguments)

        with monkeypatch.context() as patched:
            patched.setattr(lm.engine, "submit", second_fails)
            async with asyncio.timeout(30):
                with pytest.raises(MemoryError):
                    await tokens_of(worker, requests)
                while worker.held:
                    await asyncio.sleep(0.01)
        assert len(await tokens_of(worker, requests[:1])) == 4
        await asyncio.to_thread(worker.stop)

    asyncio.run(scenario())


UNSTOPPED = """
import asyncio, atexit, sys
import headwater as hw
from headwater.serve.served import Worker


async def scenario():
    lm = hw.load(sys.argv[1], slots=2)
    # Called after what the worker registers later.
    atexit.register(lambda: print("alive" if worker._thread.is_alive() else "joined", lm.engine.load))
    worker = Worker(lm.engine, 4, "test")
    running = worker.open([(lm.request("the river", max_tokens=60, ignore_end=True), 60)])
    await anext(running.__enter__())
    return worker, running


worker, running = asyncio.run(scenario())
"""


def test_the_interpreters_end_joins_a_running_worker(base_folder: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", UNSTOPPED, str(base_folder)], capture_output=True, text=True, timeout=600
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "joined (0, 0)\n", "")
