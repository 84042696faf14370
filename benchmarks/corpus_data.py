"""Make the data of benchmarks/corpus.py: texts with near copies, WARC files, marked pages, a web server."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hashlib
import json
import random
import re
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

_SENTENCE = re.compile(r"[^.!?]+[.!?]+")
RATES = (0.002, 0.005, 0.01, 0.02, 0.04)  # of words changed in a copy


def make_texts(files: list[Path], count: int, sentences: tuple[int, int] = (4, 18)) -> Iterator[str]:
    """Yield documents of random sentences of some files, every second one followed by copies with changed words.

    They are sentences because a million passages of a few megabytes would overlap.
    """
    generator = random.Random(1)
    pool = [
        " ".join(sentence.split())
        for file in files
        for sentence in _SENTENCE.findall(file.read_text(encoding="utf-8"))
        if 8 <= len(sentence.split()) <= 50
    ]
    words = " ".join(pool[:20_000]).split()
    made = 0
    while made < count:
        piece = " ".join(generator.choices(pool, k=generator.randint(*sentences))).split()
        yield " ".join(piece)
        made += 1
        for _ in range(min(generator.choice([0, 0, 1, 2]), count - made)):
            rate = generator.choice(RATES)
            yield " ".join(w if generator.random() > rate else generator.choice(words) for w in piece)
            made += 1


def write_rows(texts: Iterable[str], source: Path, rows: int = 5000) -> None:
    """Write texts into JSON Lines files of `rows`."""
    source.mkdir()
    handle = None
    for number, text in enumerate(texts):
        if number % rows == 0:
            if handle is not None:
                handle.close()
            handle = (source / f"{number:09d}.jsonl").open("w", encoding="utf-8")
        assert handle is not None
        handle.write(json.dumps({"text": text}) + "\n")
    if handle is not None:
        handle.close()


def read_texts(source: Path) -> Iterator[str]:
    for path in sorted(source.iterdir()):
        with path.open(encoding="utf-8") as handle:
            for line in handle:
                yield json.loads(line)["text"]


def read_marked(folder: Path) -> Iterator[tuple[str, bytes, str]]:
    """Yield (kind of page, HTML, text that people marked) of a data set in one of two layouts.

    Scrapinghub's article-extraction-benchmark (MIT): `ground-truth.json`, `html/*.html.gz`. WCXB
    (web-content-extraction-benchmark, CC BY 4.0), folder `dev` or `test`: `ground-truth/*.json`, `html/*.html.gz`.
    """
    whole = folder / "ground-truth.json"
    if whole.is_file():
        for name, entry in json.loads(whole.read_text(encoding="utf-8")).items():
            yield "article", _page(folder, name), entry["articleBody"]
        return
    for path in sorted((folder / "ground-truth").glob("*.json")):
        entry = json.loads(path.read_text(encoding="utf-8"))
        kind = entry["_internal"]["page_type"]["primary"]
        yield kind, _page(folder, path.stem), entry["ground_truth"].get("main_content") or ""


def _page(folder: Path, name: str) -> bytes:
    return gzip.decompress((folder / "html" / f"{name}.html.gz").read_bytes())


def read_chunks(checkout: Path) -> Iterator[tuple[str, bytes, list[str], list[str]]]:
    """Yield (URL, HTML, wanted chunks, unwanted chunks) of the set in a checkout of adbar/trafilatura."""
    tests = checkout / "tests"
    for url, entry in json.loads((tests / "evaldata.json").read_text(encoding="utf-8")).items():
        places = (tests / folder / entry["file"] for folder in ("cache", "eval"))
        yield url, next(path for path in places if path.is_file()).read_bytes(), entry["with"], entry["without"]


def read_readability(checkout: Path) -> Iterator[tuple[str, bytes, str]]:
    """Yield (name, HTML, HTML of the expected article) of the test pages in a checkout of mozilla/readability."""
    for folder in sorted((checkout / "test" / "test-pages").iterdir()):
        expected = (folder / "expected.html").read_text(encoding="utf-8")
        yield folder.name, (folder / "source.html").read_bytes(), expected


def half_of(key: str) -> str:
    """Return the half that a page belongs to: "tuning", on which the rules were chosen, or "held out"."""
    return "held out" if hashlib.sha256(key.encode()).digest()[0] % 2 else "tuning"


def write_warc(pages: list[tuple[bytes, str]], path: Path, count: int) -> tuple[int, int]:
    """Write `count` pages (HTML, charset), repeated, as a WARC file. Return their number and bytes."""
    size = 0
    with path.open("wb") as handle:
        for number in range(count):
            data, charset = pages[number % len(pages)]
            kind = f"text/html; charset={charset}" if charset else "text/html"
            block = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n\r\n".encode() + data
            head = (
                f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Date: 2020-01-01T00:00:00Z\r\nWARC-Record-ID: "
                f"<urn:uuid:{number:032x}>\r\nWARC-Target-URI: http://a.org/{number}\r\nContent-Type: "
                f"application/http; msgtype=response\r\nWARC-Identified-Payload-Type: text/html\r\n"
                f"Content-Length: {len(block)}\r\n\r\n"
            )
            handle.write(gzip.compress(head.encode() + block + b"\r\n\r\n"))
            size += len(data)
    return count, size


@contextlib.contextmanager
def loopback(latency: float = 0.0) -> Iterator[int]:
    """Yield the port of a web server that answers every request with the same story after `latency` seconds."""
    body = b"<html><body><article><p>" + b"The river ran on. " * 100 + b"</p></article></body></html>"
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    missing = b"HTTP/1.1 404 None\r\nContent-Length: 0\r\n\r\n"
    ready: dict[str, Any] = {}
    started = threading.Event()

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if latency:
                    await asyncio.sleep(latency)
                writer.write(missing if b" /robots.txt " in head else answer)
                await writer.drain()
        writer.close()

    async def serve() -> None:
        server = await asyncio.start_server(connection, "127.0.0.1", 0, backlog=1000)
        ready.update(
            port=server.sockets[0].getsockname()[1], loop=asyncio.get_running_loop(), stop=asyncio.Event()
        )
        started.set()
        await ready["stop"].wait()
        server.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    started.wait()
    yield ready["port"]
    ready["loop"].call_soon_threadsafe(ready["stop"].set)
    thread.join(5)
