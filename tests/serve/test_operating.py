"""What the recipes of docs/operating.md say is so: their commands run, and their numbers fit the server's."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import httpx
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


# What the recipe does with systemd: the commands of the unit, without a supervisor.
SYSTEMCTL = """#!/bin/sh -eu
case "$1 ${2-}" in
"daemon-reload ") ;;
"reload nginx") kill -HUP "$(cat ROOT/nginx.pid)"; sleep 1 ;;
"enable --now")
    port=${3#headwater@}
    command=$(sed -n "s/^ExecStart=//p" ROOT/units/headwater@.service | sed "s/%i/$port/g")
    cd ROOT/srv
    $command > ROOT/out 2>> "ROOT/$port.log" &
    echo $! > "ROOT/$port.pid"
    until curl -fs "http://127.0.0.1:$port/health" > ROOT/health; do sleep 0.2; done ;;
"disable --now")
    port=${3#headwater@}
    kill "$(cat "ROOT/$port.pid")"
    while curl -fs "http://127.0.0.1:$port/health" > ROOT/health; do sleep 0.1; done ;; # as systemctl waits
*) exit 1 ;;
esac
"""
NGINX = """daemon off; pid ROOT/nginx.pid; error_log ROOT/nginx.log; events {}
http { client_body_temp_path ROOT/t1; proxy_temp_path ROOT/t2; fastcgi_temp_path ROOT/t3; uwsgi_temp_path ROOT/t4;
scgi_temp_path ROOT/t5; include ROOT/nginx/conf.d/*.conf; }"""


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Machine:
    """The recipe's folders below a temporary one, on free ports, with a `systemctl` of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.first, self.second, self.https = free_ports(3)
        for folder in ("srv/models", "srv/releases", "units", "nginx/conf.d", "bin", "files"):
            (root / folder).mkdir(parents=True)
        for file in RECIPES.iterdir():
            (root / "files" / file.name).write_text(self.here(file.read_text(encoding="utf-8")), encoding="utf-8")
        (root / "bin/systemctl").write_text(self.here(SYSTEMCTL), encoding="utf-8")
        (root / "bin/systemctl").chmod(0o755)
        (root / "nginx.conf").write_text(self.here(NGINX), encoding="utf-8")
        for version in ("1.0", "1.1"):
            (root / "srv" / version / "bin").mkdir(parents=True)
            program = f'#!/bin/sh\nexec {sys.executable} -m headwater "$@"\n'
            (root / "srv" / version / "bin/headwater").write_text(program, encoding="utf-8")
            (root / "srv" / version / "bin/headwater").chmod(0o755)

    def here(self, text: str) -> str:
        for name, other in {
            "/srv/headwater": f"{self.root}/srv",
            "/etc/systemd/system": f"{self.root}/units",
            "/etc/nginx": f"{self.root}/nginx",
            "/var/log/nginx": f"{self.root}",
            "ROOT": str(self.root),
            "chgrp headwater": "test -f",
            "nginx -t": f"nginx -t -q -c {self.root}/nginx.conf",
            "8000": str(self.first),
            "listen 443": f"listen {self.https}",
        }.items():
            text = text.replace(name, other)
        return text

    def run(self, script: str, *arguments: str, folder: str = "srv", **variables: str) -> str:
        path = f"{self.root}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "NO_PROXY": "127.0.0.1", "OMP_NUM_THREADS": "1", **variables}
        command = ["sh", "-eu", str(self.root / "files" / script), *arguments]
        ran = subprocess.run(
            command, cwd=self.root / folder, env=environment, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def stop(self) -> None:
        for pid in self.root.glob("*.pid"):
            with suppress(ProcessLookupError, ValueError):
                os.kill(int(pid.read_text()), signal.SIGTERM)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_the_recipe_is_followed_from_top_to_bottom(
    base_folder: Path, speakers_folder: Path, tmp_path: Path
) -> None:
    if not shutil.which("nginx"):
        pytest.skip("needs nginx: install Debian's package nginx")
    machine = Machine(tmp_path)
    machine.run("first_model.sh", str(base_folder), "small-1")
    shutil.copytree(speakers_folder, tmp_path / "srv/releases/small-2")
    old, new = (machine.run("add_key.sh", name).strip() for name in ("alice-1", "alice-2"))
    certificate = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=a"]
    certificate += ["-out", f"{tmp_path}/nginx/models.example.org.pem"]
    certificate += ["-keyout", f"{tmp_path}/nginx/models.example.org.key"]
    subprocess.run(certificate, check=True, capture_output=True)
    proxy: subprocess.Popen[bytes] | None = None
    ended, answers = threading.Event(), Counter[object]()
    try:
        machine.run("start.sh", folder="files")
        (tmp_path / "nginx/headwater.servers").write_text(f"server 127.0.0.1:{machine.first};")
        shutil.copy(tmp_path / "files/nginx.conf", tmp_path / "nginx/conf.d/headwater.conf")
        proxy = subprocess.Popen(["nginx", "-c", f"{tmp_path}/nginx.conf"])
        until(lambda: (tmp_path / "nginx.pid").is_file())
        machine.run("proxy.sh", folder="files")
        address, host = f"https://127.0.0.1:{machine.https}", {"host": "models.example.org"}

        def client(key: str) -> httpx.Client:
            headers = host | {"authorization": f"Bearer {key}"}
            return httpx.Client(base_url=address, headers=headers, verify=False, trust_env=False, timeout=60)

        def ask(key: str) -> None:
            with client(key) as site:
                while not ended.is_set():
                    body = {"prompt": "the river", "max_tokens": 20, "stream": True}
                    try:
                        answer = site.post("/v1/completions", json=body)
                        answers[answer.status_code if answer.text.endswith("[DONE]\n\n") else "cut"] += 1
                    except httpx.HTTPError as error:
                        answers[type(error).__name__] += 1

        clients = [threading.Thread(target=ask, args=(key,)) for key in (old, new, new)]
        for one in clients:
            one.start()
        with client(new) as site, client("wrong") as stranger, client(old) as former:
            assert stranger.get("/v1/models").status_code == 401
            assert site.get("/metrics").status_code == 404

            def serves(model: str) -> bool:
                count = site.post("/tokenize", json={"prompt": "<speaker1>"}).json()["count"]
                return bool((count == 1) == (model == "small-2"))

            for model in ("small-2", "small-1"):  # there and back
                machine.run("swap_model.sh", model, (tmp_path / f"{machine.first}.pid").read_text().strip())
                until(lambda model=model: serves(model))  # type: ignore[misc]
            used = machine.run("who_uses.sh", KEY=new)
            assert re.search(r'\{key="alice-1"\} \d+', used)
            with httpx.Client(base_url=f"http://127.0.0.1:{machine.first}", trust_env=False) as inside:
                _check_metrics(inside.get("/metrics", headers={"authorization": f"Bearer {new}"}).text)
            ports = str(machine.first), str(machine.second)
            machine.run("swap_program.sh", "1.1", ports[1], ports[0])
            assert site.get("/v1/models").status_code == 200
            machine.run("swap_program.sh", "1.0", ports[0], ports[1])
            assert site.get("/v1/models").status_code == 200
            ended.set()
            for one in clients:
                one.join()
            assert set(answers) == {200}, answers
            assert answers[200] > 20
            subprocess.run(["sed", "-i", "/^alice-1 /d", str(tmp_path / "srv/keys.txt")], check=True)
            assert former.get("/v1/models").status_code == 401
            assert site.get("/v1/models").status_code == 200
    finally:
        ended.set()
        machine.stop()
        if proxy is not None:
            proxy.wait(30)
    log = (tmp_path / "headwater.log").read_text()
    assert '"POST /v1/completions" 200' in log
    assert new not in log + (tmp_path / f"{machine.first}.log").read_text()


def test_the_unit_waits_for_the_longest_request() -> None:
    assert value("headwater.service", "ExecReload").endswith("kill -HUP $MAINPID")
    assert value("headwater.service", "KillSignal") == "SIGTERM"
    assert 2 * ServeConfig().seconds < float(value("headwater.service", "TimeoutStopSec"))
    assert float(value("nginx.conf", "proxy_read_timeout").rstrip("s")) >= 2 * ServeConfig().seconds
    assert int(value("nginx.conf", "client_max_body_size").rstrip("m")) << 20 >= ServeConfig().body_bytes


def _check_metrics(text: str) -> None:
    """Check that a server has the metrics that the page and the rules name."""
    names = set(re.findall(r"^# TYPE (\w+)", text, re.M))
    page = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8").partition("| metric | |")[2]
    assert set(re.findall(r"`(headwater_\w+)", page)) == names
    rules = set(re.findall(r"\b(headwater_\w+)", recipe("headwater.rules.yml")))
    assert {name.removesuffix("_bucket") for name in rules} <= names
    assert 'headwater_prompt_tokens_total{model="small",path="/tokenize"' not in text
    assert 'headwater_running{model="small",thread="compute"} 0.0' in text
    for line in text.splitlines():
        assert re.fullmatch(r'#.*|headwater_\w+(\{(\w+="[^"]*",?)+\})? [0-9.e+-]+', line), line


def test_a_page_works_below_the_prefix_of_a_proxy(base_folder: Path) -> None:
    """nginx removes the prefix and sends the name of the site."""
    site = value("nginx.conf", "server_name")
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
    of = '{model="classes",path="/classify"}'
    assert float(re.findall(rf"^headwater_prompt_tokens_total{of} ([\d.]+)$", text, re.M)[0]) > 3
    assert f"headwater_request_seconds_count{of} 1" in text
    assert f"headwater_active_requests{of} 0" in text
