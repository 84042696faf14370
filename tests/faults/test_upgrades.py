"""Fifty clients with short and long inputs, through upgrades of their models: no request is lost.

`HEADWATER_SOAK_SECONDS=600 pytest tests/faults/test_upgrades.py -s` is the campaign; the default is shorter. The
times of the short requests are printed, not asserted: they are the machine's.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

import httpx
import torch

import headwater as hw
from headwater.finetuning import FineTuned, Labels, TaskModel
from headwater.model import build_model, preset, save_model

SECONDS = float(os.environ.get("HEADWATER_SOAK_SECONDS", "30"))
CLIENTS = 50
UPGRADES = 6
WORD, TEXT = "river", "the river runs to the sea and a stone lies in the river. " * 40
SHORT: list[tuple[str, dict[str, Any]]] = [
    ("/classify", {"model": "classes", "input": WORD}),
    ("/v1/completions", {"model": "base", "prompt": "the river", "max_tokens": 4, "seed": 1, "ignore_eos": True}),
    ("/tokenize", {"model": "base", "prompt": WORD}),
    ("/v1/embeddings", {"model": "base", "input": WORD}),
]
LONG: list[tuple[str, dict[str, Any]]] = [
    ("/classify", {"model": "classes", "input": [TEXT] * 40}),
    ("/v1/embeddings", {"model": "base", "input": [" the river runs" * 20] * 200}),
    ("/v1/completions", {"model": "base", "prompt": ["the"] * 8, "max_tokens": 200, "ignore_eos": True}),
]


def make_models(folder: Path) -> dict[str, Path]:
    """A model and a classifier, with contexts in which a long row takes a while."""
    tokenizer = hw.Tokenizer.train([TEXT], vocab_size=280, special_tokens=["<|endoftext|>"]).with_task_tokens()
    config = preset("gpt2-nano", vocabulary=tokenizer.vocabulary_size, context=256)
    head = TaskModel(build_model(config, seed=2), "classify", 2, dropout=0.1)
    torch.nn.init.normal_(next(head.head.parameters()), generator=torch.Generator().manual_seed(3))
    (folder / "classes").mkdir()
    labels = Labels(target="class", names=["sea", "stone"])
    FineTuned.of(head.eval(), tokenizer, labels).save(folder / "classes")
    (folder / "base").mkdir()
    save_model(build_model(config, seed=1), folder / "base", tokenizer=tokenizer)
    return {name: folder / name for name in ("base", "classes")}


async def crowd(url: str, upgrade: Callable[[int], None], chance: random.Random) -> dict[str, Any]:
    """Let the clients ask until the time is over, and report what came of it."""
    until, outcomes = time.monotonic() + SECONDS, Counter[str]()
    times: list[float] = []
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=120, trust_env=False, limits=limits) as http:
        expected = (await http.post(SHORT[1][0], json=SHORT[1][1])).json()["choices"][0]["text"]

        async def ask(requests: list[tuple[str, dict[str, Any]]], pause: float) -> None:
            while time.monotonic() < until:
                path, body = chance.choice(requests)
                began = time.monotonic()
                try:
                    answer = await http.post(path, json=body)
                except httpx.HTTPError as error:
                    outcomes[f"lost: {type(error).__name__} {path}"] += 1
                    continue
                if answer.status_code == 429:
                    outcomes["told to wait"] += 1
                elif answer.status_code != 200:
                    outcomes[f"lost: {answer.status_code} {path} {answer.text[:80]}"] += 1
                elif "seed" in body and answer.json()["choices"][0]["text"] != expected:
                    outcomes["lost: another text"] += 1
                else:
                    outcomes["answered"] += 1
                    if requests is SHORT:
                        times.append(time.monotonic() - began)
                await asyncio.sleep(chance.uniform(0, 2 * pause))

        async def replace() -> None:
            for number in range(UPGRADES):
                await asyncio.sleep(SECONDS / (UPGRADES + 1))
                await asyncio.to_thread(upgrade, number)

        clients = [ask(SHORT, 1.0) for _ in range(CLIENTS - 5)] + [ask(LONG, 3.0) for _ in range(5)]
        await asyncio.gather(replace(), *clients)
        opened = re.findall(r"^headwater_model_opened_seconds.* (\S+)$", (await http.get("/metrics")).text, re.M)
    quantiles = statistics.quantiles(times, n=20)
    return {"outcomes": dict(outcomes), "p50": quantiles[9], "p95": quantiles[18], "opened": sorted(opened)}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_fifty_clients_lose_nothing_through_upgrades(
    tmp_path: Path, counted: Callable[[str, int], None], chosen: random.Random
) -> None:
    models = make_models(tmp_path)
    links = {name: tmp_path / f"current-{name}" for name in models}
    for name, folder in models.items():
        links[name].symlink_to(folder)
    command = [sys.executable, "-m", "headwater", "serve", "--port", "0", "--precision", "fp32"]
    command += [part for name, link in links.items() for part in ("--model", f"{name}={link}")]
    log = tmp_path / "log"
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored
    with log.open("wb") as stderr:
        process = subprocess.Popen(command, stderr=stderr, env={**os.environ, "OMP_NUM_THREADS": "1"})
    signal.signal(signal.SIGHUP, before)

    def upgrade(number: int) -> None:
        for name, folder in models.items():
            copy = shutil.copytree(folder, tmp_path / f"{name}-{number}")
            (tmp_path / "next").symlink_to(copy)
            (tmp_path / "next").replace(links[name])
        process.send_signal(signal.SIGHUP)

    try:
        found = None
        while found is None:
            assert process.poll() is None, log.read_text(encoding="utf-8")
            time.sleep(0.1)
            found = re.search(r"at (http://\S+:\d+) ", log.read_text(encoding="utf-8") + " ")
        result = asyncio.run(crowd(found[1], upgrade, chosen))
        process.send_signal(signal.SIGTERM)
        status = process.wait(90)
    finally:
        process.kill()
        process.wait()
    said = log.read_text(encoding="utf-8")
    print(result)
    counted("answers through upgrades", result["outcomes"]["answered"])
    assert not [name for name in result["outcomes"] if name.startswith("lost")], f"{result}\n{said[-4_000:]}"
    assert said.count("was opened again") >= UPGRADES, said
    assert status == 0
    assert "Traceback" not in said, said
