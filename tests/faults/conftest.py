"""A small world of Headwater's folders, every command that writes one, and a way to disturb them.

Commands run in children of one warm process (`warm.py`). Each trial has a folder of its own, from which the world
is seen under the same relative names, so that undisturbed and disturbed runs must leave the same bytes.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("zstandard")
pytest.importorskip("aiohttp")

import zstandard

HERE = Path(__file__).parent
SEED = int(os.environ.get("HEADWATER_FAULTS_SEED", "20180611"))
# Figures of time, and what follows from them, differ between any two runs.
_MEASURED = {"seconds", "tokens_per_second"}
_VOLATILE = {"metrics.jsonl", "results.json"}
_TINY = ["--set=model.width=16", "--set=model.layers=1", "--set=model.heads=2", "--set=context=16"]
_FIXED = ["--set=precision=fp32"]
_SHORT = ["--set=batch_size=4", "--set=validate_every=4", "--set=checkpoint_every=2", *_FIXED]

# One seed of two models, so that an experiment takes seconds.
_RECIPE = """
batch_size = 4
context = 16
steps = 4
learning_rate = 1e-3
precision = "fp32"
validate_every = 2
checkpoint_every = 2
"""
_SCALE = f"""
about = "for tests"
seeds = [1]
texts.books = {{ sources = ["texts"], tokenizer = "gpt1", vocabulary = 300, held_out = 0.3, validation = 0.1 }}
models.gpt1.text = "books"
models.lstm.text = "books"
experiments.gpt1_perplexity.windows = 4
[models.gpt1.recipe]
preset = "gpt1-nano"
model = {{ layers = 1, width = 16, heads = 2, context = 16 }}{_RECIPE}
[models.lstm.recipe]
preset = "lstm-nano"
model = {{ layers = 1, width = 16, units = 16, context = 16 }}{_RECIPE}
"""

# Every command that writes, from inside a trial's folder; `{web}` is the address of the fixture's pages.
COMMANDS: dict[str, list[str]] = {
    "links": ["corpus", "links", "../world/dump.zst", "--out", "out"],
    "fetch": [
        *("corpus", "fetch", "../world/links-of-web", "--out", "out"),
        *("--set=delay=0.0", "--set=allow_private=true", "--set=hosts=4"),
    ],
    "build": ["corpus", "build", "../world/texts", "../world/rows.jsonl", "--out", "out"],
    "build-pages": [
        *("corpus", "build", "../world/pages-0.warc", "../world/pages-1.warc", "../world/texts", "--out", "out"),
        *("--workers", "2", "--set=near_duplicates=true"),
    ],
    "tokenizer": ["tokenizer", "train", "../world/corpus", "--vocab-size", "300", "--out", "out"],
    "pack": [
        "pack",
        "../world/corpus",
        "--tokenizer",
        "../world/tokenizer",
        "--out",
        "out",
        "--validation",
        "0.1",
    ],
    "pretrain": [
        *("pretrain", "--preset", "gpt2-pico", "--tokens", "../world/tokens", "--out", "out"),
        *("--set=steps=16", *_TINY, *_SHORT),
    ],
    "finetune": [
        *("finetune", "--model", "../world/model", "--task", "classify", "--train", "../world/table.csv"),
        *("--out", "out", "--set=steps=6", "--set=batch_size=4", "--set=checkpoint_every=1", *_FIXED),
    ],
    "branch": [
        *("pretrain", "--from", "../world/run@16", "--tokens", "../world/tokens", "--out", "out", "--set=steps=8"),
        *("--set=learning_rate=1e-4", *_SHORT),
    ],
    "predict": ["predict", "--model", "../world/tuned", "../world/table.csv", "--out", "out.jsonl"],
    "evaluate": [
        *("evaluate", "--model", "../world/model", "--tasks", "heldout", "--data", "../world/tokens"),
        *("--out", "out", "--set=window=8"),
    ],
    "reproduce": [
        *("reproduce", "gpt1_perplexity", "--scale", "../world/tiny.toml", "--data", "../world", "--out", "out"),
    ],
    "convert": ["convert", "../world/model", "out", "--precision", "bf16"],
    "gguf": ["convert", "../world/model", "out.gguf"],
    "report": ["report", "../world/tokens", "../world/model", "../world/results", "--out", "out.html"],
}

# Commands that change a folder: the folder of the world that a trial copies to `out`, and the command.
IN_PLACE: dict[str, tuple[str, list[str]]] = {
    "lengthen": ("run", [*COMMANDS["pretrain"], "--set=steps=24"]),
}


@dataclass
class Ended:
    """How a command ended."""

    status: int
    output: str
    seconds: float

    @property
    def was_killed(self) -> bool:
        return self.status == -9

    def is_done(self, name: str) -> bool:
        """Whether the command has written its output; `predict` refuses a file that exists."""
        return self.status == 0 or (name == "predict" and "out.jsonl exists" in self.output)

    def is_told(self) -> bool:
        """Whether it failed as a user's error does: one paragraph, no traceback."""
        return self.status == 1 and "Error: " in self.output and "Traceback" not in self.output


