"""The documented upload to the Hugging Face hub and back, with the real client and a local server in its place."""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from headwater.inference import LanguageModel
from headwater.model import build_model, preset
from headwater.tokenizer import Tokenizer

EXAMPLE = Path(__file__).parents[1] / "examples" / "other-tools" / "upload.sh"
COMMIT = "a" * 40


class Hub(BaseHTTPRequestHandler):
    """The part of the hub's HTTP interface that an upload and a download of one model use."""

    protocol_version = "HTTP/1.1"
    files: dict[str, bytes]

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def answer(self, body: bytes, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else body)

    def do_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        host, path = f"http://{self.headers['Host']}", self.path.partition("?")[0]
        if found := re.fullmatch(r"/YOUR_NAME/river/resolve/\w+/(.+)", path):
            content = self.files.get(found[1])
            self.answer(
                content or b"", 404 if content is None else 200, ETag=f'"{found[1]}"', X_Repo_Commit=COMMIT
            )
        elif path.startswith("/large/"):
            self.files[path] = body
            self.answer(b"{}")
        else:
            self.answer(json.dumps(self.reply(host, path, body)).encode(), Content_Type="application/json")

    do_GET = do_HEAD = do_POST = do_PUT = do_any

    def reply(self, host: str, path: str, body: bytes) -> Any:
        names = [name for name in self.files if not name.startswith("/")]
        if path.endswith("/preupload/main"):
            files = json.loads(body)["files"]
            for file in files:
                mode = "lfs" if file["path"].endswith(".safetensors") else "regular"
                file |= {"uploadMode": mode, "shouldIgnore": False}
            return {"files": files}
        if path.endswith("/objects/batch"):
            objects = json.loads(body)["objects"]
            for entry in objects:
                entry["actions"] = {"upload": {"href": f"{host}/large/{entry['oid']}"}}
            return {"transfer": "basic", "objects": objects}
        if path.endswith("/commit/main"):
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    self.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
                elif line["key"] == "lfsFile":
                    self.files[line["value"]["path"]] = self.files[f"/large/{line['value']['oid']}"]
        if "/tree/" in path:
            return [{"type": "file", "path": n, "size": len(self.files[n]), "oid": n} for n in names]
        url = f"{host}/YOUR_NAME/river"
        commit = {"commitUrl": f"{url}/commit/{COMMIT}", "commitOid": COMMIT}
        model = {"id": "YOUR_NAME/river", "sha": COMMIT, "siblings": [{"rfilename": name} for name in names]}
        return {"url": url} | model | commit


@pytest.fixture
def endpoint() -> Iterator[str]:
    Hub.files = {}
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.slow
def test_an_uploaded_model_is_downloaded_under_its_hub_name(endpoint: str, tokens: Path, tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(tokens / "tokenizer")
    config = preset("gpt2-pico", layers=1, width=16, heads=2, context=64, vocabulary=tokenizer.vocabulary_size)
    LanguageModel(build_model(config, seed=1), tokenizer).save(tmp_path / "quickstart/run/model")
    home = str(tmp_path / "home")
    hub = {"HF_ENDPOINT": endpoint, "HF_TOKEN": "hf_none", "HF_HOME": home, "HF_HUB_DISABLE_XET": "1"}

    def run(program: list[str], line: str, **changes: str) -> str:
        environment = os.environ | hub | changes
        done = subprocess.run(
            [*program, *shlex.split(line)[1:]], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    _, upload, generate = EXAMPLE.read_text(encoding="utf-8").splitlines()  # the first line asks for a token
    run([sys.executable, "-c", "from huggingface_hub.cli.hf import main; main()"], upload)
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= Hub.files.keys()
    headwater = [sys.executable, "-m", "headwater"]
    text = run(headwater, f"{generate} --seed 1 --max-tokens 5")
    offline = generate.replace(" --download", "")
    assert run(headwater, f"{offline} --seed 1 --max-tokens 5", HF_ENDPOINT="http://127.0.0.1:9") == text
