"""Models by hub name, against a hub of our own on the loopback."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch

import headwater as hw
from headwater.model import build_model, preset, save_model

COMMIT = "c0ffee" + "0" * 34
NOT_ASKED_FOR = "pytorch_model.bin"


class Hub(BaseHTTPRequestHandler):
    """As much of the hub's protocol as a download needs; `folder` is its one repository, `asked` its log."""

    folder: Path
    asked: list[str]

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, *, with_body: bool) -> None:
        self.asked.append(self.path)
        path = self.path.split("?")[0]
        files = sorted(self.folder.iterdir())
        headers = {"X-Repo-Commit": COMMIT}
        if path.startswith("/api/models/nile/mini/tree/"):
            body = json.dumps(
                [{"type": "file", "path": f.name, "size": f.stat().st_size, "oid": _etag(f)} for f in files]
            ).encode()
        elif path.startswith("/api/models/nile/mini"):
            listed = [{"rfilename": file.name} for file in files]
            body = json.dumps({"id": "nile/mini", "sha": COMMIT, "siblings": listed}).encode()
        elif path.startswith("/nile/mini/resolve/") and (self.folder / path.rsplit("/", 1)[1]).exists():
            file = self.folder / path.rsplit("/", 1)[1]
            body = file.read_bytes()
            headers["ETag"] = f'"{_etag(file)}"'
        else:
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.send_header("X-Error-Code", "RepoNotFound")
            self.end_headers()
            return
        self.send_response(200)
        for name, value in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(body)


def _etag(file: Path) -> str:
    return hashlib.sha1(file.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    tokenizer = hw.Tokenizer.train(
        ["the river runs to the sea. "], vocab_size=270, special_tokens=["<|endoftext|>"]
    )
    config = preset("gpt2-pico", vocabulary=tokenizer.vocabulary_size, context=32)
    save_model(build_model(config, seed=1), folder, tokenizer=tokenizer)
    (folder / NOT_ASKED_FOR).write_bytes(b"a pickle")
    return folder


@pytest.fixture
def hub(folder: Path) -> Iterator[tuple[str, list[str]]]:
    asked: list[str] = []
    handler = type("OneHub", (Hub,), {"folder": folder, "asked": asked})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _load(endpoint: str, home: Path, call: str) -> subprocess.CompletedProcess[str]:
    """The call in a process of its own: the library reads its settings when it is imported."""
    logits = "lm.logits(torch.tensor([[1, 2, 3]]))"
    program = f"import torch, headwater as hw\nlm = hw.load({call})\nprint({logits}.double().sum().item())"
    environment = os.environ | {"HF_ENDPOINT": endpoint, "HF_HOME": str(home), "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    environment.pop("HF_HUB_OFFLINE", None)
    return subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=600, check=False
    )


def test_a_hub_model_is_fetched_once_if_allowed(hub: tuple[str, list[str]], folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    endpoint, asked = hub
    before = _load(endpoint, tmp_path, "'nile/mini'")
    assert before.returncode != 0
    assert "--download, in Python download=True" in before.stderr
    assert not asked, "asked the network without leave"

    fetched = _load(endpoint, tmp_path, "'nile/mini', download=True")
    assert fetched.returncode == 0, fetched.stderr
    expected = hw.load(folder).logits(torch.tensor([[1, 2, 3]])).double().sum().item()
    assert float(fetched.stdout) == pytest.approx(expected, rel=1e-6)
    assert not any(NOT_ASKED_FOR in path for path in asked if "/resolve/" in path)

    asked.clear()
    again = _load(endpoint, tmp_path, "'nile/mini'")
    assert again.stdout == fetched.stdout
    assert not asked

    unknown = _load(endpoint, tmp_path, "'nile/delta', download=True")
    assert unknown.returncode != 0
    assert "nile/delta" in unknown.stderr
    assert "404" in unknown.stderr or "not found" in unknown.stderr.lower()


def test_commands_download_a_hub_model_only_with_download(hub: tuple[str, list[str]], tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    endpoint, asked = hub
    environment = os.environ | {"HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "hf")}
    environment.pop("HF_HUB_OFFLINE", None)

    def convert(*options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "headwater", "convert", "nile/mini", str(tmp_path / "model"), *options]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)

    refused = convert()
    assert refused.returncode == 1
    assert "fetch it: --download" in refused.stderr
    assert not asked
    done = convert("--download")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "model" / "config.json").is_file()
