"""The checks before every request (host, key, size), its id, and an answer to every failure.

The order matters. A request counts against the limit of open requests only after its key is accepted, and paths
that need no key do not read a body, so a client without a key cannot occupy a slot. The whole body is read,
within its limits of size and time, before the request is parsed. Every exception is answered in the API's format.

A slash at the end of a path is ignored, without a redirect, which would name a host and lose a proxy's prefix.

Before a request there is its `Connection`: uvicorn's, with limits on the size of headers, the number of
connections, slow headers, and answers that nobody reads. The application that `bounded` returns tells it when a
request begins and ends. A waiting connection is closed when its time is over, or earlier if a new client needs its
slot. If the application gives up an answer, uvicorn closes the connection after the client has read the buffer,
which may be never; `bounded` aborts it.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

import h11
from starlette.requests import ClientDisconnect, Request
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from headwater.serve.answers import reported
from headwater.serve.config import HOST_NAME, ServeConfig, is_loopback
from headwater.serve.keys import Keys
from headwater.serve.metrics import Metrics
from headwater.serve.problems import Problem, too_busy

logger = logging.getLogger(__name__)
requests = logging.getLogger("headwater.serve.requests")  # one line each, at level INFO
# Paths that need no key: the page must load to ask for one, and load balancers read /health.
_OPEN = ("/page/", "/health", "/openapi.json")

_HOST = re.compile(rf"({HOST_NAME.pattern})(:[0-9]{{0,5}})?")
_REQUEST_ID = re.compile(r"[!-~]{1,128}")  # that a client may choose
_MOST_PARTS = 16 * 1024  # of a body: a client may send each byte as a chunk of its own
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


@dataclass
class Connections:
    """The open connections of a server, at most `most`; those that wait for a request, the longest first."""

    config: ServeConfig
    most: int
    count: int = 0
    waiting: dict[Connection, None] = field(default_factory=dict)


class Parser(h11.Connection):
    """h11's parser, with a limit on the parts of a body."""

    _parts = 0

    def next_event(self) -> Any:
        """See h11. Raises RemoteProtocolError for too many parts."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._parts = 0
        elif isinstance(event, h11.Data):
            self._parts += 1
            if self._parts > _MOST_PARTS:
                raise h11.RemoteProtocolError(f"a body of more than {_MOST_PARTS:,} parts")
        return event


class Connection(H11Protocol):
    """One client's connection."""

    def __init__(self, connections: Connections, *, app_state: dict[str, Any], **options: Any) -> None:
        super().__init__(app_state={**app_state, "connection": self}, **options)
        self.conn = Parser(h11.SERVER, connections.config.header_bytes)
        self._all, self._answering = connections, False
        self._deadline: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Note that the headers of a request are complete."""
        self._answering = True
        self._all.waiting.pop(self, None)
        self._rest()

    def end(self) -> None:
        """Note that the request is answered: what arrives from now on is the next one."""
        self._answering = False
        if not self.transport.is_closing():
            self._all.waiting[self] = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See asyncio.Protocol."""
        waiting, is_full = self._all.waiting, self._all.count >= self._all.most
        self._all.count += 1
        super().connection_made(transport)
        if is_full and not waiting:
            transport.write(_FULL)
            transport.close()
            return
        if is_full:
            longest = next(iter(waiting))
            del waiting[longest]
            longest.transport.abort()
        waiting[self] = None
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._all.count -= 1
        self._all.waiting.pop(self, None)
        self._rest()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if self._deadline is None and not self._answering:
            self._await_headers()
        try:
            super().data_received(data)
        except h11.ProtocolError:  # wrong bytes after the answer has begun, so that an error cannot be sent
            self.transport.abort()

    def _await_headers(self) -> None:
        self._deadline = self.loop.call_later(self._all.config.body_seconds, self.transport.close)

    def _rest(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def bounded(app: ASGIApp, config: ServeConfig) -> ASGIApp:
    """Return the application, bounded in the time to send each part of an answer. For a `Connection`."""

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        connection: Connection = scope["state"]["connection"]
        connection.begin()
        started = complete = False

        async def write(message: Message) -> None:
            nonlocal started, complete
            started = True
            # `send` waits for a client that reads slowly; a timer for each token would cost more than its JSON.
            async with asyncio.timeout(config.seconds) if connection.flow.write_paused else nullcontext():
                await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                complete = True
                connection.end()  # now: the next request may begin before the application returns

        with suppress(TimeoutError):
            await app(scope, receive, write)
        if started and not complete:
            connection.transport.abort()
            await asyncio.sleep(0)  # connection_lost comes first, else uvicorn logs an error

    return run


class Guard:
    """ASGI middleware. On loopback it refuses other host names (DNS rebinding), except `config.allow_hosts`."""

    def __init__(self, app: ASGIApp, *, config: ServeConfig, keys: Keys | None, metrics: Metrics) -> None:
        self.app, self.config, self.keys, self.metrics = app, config, keys, metrics
        self.hosts = {"127.0.0.1", "localhost", *(host.lower() for host in config.allow_hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.monotonic(), 0
        scope["path"] = scope["path"].rstrip("/") or "/"
        identity = _request_id(scope)

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", identity)]
            await send(message)

        try:
            await self._pass_on(scope, receive, counted)
        except Problem as problem:
            if not status:
                await reported(problem)(scope, receive, counted)
        except (ConnectionError, ClientDisconnect, TimeoutError):  # the client left, or reads too slowly
            status = status or 499
        except Exception:
            logger.exception("a request failed: %s %s", scope["method"], scope["path"])
            if not status:
                failed = Problem(500, "The server failed on this request.", code="internal_error")
                await reported(failed)(scope, receive, counted)
        finally:
            path, model = _route(scope), scope.get("model", "")
            seconds = time.monotonic() - began
            self.metrics.requests.labels(path, model, status).inc()
            self.metrics.seconds.labels(path, model).observe(seconds)
            client = (scope.get("client") or "-")[0]
            line = (client, scope["method"], path, model or "-", status, seconds, identity.decode())
            requests.info("%s %s %s %s %d %.3f s %s %s", *line, scope.get("key", "-"))

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the application answer a request with its body. Raises Problem for one that is refused."""
        is_open = scope["path"] == "/" or scope["path"].startswith(_OPEN)
        self._check(scope, is_open)
        if is_open:
            await self.app(scope, _replay(b"", receive), send)
            return
        if self.metrics.open >= self.config.requests:
            raise too_busy()
        self.metrics.open += 1
        try:
            body = await self._body(scope, receive)
            scope["body_bytes"] = len(body)
            await self.app(scope, _replay(body, receive), send)
        finally:
            self.metrics.open -= 1

    def _check(self, scope: Scope, is_open: bool) -> None:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        host = _host(scope)
        if self.config.is_local and host is not None and host.lower() not in self.hosts and not is_loopback(host):
            message = f"This server only answers to this machine's own names. Start it with --allow-host {host}"
            raise Problem(403, message, code="wrong_host")
        if self.keys is not None and not is_open:
            name = self.keys.name_of(headers)
            if name is None:
                raise Problem(
                    401,
                    "No valid API key. Send it as: Authorization: Bearer KEY",
                    code="invalid_api_key",
                    headers={"WWW-Authenticate": "Bearer"},
                )
            scope["key"] = name
            self.metrics.key_requests.labels(name).inc()
        if b"content-length" in headers and b"transfer-encoding" in headers:  # a proxy may read another body
            message = "Content-Length and Transfer-Encoding exclude each other."
            raise Problem(400, message, headers={"Connection": "close"})
        length = headers.get(b"content-length", "0")
        if length.isdecimal() and int(length[:20]) > self.config.body_bytes:
            raise self._too_large()

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        if scope["method"] not in {"POST", "PUT", "PATCH"}:
            return b""
        parts, size = [], 0
        try:
            async with asyncio.timeout(self.config.body_seconds):
                async for part in Request(scope, receive).stream():
                    parts.append(part)
                    size += len(part)
                    if size > self.config.body_bytes:
                        raise self._too_large()
                return b"".join(parts)
        except TimeoutError:
            seconds = f"{self.config.body_seconds:g} s"
            raise Problem(
                408, f"The body did not arrive within {seconds}.", headers={"Connection": "close"}
            ) from None

    def _too_large(self) -> Problem:
        most = f"{self.config.body_bytes:,} bytes"
        return Problem(413, f"The body is larger than {most}.", code="too_large", headers={"Connection": "close"})


def _route(scope: Scope) -> str:
    """Return the path of the route of a request, also of one that was refused before; "other" without a route."""
    routes = getattr(scope.get("app"), "routes", ())
    matching = (route for route in routes if route.matches(scope)[0] is not Match.NONE)
    return str(getattr(scope.get("route") or next(matching, None), "path", "other"))


def _host(scope: Scope) -> str | None:
    """Return the host that a request is sent to, None if it may lack one; raise Problem for a wrong header."""
    hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
    if not hosts and scope.get("http_version") == "1.0":
        return None
    match = _HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
    if match is None:
        raise Problem(400, "A request needs exactly one Host header, with the name of a host.", code="wrong_host")
    return match[1]


def _request_id(scope: Scope) -> bytes:
    """Return the client's X-Request-Id, or a new one."""
    chosen = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
    return chosen if _REQUEST_ID.fullmatch(chosen.decode("latin-1")) else f"req_{secrets.token_hex(16)}".encode()


def _replay(body: bytes, receive: Receive) -> Receive:
    replayed = False

    async def again() -> Message:
        nonlocal replayed
        if replayed:
            return await receive()
        replayed = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