class Warm:
    """The warm process: `start` a command, `wait` for it."""

    def __init__(self, cache: Path) -> None:
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "HEADWATER_CACHE": str(cache),
            "PYTHONWARNINGS": "ignore",
        }
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "warm.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self._number = 0
        self._ended: dict[int, Ended] = {}
        assert json.loads(self._line()) == {"ready": True}

    def start(self, arguments: list[str], folder: Path, **faults: Any) -> int:
        assert self._process.stdin is not None
        self._number += 1
        request = {"id": self._number, "arguments": arguments, "folder": str(folder), **faults}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._number

    def wait(self, number: int) -> Ended:
        while number not in self._ended:
            reply = json.loads(self._line())
            self._ended[reply["id"]] = Ended(reply["status"], reply["output"], reply["seconds"])
        return self._ended.pop(number)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


@dataclass
class Campaign:
    """Trials of commands over one world."""

    root: Path
    warm: Warm
    random: random.Random
    commands: dict[str, list[str]] = field(default_factory=lambda: COMMANDS)
    number: int = 0
    references: dict[str, tuple[dict[str, bytes], float]] = field(default_factory=dict)

    def run(self, name: str, folder: Path, **faults: Any) -> Ended:
        """One of COMMANDS, or a command line, in a trial's folder."""
        arguments = IN_PLACE[name][1] if name in IN_PLACE else COMMANDS[name]
        return self.warm.wait(self.warm.start(arguments, folder, **faults))

    def trial(self, name: str) -> Path:
        """A new folder next to the world."""
        self.number += 1
        folder = self.root / f"{self.number:04d}-{name}"
        folder.mkdir()
        if name in IN_PLACE:
            shutil.copytree(self.root / "world" / IN_PLACE[name][0], folder / "out")
        return folder

    def reference(self, name: str) -> tuple[dict[str, bytes], float]:
        """(what the command leaves undisturbed, its seconds), measured when first asked for."""
        if name not in self.references:
            folder = self.trial(name)
            ended = self.run(name, folder)
            assert ended.status == 0, ended.output
            second = self.trial(name)
            ended = self.run(name, second)
            assert snapshot(second) == snapshot(folder), f"{name} is not the same twice"
            self.references[name] = snapshot(folder), ended.seconds
        return self.references[name]

    def finish(self, name: str, folder: Path) -> None:
        """Run the command undisturbed: it must succeed and leave what it leaves in a new folder."""
        ended = self.run(name, folder)
        assert ended.is_done(name), f"{name} after its faults, seed {SEED}: {ended.output}"
        found, expected = snapshot(folder), self.reference(name)[0]
        different = sorted(path for path in found | expected if found.get(path) != expected.get(path))
        assert not different, f"{name} after its faults, seed {SEED}: {different}"


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, hidden ones too, without what differs between any two runs."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.name == ".lock":  # of a process that was killed
            continue
        name = path.relative_to(folder).as_posix()
        content = path.read_bytes()
        if path.name == "headwater.json":
            content = _plain_manifest(json.loads(content))
        elif path.suffix == ".json" and path.name in _VOLATILE:
            content = json.dumps(_without_measured(json.loads(content))).encode()
        elif path.name in _VOLATILE:
            rows = [json.loads(line) for line in content.splitlines()]
            content = json.dumps(_without_measured(rows)).encode()
        elif path.name == "state.json":
            content = json.dumps(_without_measured(json.loads(content))).encode()
        elif path.suffix == ".html":
            content = re.sub(rb"[0-9a-f]{16}</code>", b"</code>", content)  # identities, runs' among them
        found[name] = content
        if path.name.endswith(".warc.gz"):
            found |= {f"{name} {url}": body for url, body in _pages(path).items()}
            del found[name]
    return found


def _plain_manifest(manifest: dict[str, Any]) -> bytes:
    names = {name.rpartition("/")[2] for name in manifest["files"]}
    manifest.pop("checksum")
    for given in manifest["inputs"]:
        if given.get("kind") == "run":  # its journal holds seconds
            given.pop("identity")
    if names & (_VOLATILE | {"state.json"}) or any(name.endswith(".warc.gz") for name in names):
        manifest.pop("identity")
        volatile = (*_VOLATILE, "state.json", ".warc.gz", "headwater.json", "funnel.json")
        manifest["files"] = {n: f for n, f in manifest["files"].items() if not n.endswith(volatile)}
    return json.dumps(manifest, sort_keys=True).encode()


def _without_measured(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_measured(inner) for key, inner in value.items() if key not in _MEASURED}
    return [_without_measured(inner) for inner in value] if isinstance(value, list) else value


def _pages(path: Path) -> dict[str, bytes]:
    from headwater.corpus import read_pages

    notes: list[str] = []
    pages = {page.url: page.data for page in read_pages(path, notes)}
    assert notes == [], notes
    return pages


