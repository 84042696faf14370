"""What the recipes of docs/operating.md say is so: their commands run, and their numbers fit the server's."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from model_server import opened
from starlette.testclient import TestClient

from headwater.serve import ServeConfig
from headwater.serve.api import create_app

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "examples" / "operating"


def recipe(name: str) -> str:
    return (RECIPES / name).read_text(encoding="utf-8")


def value(name: str, key: str) -> str:
    """The value of the only line `KEY=VALUE`, `KEY VALUE` or `KEY VALUE;` of a recipe."""
    (found,) = re.findall(rf"^\s*{key}[= ](.*?);?$", recipe(name), re.M)
    return str(found)


def until(condition: Callable[[], bool]) -> None:
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it did not come about")


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_a_unit_starts_reloads_and_stops(
    base_folder: Path,
    speakers_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    start_server: Any,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("models").mkdir()
    Path("models/small").symlink_to(base_folder)
    Path("keys.txt").write_text("secret\n", encoding="utf-8")
    unit = "headwater.service"
    program, command, *options = shlex.split(value(unit, "ExecStart"))
    assert (Path(program).name, command) == ("headwater", "serve")
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    running = start_server(*options)
    signal.signal(signal.SIGHUP, before)
    try:
        running.url = running.url.replace("0.0.0.0", "127.0.0.1")
        with running.client("secret") as client, running.client() as stranger:
            assert stranger.get("/v1/models").status_code == 401
            # The container's check of its health, on this server's port.
            (check,) = re.findall(r"^HEALTHCHECK CMD (.*)$", recipe("server.dockerfile"), re.M)
            _, *arguments = json.loads(check.replace("127.0.0.1:8000", running.url.removeprefix("http://")))
            environment = {**os.environ, "no_proxy": "127.0.0.1"}
            subprocess.run([sys.executable, *arguments], check=True, env=environment)
            # An upgrade, whose last line is what the unit does to reload.
            assert shlex.split(recipe("upgrade.sh").splitlines()[-1])[:2] == ["kill", "-HUP"]
            assert value(unit, "ExecReload").endswith("kill -HUP $MAINPID")
            upgrade = ["sh", "-eu", str(RECIPES / "upgrade.sh"), str(speakers_folder), str(running.process.pid)]
            subprocess.run(upgrade, check=True)
            prompt = {"prompt": "<speaker1>"}
            until(lambda: client.post("/tokenize", json=prompt).json()["count"] == 1)
            _check_metrics(client.get("/metrics").text)
        assert value(unit, "KillSignal") == "SIGTERM"
        running.process.send_signal(signal.SIGTERM)
        assert 2 * ServeConfig().seconds < float(value(unit, "TimeoutStopSec"))
    finally:
        assert running.stop() == 0


def _check_metrics(text: str) -> None:
    """Check that a server has the metrics that the page and the rules name."""
    names = set(re.findall(r"^# TYPE (\w+)", text, re.M))
    page = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8").partition("| metric | |")[2]
    assert set(re.findall(r"`(headwater_\w+)", page)) == names
    rules = set(re.findall(r"\b(headwater_\w+)", recipe("headwater.rules.yml")))
    assert {name.removesuffix("_bucket") for name in rules} <= names
    assert 'headwater_prompt_tokens_total{path="/tokenize"' not in text
    assert 'headwater_running{model="small",thread="compute"} 0' in text
    for line in text.splitlines():
        assert re.fullmatch(r'#.*|headwater_\w+(\{(\w+="[^"]*",?)+\})? [0-9.e+-]+', line), line


def test_a_container_runs_the_server_without_rights() -> None:
    text = recipe("server.dockerfile")
    assert re.findall(r"^USER (.*)$", text, re.M) == ["headwater"]
    (command,) = re.findall(r"^CMD (.*)$", text, re.M)
    options = {word for word in json.loads(command) if word.startswith("--")}
    unit = {word for word in shlex.split(value("headwater.service", "ExecStart")) if word.startswith("--")}
    assert options < unit  # which are tried above


def test_a_page_works_below_the_prefix_of_a_proxy(base_folder: Path) -> None:
    """nginx removes the prefix and sends the name of the site."""
    site = value("nginx.conf", "server_name")
    assert f"--allow-host {site}" in recipe("behind_nginx.sh")
    assert value("nginx.conf", "proxy_pass") == "http://headwater/"
    assert float(value("nginx.conf", "proxy_read_timeout").rstrip("s")) >= 2 * ServeConfig().seconds
    assert int(value("nginx.conf", "client_max_body_size").rstrip("m")) << 20 >= ServeConfig().body_bytes
    models = opened(f"small={base_folder}", slots=2)
    with TestClient(create_app(models, ServeConfig(allow_hosts=[site])), base_url=f"http://{site}") as client:
        page = client.get("/").text
        links = re.findall(r'(?:href|src)="([^"#]+)"', page)
        assert links
        assert not [link for link in links if link.startswith("/") or ":" in link]
        scripts = [
            client.get(f"/page/{name.name}").text for name in (ROOT / "src/headwater/serve/page").glob("*.js")
        ]
        assert not re.findall(r'(?:call|request|fetch)\(["`]/', "".join(scripts))
        with client.stream("POST", "/v1/completions", json={"prompt": "the", "stream": True}) as answer:
            assert answer.headers["x-accel-buffering"] == "no"
            assert next(answer.iter_lines()).startswith("data: {")


def test_metrics_of_a_classifier_have_tokens_and_time(task_folders: dict[str, Path]) -> None:
    models = opened(f"classes={task_folders['classify']}", slots=2)
    with TestClient(create_app(models, ServeConfig()), base_url="http://127.0.0.1") as client:
        assert client.post("/classify", json={"input": ["the river", "a stone"]}).status_code == 200
        text = client.get("/metrics").text
    of = '{path="/classify",model="classes"}'
    assert float(re.findall(rf"^headwater_prompt_tokens_total{of} (\d+)$", text, re.M)[0]) > 3
    assert f"headwater_request_seconds_count{of} 1" in text
    assert f"headwater_active_requests{of} 0" in text
