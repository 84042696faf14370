"""Makes corpora out of documents, as a stage would, and a web of our own to fetch from."""

from __future__ import annotations

import asyncio
import gzip
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from headwater.corpus import Document

MakeCorpus = Callable[[Sequence[Document]], Path]


class Web:
    """A web of our own on this machine: any host name that ends in .test, with everything that goes wrong.

    `visits` lists (host, path, begin, end, user agent) of every request, in the monotonic clock's seconds.
    """

    def __init__(self) -> None:
        self.visits: list[tuple[str, str, float, float, str]] = []
        self.port = 0
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        self._ready.wait(60)

    def url(self, host: str, path: str = "/") -> str:
        return f"http://{host}.test:{self.port}{path}"

    def page(self, host: str, path: str) -> bytes:
        return page_of(host, path).encode()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._connections: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.decode().split("\r\n")
            path = lines[0].split(" ")[1]
            headers = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
            host = headers["host"].partition(".")[0]
            begin = time.monotonic()
            try:
                await self._answer(writer, host, path)
            finally:
                self.visits.append((host, path, begin, time.monotonic(), headers.get("user-agent", "")))
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(task)
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, host: str, path: str) -> None:
        if path == "/robots.txt":
            status, body = ROBOTS.get(host, (404, ""))
            if host == "waking" and any(h == host for h, *_ in self.visits):
                status = 200
            return await self._send(writer, status, body.encode(), kind="text/plain")
        if path == "/slow":
            await asyncio.sleep(60)
        if path == "/endless":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n")
            while True:
                writer.write(b"<p>more</p>" * 5000)
                await writer.drain()
        if path == "/bomb":
            return await self._send(writer, 200, BOMB, extra="Content-Encoding: gzip\r\n")
        if path == "/packed":
            return await self._send(
                writer, 200, gzip.compress(b"<p>packed</p>"), extra="Content-Encoding: gzip\r\n"
            )
        if path == "/members":  # with bytes after the last
            story = page_of(host, path).encode()
            packed = gzip.compress(story[:100]) + gzip.compress(story[100:]) + b"z" * 100
            return await self._send(writer, 200, packed, extra="Content-Encoding: gzip\r\n")
        if path == "/late-bomb":
            body = gzip.compress(b"<p>") + BOMB
            return await self._send(writer, 200, body, extra="Content-Encoding: gzip\r\n")
        if path == "/cut":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 1000\r\n\r\n<p>only this")
            return await writer.drain()
        if path == "/cut-packed":  # whole as an answer, cut as what is packed in it
            packed = gzip.compress(page_of(host, path).encode())[:-40]
            return await self._send(writer, 200, packed, extra="Content-Encoding: gzip\r\n")
        if path == "/noise":
            writer.write(b"\x00\x01\x02 this is no HTTP\r\n\r\n")
            return await writer.drain()
        if path == "/flaky" and sum(h == host and p == path for h, p, *_ in self.visits) == 0:
            return await self._send(writer, 503, b"later")
        if path == "/later" and sum(h == host and p == path for h, p, *_ in self.visits) == 0:
            return await self._send(writer, 503, b"later", extra="Retry-After: 1\r\n")
        if path == "/tomorrow":
            return await self._send(writer, 429, b"tomorrow", extra="Retry-After: 86400\r\n")
        if path.startswith("/overlong"):  # more comes than the length says
            story = page_of(host, path).encode()
            head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(story) - 20}\r\n"
            head += "Connection: close\r\n" if path.endswith("closing") else ""
            writer.write(f"{head}\r\n".encode() + story)
            return await writer.drain()
        if path.startswith("/mislabelled"):
            page = page_of(host, path).replace("the old mill", "the old caf\u00e9").encode("latin-1")
            return await self._send(writer, 200, page, kind="text/html; charset=utf-8")
        if path in REDIRECTS:
            target = REDIRECTS[path].replace("PORT", str(self.port))
            return await self._send(writer, 302, b"", extra=f"Location: {target}\r\n")
        if path.startswith("/rows.jsonl"):
            return await self._send(writer, 200, b'{"text": "a row"}\n', kind="application/octet-stream")
        if path == "/photo":
            return await self._send(writer, 200, b"\xff\xd8", kind="image/jpeg")
        if path == "/gone":
            return await self._send(writer, 404, b"gone")
        if path == "/wordy":
            return await self._send(
                writer, 200, b"<p>wordy</p>", extra=f"Content-Security-Policy: {'x' * 20_000}\r\n"
            )
        if path == "/euckr":
            return await self._send(
                writer, 200, "<p>강물이 흐른다</p>".encode("euc-kr"), kind="text/html; charset=euc-kr"
            )
        await self._send(writer, 200, page_of(host, path).encode())

    async def _send(
        self, writer: asyncio.StreamWriter, status: int, body: bytes, kind: str = "text/html", extra: str = ""
    ) -> None:
        head = f"HTTP/1.1 {status} Some\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{extra}"
        writer.write(f"{head}Connection: close\r\n\r\n".encode("utf-8", "surrogateescape") + body)
        await writer.drain()