class _Story(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        time.sleep(0.003)
        if self.path == "/robots.txt":
            self.send_error(404)
            return
        body = f"<html><body><article><p>{self.path} {'The river ran on. ' * 40}</p></article></body></html>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="session")
def web() -> Iterator[str]:
    """The address of a host on this machine that answers every path with a page."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Story)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def commands() -> dict[str, list[str]]:
    """The command lines that are disturbed, by name."""
    return COMMANDS


@pytest.fixture
def in_place() -> dict[str, tuple[str, list[str]]]:
    """The commands that change a folder, by name."""
    return IN_PLACE


@pytest.fixture(scope="session")
def chosen() -> random.Random:
    """Random choices of tests that need no world."""
    return random.Random(SEED)


@pytest.fixture(scope="session")
def campaign(tmp_path_factory: pytest.TempPathFactory, sample_text: str, web: str) -> Iterator[Campaign]:
    """The world, made by the commands themselves, and the warm process."""
    if os.name != "posix":
        pytest.skip("needs fork and signals")
    root = tmp_path_factory.mktemp("faults")
    warm = Warm(root / "cache")
    try:
        found = Campaign(root, warm, random.Random(SEED))
        make_world(found, sample_text, web)
        yield found
    finally:
        warm.stop()


def make_world(campaign: Campaign, sample_text: str, web: str) -> None:
    """`world/`: sources, and one folder of each kind."""
    world = campaign.root / "world"
    world.mkdir()
    chosen = random.Random(3)
    sentences = sample_text.replace("\n<|endoftext|>\n", " ").split(". ")
    documents = [". ".join(sentences[start : start + 36]) + "." for start in range(0, len(sentences), 36)]
    (world / "texts").mkdir()
    for number, text in enumerate(documents):
        (world / "texts" / f"{number:02d}.txt").write_text(text)
    (world / "rows.jsonl").write_text("".join(json.dumps({"text": text[:700]}) + "\n" for text in documents))
    for number in range(2):
        (world / f"pages-{number}.warc").write_bytes(
            b"".join(_warc_record(f"http://a.org/{number}/{i}", text) for i, text in enumerate(documents))
        )
    (world / "tiny.toml").write_text(_SCALE)
    words = sample_text.split()
    rows = "".join(f"{' '.join(chosen.choices(words, k=8))},{chosen.choice(['sea', 'land'])}\n" for _ in range(60))
    (world / "table.csv").write_text("text,label\n" + rows.replace('"', ""))
    post = {"created_utc": 1_400_000_000, "subreddit": "rivers", "over_18": False}
    lines = [
        json.dumps(post | {"url": f"http://h{i % 97}.org/{i % 1500}", "score": i % 9}) + "\n" for i in range(4000)
    ]
    (world / "dump.zst").write_bytes(zstandard.compress("".join(lines).encode()))
    posts = [json.dumps(post | {"url": f"{web}/story/{i}", "score": 5}) + "\n" for i in range(40)]
    (world / "dump-of-web.jsonl").write_text("".join(posts))
    made = {
        "links": COMMANDS["links"],
        "links-of-web": ["corpus", "links", "dump-of-web.jsonl"],
        "corpus": ["corpus", "build", "texts"],
        "tokenizer": COMMANDS["tokenizer"],
        "tokens": COMMANDS["pack"],
        "run": COMMANDS["pretrain"],
        "model": ["convert", "run/model"],
        "tuned": COMMANDS["finetune"],
        "results": COMMANDS["evaluate"],
    }
    for name, arguments in made.items():
        local = [argument.replace("../world/", "") for argument in arguments]
        if "--out" in local:
            place = local.index("--out")
            del local[place : place + 2]
        command = [*local, name] if name == "model" else [*local, "--out", name]
        ended = campaign.warm.wait(campaign.warm.start(command, world))
        assert ended.status == 0, f"{name}: {ended.output}"


def _warc_record(url: str, text: str) -> bytes:
    page = f"<html><body><article><p>{text}</p></article></body></html>".encode()
    http = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + page
    header = (
        "WARC/1.0\r\nWARC-Type: response\r\nWARC-Date: 2017-05-06T07:08:09Z\r\nWARC-Record-ID: <urn:uuid:1>\r\n"
        f"WARC-Target-URI: {url}\r\nContent-Type: application/http; msgtype=response\r\n"
        f"Content-Length: {len(http)}\r\n\r\n"
    )
    return header.encode() + http + b"\r\n\r\n"


@pytest.fixture
def counted(record_property: Callable[[str, object], None]) -> Callable[[str, int], None]:
    """`counted("kills", 15)`: printed in sum over all tests at the end of the session."""

    def count(what: str, number: int) -> None:
        record_property(f"counted {what}", number)

    return count


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`command`: every one that writes."""
    if "command" in metafunc.fixturenames:
        metafunc.parametrize("command", list(COMMANDS))
