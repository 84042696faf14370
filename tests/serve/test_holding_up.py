"""ServeConfig, keys, disconnections, and stopping."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from uvicorn.server import ServerState

from headwater.config import parse_settings
from headwater.errors import FolderError, UsageError
from headwater.serve import ServeConfig, serve
from headwater.serve.guard import Connection, Connections, bounded, requests
from headwater.serve.keys import Keys
from headwater.serve.server import logged

LONG: dict[str, Any] = {"prompt": "the", "max_tokens": 60, "min_tokens": 60, "n": 60}


@pytest.fixture(scope="module")
def narrow(base_folder: Path, tmp_path_factory: pytest.TempPathFactory, start_server: Any) -> Iterator[Any]:
    """One slot, a queue of eighty, a small body, two keys."""
    keys = tmp_path_factory.mktemp("keys") / "keys.txt"
    keys.write_text("# keys\nfirst\nsecond\n", encoding="utf-8")
    options = ["--max-concurrency", "1", "--api-key-file", str(keys)]
    settings = ["queue=80", "body_bytes=2000", "header_bytes=2000", "tokens=4000", "body_seconds=1"]
    running = start_server("--model", str(base_folder), *options, *(x for s in settings for x in ("--set", s)))
    yield running
    assert running.stop() == 0


@pytest.fixture(scope="module")
def keyed(narrow: Any) -> Iterator[httpx.Client]:
    with narrow.client("second") as client:
        yield client


def value(client: httpx.Client, name: str) -> float:
    lines = client.get("/metrics").text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def until(condition: Callable[[], bool]) -> None:
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it did not come about")


def test_a_key_is_needed_but_for_health_and_the_page(narrow: Any, keyed: httpx.Client) -> None:
    assert keyed.get("/v1/models").status_code == 200
    for key in (None, "third", "firs", "second2"):
        with narrow.client(key) as other:
            answer = other.get("/v1/models")
            assert answer.status_code == 401
            assert other.get("/health").status_code == 200
            assert other.get("/").status_code == 200


def test_a_full_queue_answers_with_retry_after(keyed: httpx.Client) -> None:
    statuses: list[httpx.Response] = []

    def ask() -> None:
        statuses.append(keyed.post("/v1/completions", json=LONG))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    codes = [answer.status_code for answer in statuses]
    assert codes.count(200) >= 1
    refused = [answer for answer in statuses if answer.status_code != 200]
    assert refused
    assert {answer.status_code for answer in refused} == {429}
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
    assert value(keyed, "headwater_rejected_total") == len(refused)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_its_slots(keyed: httpx.Client, narrow: Any, stream: bool) -> None:
    gone = value(keyed, "headwater_disconnected_total")
    host, port = narrow.url.removeprefix("http://").split(":")
    body = f'{{"prompt": "the", "max_tokens": 60, "min_tokens": 60, "n": 60, "stream": {str(stream).lower()}}}'
    with socket.create_connection((host, int(port))) as connection:
        head = f"POST /v1/completions HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer first\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall((head + body).encode())
        if stream:
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
        else:
            until(lambda: value(keyed, "headwater_running") == 1)
    until(lambda: value(keyed, "headwater_running") + value(keyed, "headwater_waiting") == 0)
    assert value(keyed, "headwater_disconnected_total") == gone + 1


def test_bounds_of_a_request(keyed: httpx.Client, narrow: Any) -> None:
    assert keyed.post("/v1/completions", json={"prompt": "x" * 3000}).status_code == 413
    many = keyed.post("/v1/completions", content=iter([b"x" * 1500, b"x" * 1500]))  # chunked, no length
    assert many.status_code == 413
    assert keyed.post("/v1/completions", json={"prompt": ["a"] * 100}).json()["error"]["param"] == "prompt"
    beyond = keyed.post("/v1/completions", json={**LONG, "n": 70})
    assert (beyond.status_code, beyond.json()["error"]["param"]) == (400, "max_tokens")
    host, port = narrow.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as slow:
        head = f"POST /classify HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer first\r\nContent-Length: 9"
        slow.sendall(f"{head}\r\n\r\n".encode())
        assert slow.recv(100).startswith(b"HTTP/1.1 408")
    with socket.create_connection((host, int(port)), timeout=20) as long:
        long.sendall(b"GET /health HTTP/1.1\r\na: " + b"x" * 3_000)
        assert long.recv(100).startswith(b"HTTP/1.1 400")


def test_headers_are_bounded() -> None:
    asyncio.run(_send_headers())


def test_no_answer_is_kept_for_a_client_that_does_not_read() -> None:
    part = bytes(16 << 20)  # more than the system's buffers hold

    async def give_up(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": part, "more_body": True})

    async def scenario() -> None:
        server, state = await _listen(ServeConfig(), give_up)
        with socket.create_connection(server.sockets[0].getsockname()) as client:
            async with server, asyncio.timeout(30):
                while not state.connections:
                    await asyncio.sleep(0)
                client.sendall(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
                while state.connections:
                    await asyncio.sleep(0)

    asyncio.run(scenario())


def test_a_body_of_too_many_chunks_is_refused() -> None:
    """Bytes in chunks of their own take long to parse: four clients made the others wait for seconds."""
    head = b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"

    async def scenario() -> None:
        server, _ = await _listen(ServeConfig())
        async with server, asyncio.timeout(60):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
            writer.write(head + b"1\r\nx\r\n" * 10_000 + b"0\r\n\r\n")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            assert await reader.readexactly(5) == b"10000"
            writer.write(head + b"1\r\nx\r\n" * 20_000)
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 400")
            writer.close()

    asyncio.run(scenario())


def test_no_connection_is_kept_whose_client_left() -> None:
    """A client that left during a large answer was counted as one that waits, for good."""
    ended = asyncio.Event()

    async def large(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(200):
            await send({"type": "http.response.body", "body": bytes(1 << 16), "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        await send({"type": "http.response.body", "body": b""})
        ended.set()

    async def scenario() -> None:
        connections = Connections(ServeConfig(), 100)
        server, _ = await _listen(ServeConfig(), large, connections=connections)
        async with server, asyncio.timeout(30):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
            writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            await reader.readexactly(100)
            writer.transport.abort()
            await ended.wait()
            await asyncio.sleep(0)
        assert (connections.count, list(connections.waiting)) == (0, [])

    asyncio.run(scenario())


async def _length(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the length of the body."""
    size, more = 0, True
    while more:
        message = await receive()
        size, more = size + len(message["body"]), message["more_body"]
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
    await send({"type": "http.response.body", "body": str(size).zfill(5).encode()})