BOMB = gzip.compress(b"\0" * 50_000_000, 1)
ROBOTS = {
    "fenced": (200, "User-agent: *\nDisallow: /private\n\nUser-agent: headwater\nDisallow: /ours\n"),
    "dotless": (200, "\ufeffUser-agent: *\nDisallow: /private\n"),
    "broken": (500, "oops"),
    "waking": (503, "User-agent: *\nDisallow: /private\n"),  # the first time only
    "patient": (200, "User-agent: *\nCrawl-delay: 100\n"),
    "slowly": (200, "User-agent: *\nCrawl-delay: 0.4\n"),
}
REDIRECTS = {
    "/moved": "/story/moved",
    "/loop": "/loop",
    "/endless-loop": "/endless-loop?again",
    "/inward": "http://10.0.0.1/secret",
    "/sideways": "http://fenced.test:PORT/private/page",
    "/nowhere": "mailto:someone@example.com",
    **{f"/to-a-{i}": f"http://a.test:PORT/story/{i}" for i in range(4)},
    **{f"/closed-{i}": f"http://closed.test:1/{i}" for i in range(4)},
    **{f"/dead-{i}": f"http://missing.test:PORT/{i}" for i in range(5)},
    "/bent": "http://[bad",
    "/latin": "/caf\udce9",  # a byte that is not UTF-8
    "/dotted": "/story/../private/page",
    **{f"/step-{i}": f"/step-{i + 1}" for i in range(20)},
}
SENTENCES = [
    "The river comes down from the hills and runs past the old mill to the town.",
    "People who have lived there all their lives say that the water is not what it was.",
    "In the summer the children of the village swim below the bridge until it is dark.",
    "There was a flood in the year that the church was built, and nobody has forgotten it.",
    "The stones of the wall were brought from a quarry on the other side of the valley.",
    "When the fair was held, boats were tied to the bank as far as one could see.",
    "A ferry used to cross at this place, and the man who had it was known to be silent.",
    "It is said that the bell can be heard under the water on still nights.",
    "The road follows the bank for some miles and then turns to the north.",
    "Most of the fields that lie near it have been left to the grass and to the sheep.",
]


def page_of(host: str, path: str) -> str:
    """A page with a navigation and a story that belongs to its path, the same on hosts that are mirrors."""
    seed = path if host.startswith("mirror") else f"{host}{path}"
    generator = random.Random(seed)
    story = " ".join(f"{s[:-1]}, number {generator.randint(0, 999)}." for s in generator.sample(SENTENCES, 8))
    mark = "<p>From Wikipedia, the free encyclopedia</p>" if host.startswith("wiki") else ""
    return (
        "<html><head><title>Story</title></head><body><nav><a href='/'>Home</a> <a href='/about'>About</a></nav>"
        f"<article><h1>A story</h1>{mark}<p>{story}</p></article><footer>Privacy Terms</footer></body></html>"
    )


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    """The web of our own; names that end in .test lead to it."""
    original = socket.getaddrinfo

    def answer(host: Any, *arguments: Any, **named: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if name == "missing.test" or not (name.endswith(".test") or name[0].isdigit()):
            raise socket.gaierror(socket.EAI_NONAME, "no such host")
        return original("127.0.0.1" if name.endswith(".test") else name, *arguments, **named)

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    web = Web()
    yield web
    web.stop()