async def _listen(
    config: ServeConfig, app: Any = _length, most: int = 100, connections: Connections | None = None
) -> tuple[asyncio.Server, ServerState]:
    """Start an application on a free port."""

    settings = uvicorn.Config(bounded(app, config), lifespan="off", log_level="critical")
    settings.load()
    state = ServerState()
    loop, connections = asyncio.get_running_loop(), connections or Connections(config, most)
    server = await loop.create_server(
        lambda: Connection(connections, config=settings, server_state=state, app_state={}),
        "127.0.0.1",
        0,
    )
    return server, state


async def _send_headers() -> None:
    server, state = await _listen(ServeConfig(header_bytes=2_000, body_seconds=600))
    port = server.sockets[0].getsockname()[1]
    async with server, asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        body = b"x" * 5_000  # a body beyond the bound is not a header
        for _ in range(2):
            writer.write(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5000\r\n\r\n" + body[:100])
            await writer.drain()
            await asyncio.sleep(0.01)
            writer.write(body[100:])
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            assert await reader.readexactly(5) == b"05000"
        answer = b""
        with contextlib.suppress(ConnectionError):
            writer.write(b"GET / HTTP/1.1\r\n")
            for _ in range(300):
                writer.write(b"a: " + b"b" * 90 + b"\r\n")
                await writer.drain()
                await asyncio.sleep(0)
            answer = await reader.read()
        assert answer[:12] in {b"", b"HTTP/1.1 400"}  # an answer to one who still sends may be lost
        while state.connections:  # the server closed it
            await asyncio.sleep(0.01)
        writer.close()
    # Headers that come to no end are given up when their time is over.
    server, _ = await _listen(ServeConfig(body_seconds=0.2))
    async with server, asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
        writer.write(b"GET / HTTP/1.1\r\nhost")
        assert await reader.read() == b""
        writer.close()


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_a_second_ctrl_c_ends_a_stream_without_a_traceback(base_folder: Path, start_server: Any) -> None:
    running = start_server("--model", str(base_folder), "--max-concurrency", "1")
    body = {**LONG, "n": 1, "stream": True, "logprobs": 5}
    with running.client() as client, client.stream("POST", "/v1/completions", json={**body, "n": 100}) as answer:
        next(answer.iter_lines())
        running.process.send_signal(signal.SIGINT)
        until(lambda: not _listens(running.url))
        running.process.send_signal(signal.SIGINT)
        running.process.wait(30)
    said = running.process.stderr.read()
    running.process.stderr.close()
    assert "Traceback" not in said
    assert len(said.splitlines()) <= 3


def _listens(url: str) -> bool:
    host, port = url.removeprefix("http://").split(":")
    try:
        socket.create_connection((host, int(port))).close()
    except OSError:
        return False
    return True


def test_a_request_ends_when_its_time_is_over(base_folder: Path, start_server: Any) -> None:
    running = start_server("--model", str(base_folder), "--set", "seconds=0.001")
    try:
        with running.client() as client:
            answer = client.post("/v1/completions", json=LONG)
            assert (answer.status_code, answer.json()["error"]["code"]) == (504, "timeout")
            streamed = client.post("/v1/completions", json={**LONG, "stream": True}).text
            assert '"code":"timeout"' in streamed
            until(lambda: value(client, "headwater_running") == 0)
    finally:
        assert running.stop() == 0


def test_stopping_finishes_what_runs(base_folder: Path, start_server: Any) -> None:
    running = start_server("--model", str(base_folder))
    with running.client() as client:
        body = {**LONG, "stream": True}
        with client.stream("POST", "/v1/completions", json=body) as answer:
            lines = answer.iter_lines()
            next(lines)
            stopper = threading.Thread(target=running.stop)
            stopper.start()
            assert [line for line in lines if line][-1] == "data: [DONE]"
        stopper.join()
    assert running.process.returncode == 0


def test_an_address_that_cannot_be_served_is_one_line(base_folder: Path, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        command = [sys.executable, "-m", "headwater", "serve", "--model", str(base_folder)]
        command += ["--port", str(taken.getsockname()[1])]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "cannot be bound" in ran.stderr
    assert len(ran.stderr.strip().splitlines()) == 1
    with pytest.raises(UsageError, match="API keys"):
        serve(ServeConfig(models=[str(base_folder)], host="0.0.0.0"))
    with pytest.raises(FolderError, match="a model folder"):
        serve(ServeConfig(models=[str(tmp_path)], port=0))
    with pytest.raises(FolderError, match="is a file; expected a model folder"):
        serve(ServeConfig(models=[str(_keys(tmp_path))], port=0))
    with pytest.raises(UsageError, match="two models"):
        serve(ServeConfig(models=[str(base_folder)] * 2, port=0))
    for host in ("no such host", "0.0.0..0"):
        with pytest.raises(UsageError, match="cannot be used"):
            serve(ServeConfig(models=[str(base_folder)], host=host, api_key_file=_keys(tmp_path)))


def _keys(folder: Path) -> Path:
    (folder / "keys").write_text("# of a colleague\n\n  secret \n#old\n", encoding="utf-8")
    return folder / "keys"


def test_only_whole_keys_are_accepted(tmp_path: Path) -> None:
    keys = Keys(_keys(tmp_path))
    assert keys.name_of({b"authorization": "Bearer secret"})
    assert keys.name_of({b"authorization": "bearer  secret"})
    assert keys.name_of({b"x-api-key": "secret"})
    assert not any(
        keys.name_of({b"authorization": given})
        for given in ("Bearer secre", "Bearer ", "", "Basic secret", "secret", "Bearer é", "Bearer #old")
    )
    with pytest.raises(UsageError, match="tokens"):
        ServeConfig.build({"token": 5})


def test_keys_follow_their_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = _keys(tmp_path)
    keys = Keys(path)

    def accepted(*given: str) -> list[bool]:
        return [keys.name_of({b"authorization": f"Bearer {key}"}) is not None for key in given]

    assert accepted("secret", "new") == [True, False]
    path.write_text("new\n", encoding="utf-8")
    assert accepted("secret", "new") == [False, True]
    path.write_text("no key here\nother\n", encoding="utf-8")  # of a wrong line nothing is accepted
    assert accepted("new", "no", "here", "other") == [False, False, False, True]
    assert "no key here" not in caplog.text
    assert "has 1 line that cannot be a key" in caplog.text
    for ended in ("", "# other\n"):
        path.write_text(ended, encoding="utf-8")
        assert accepted("other", "# other", "") == [False] * 3
        path.write_text("other\n", encoding="utf-8")
        assert accepted("other") == [True]
    path.unlink()
    assert accepted("other") == [False]
    assert "no API key is accepted" in caplog.text
    path.write_text("third\n", encoding="utf-8")
    assert accepted("other", "third") == [False, True]


def test_requests_are_counted_and_logged_by_the_name_of_their_key(
    base_folder: Path, tmp_path: Path, start_server: Any
) -> None:
    path = tmp_path / "keys"
    path.write_text("alice-1 first-key\nalice-2 second-key\nsecret\n", encoding="utf-8")
    running = start_server("--model", str(base_folder), "--api-key-file", str(path), "--log")
    for key in ("first-key", "second-key", "second-key", "secret", "alice-1", ""):
        with running.client(key) as client:
            client.get("/v1/models")
    with running.client("secret") as client:
        text = client.get("/metrics").text
    for name, count in (("alice-1", 1), ("alice-2", 2), ("unnamed", 2)):
        assert f'headwater_key_requests_total{{key="{name}"}} {count}.0' in text
    assert [line[-1] for line in log_of(running)] == [
        "alice-1",
        "alice-2",
        "alice-2",
        "unnamed",
        "-",
        "-",
        "unnamed",
    ]
    assert "first-key" not in text


def test_a_key_is_withdrawn_by_a_file_of_the_same_size_and_time(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("first\n", encoding="utf-8")
    then = path.stat()
    keys = Keys(path)
    assert keys.name_of({b"x-api-key": "first"})
    path.write_text("other\n", encoding="utf-8")
    os.utime(path, ns=(then.st_atime_ns, then.st_mtime_ns))
    assert not keys.name_of({b"x-api-key": "first"})
    assert keys.name_of({b"x-api-key": "other"})


def _ask(url: str, request: str) -> bytes:
    """Return all that is answered to a request over a connection of its own."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(request.replace("\n", "\r\n").encode())
        parts = []
        while part := connection.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


POST = "POST /tokenize HTTP/{version}\nHost: 127.0.0.1\nContent-Type: application/json\nContent-Length: 19\n"


def test_an_offer_of_http_2_is_ignored(server: Any) -> None:
    """Java's client and curl --http2 send it with every request."""
    offer = "Connection: Upgrade, HTTP2-Settings, close\nUpgrade: h2c\nHTTP2-Settings: AAMAAABkAAQAAP__\n"
    answer = _ask(server.url, POST.format(version="1.1") + offer + '\n{"prompt": "river"}')
    assert answer.startswith(b"HTTP/1.1 200"), answer
    assert b'"count":' in answer


def test_a_request_of_two_lengths_is_refused(server: Any) -> None:
    lengths = "Content-Length: 5\nTransfer-Encoding: chunked"
    answer = _ask(server.url, f"POST /classify HTTP/1.1\nHost: 127.0.0.1\n{lengths}\n\n0\n\n")
    assert answer.startswith(b"HTTP/1.1 400")
    assert b"exclude each other" in answer


def test_a_client_of_http_1_0_gets_no_chunks(server: Any) -> None:
    body = '{"prompt": "the", "max_tokens": 3, "stream": true}'
    head = f"POST /v1/completions HTTP/1.0\nContent-Type: application/json\nContent-Length: {len(body)}\n\n"
    header, _, rest = _ask(server.url, head + body).partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in header.lower()
    assert rest.startswith(b"data: {")
    assert rest.endswith(b"data: [DONE]\n\n")


def test_silent_connections_make_room_for_new_ones() -> None:
    async def scenario() -> None:
        server, state = await _listen(ServeConfig(), most=3)
        address = server.sockets[0].getsockname()
        silent = [await asyncio.open_connection(*address) for _ in range(3)]
        async with server, asyncio.timeout(30):
            for _ in range(5):
                reader, writer = await asyncio.open_connection(*address)
                writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
                assert (await reader.readline()).startswith(b"HTTP/1.1 200")
                silent.append((reader, writer))
            assert len(state.connections) <= 3
            assert await silent[0][0].read() == b""  # the one that waited longest was closed
            for _, writer in silent:
                writer.close()

    asyncio.run(scenario())


def test_a_connection_that_is_answered_is_not_closed() -> None:
    go = asyncio.Event()

    async def wait(scope: Any, receive: Any, send: Any) -> None:
        await go.wait()
        await _length(scope, receive, send)

    async def scenario() -> None:
        server, _ = await _listen(ServeConfig(), wait, most=1)
        address = server.sockets[0].getsockname()
        async with server, asyncio.timeout(30):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            other, closed = await asyncio.open_connection(*address)
            assert (await other.readline()).startswith(b"HTTP/1.1 503")
            go.set()
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            writer.close()
            closed.close()

    asyncio.run(scenario())


# The first program of a terminal, which is its standard input.
IN_A_TERMINAL = """
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
os.execv(sys.executable, [sys.executable, "-m", "headwater", *sys.argv[1:]])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX shell")
def test_a_server_ends_when_its_terminal_is_closed(base_folder: Path) -> None:
    terminal, own = os.openpty()
    command = [sys.executable, "-c", IN_A_TERMINAL, "serve", "--port", "0", "--model", str(base_folder)]
    process = subprocess.Popen(command, stdin=own, stdout=own, stderr=own, start_new_session=True)
    os.close(own)
    try:
        said = b""
        while b" at http://" not in said:
            said += os.read(terminal, 1_000)
        process.send_signal(signal.SIGHUP)  # while the terminal is there, it only opens changed models
        time.sleep(0.5)
        assert process.poll() is None, said
        os.close(terminal)
        process.wait(60)
    finally:
        process.kill()


FORGED = {"X-Forwarded-For": "9.9.9.9 GET /admin 200", "X-Request-Id": "mine"}


def log_of(running: Any) -> list[list[str]]:
    """End a server and return the words of its log's lines, without their time."""
    running.process.send_signal(signal.SIGTERM)
    return [
        line.split()[2:] for line in running.process.communicate(timeout=60)[1].splitlines() if " GET " in line
    ]


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
@pytest.mark.parametrize("nohup", [False, True])
def test_a_hangup_opens_a_changed_model_and_loses_nothing(
    base_folder: Path, speakers_folder: Path, tmp_path: Path, start_server: Any, nohup: bool
) -> None:
    link = tmp_path / "current"
    link.symlink_to(base_folder)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if nohup else signal.SIG_DFL)
    running = start_server("--model", f"mine={link}")
    signal.signal(signal.SIGHUP, before)

    def has_speakers() -> bool:
        return bool(other.post("/tokenize", json={"prompt": "<speaker1>"}).json()["count"] == 1)

    try:
        with running.client() as client, running.client() as other:
            assert not has_speakers()
            with client.stream("POST", "/v1/completions", json={**LONG, "stream": True}) as answer:
                lines = answer.iter_lines()
                next(lines)
                (tmp_path / "next").symlink_to(speakers_folder)
                (tmp_path / "next").replace(link)
                running.process.send_signal(signal.SIGHUP)
                until(has_speakers)
                assert [line for line in lines if line][-1] == "data: [DONE]"
            # If the folder cannot be opened, the old model answers until a later signal.
            link.unlink()
            running.process.send_signal(signal.SIGHUP)
            until(lambda: client.get("/health").json()["stale"] == ["mine"])
            assert client.get("/health").json()["status"] == "stale"
            assert 'headwater_model_stale{model="mine"} 1' in client.get("/metrics").text
            assert client.post("/v1/completions", json={"prompt": "the", "max_tokens": 1}).status_code == 200
            link.symlink_to(base_folder)
            running.process.send_signal(signal.SIGHUP)
            until(lambda: not has_speakers())
            assert client.get("/health").json()["status"] == "ok"
    finally:
        assert running.stop() == 0


def test_log_has_the_address_of_the_connection(base_folder: Path, start_server: Any) -> None:
    running = start_server("--model", str(base_folder), "--log", "--allow-host", "models.example")
    with running.client() as client:
        assert client.get("/v1/models", headers={**FORGED, "Host": "models.example"}).status_code == 200
        refused = client.get("/v1/models", headers={"Host": "other.example"})
        assert refused.status_code == 403
        assert "--allow-host other.example" in refused.json()["error"]["message"]
    lines = log_of(running)
    assert [line[:5] for line in lines] == [
        ["127.0.0.1", "GET", "/v1/models", "-", "200"],
        ["127.0.0.1", "GET", "/v1/models", "-", "403"],
    ]
    assert lines[0][-2:] == ["mine", "-"]


def test_a_server_leaves_no_handler_of_its_log() -> None:
    before = (list(requests.handlers), requests.level)
    for _ in range(2):
        with logged(True):
            assert len(requests.handlers) == len(before[0]) + 1
    assert (requests.handlers, requests.level) == before


@pytest.mark.parametrize(
    ("option", "name"),
    [
        ("allow_hosts", "https://example.org"),
        ("allow_origins", "example.org"),
    ],
)
def test_a_name_that_would_never_match_is_refused(base_folder: Path, option: str, name: str) -> None:
    with pytest.raises(UsageError, match="would never match"):
        ServeConfig.build({option: [name]})


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX shell")
def test_a_server_needs_neither_stdout_nor_stdin(base_folder: Path) -> None:
    command = f"{sys.executable} -m headwater serve --port 0 --model {base_folder} >&- <&-"
    process = subprocess.Popen(["sh", "-c", f"exec {command}"], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    line = next(line for line in process.stderr if "http://" in line)
    url = line[line.index("http://") :].split()[0]
    with httpx.Client(base_url=url, trust_env=False) as client:
        assert client.get("/health").status_code == 200
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()


@pytest.mark.parametrize("given", ["example.org", "https://example.org/", "https://example.org/a", "a b"])
def test_an_origin_is_a_scheme_and_a_host(base_folder: Path, given: str) -> None:
    with pytest.raises(UsageError, match="expected an origin"):
        ServeConfig.build({"allow_origins": [given]})


@pytest.mark.parametrize("given", ["inf", "nan", "Infinity"])
def test_a_limit_is_a_finite_number(given: str) -> None:
    with pytest.raises(UsageError, match="finite number"):
        ServeConfig.build(parse_settings([f"seconds={given}"]))
