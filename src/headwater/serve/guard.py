"""The checks before every request (host, key, size), its id, and an answer to every failure.

The order matters. A request counts against the limit of open requests only after its key is accepted, and paths
that need no key do not read a body, so a client without a key cannot occupy a place. The whole body is read,
within its limits of size and time, before the request is parsed. Every exception is answered in the API's format.

A path with a slash at its end is the path without it: nothing is redirected, since a redirect names a host, and
loses the prefix that a proxy removed.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from bisect import bisect_left
from collections.abc import Sequence
from ipaddress import ip_address

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headwater.serve.answers import reported
from headwater.serve.limits import Keys, Limits
from headwater.serve.metrics import BOUNDS, Metrics
from headwater.serve.problems import Problem, too_busy

logger = logging.getLogger(__name__)
requests = logging.getLogger("headwater.serve.requests")  # one line each, at level INFO
# Paths that need no key: the page must load to ask for one, and load balancers read /health.
_OPEN = ("/page/", "/health", "/openapi.json")

# A host name, an IPv4 address or an IPv6 address in brackets, and a port.
HOST_NAME = re.compile(r"\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~!$&'()*+,;=%-]+")
_HOST = re.compile(rf"({HOST_NAME.pattern})(:[0-9]{{0,5}})?")
_REQUEST_ID = re.compile(r"[!-~]{1,128}")  # that a client may choose
_MOST_PARTS = 16_384
# An unterminated string also matches, to the end of the body: a match that could fail would be tried again from
# each later quotation mark, in quadratic time.
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)


class Guard:
    """ASGI middleware.

    local: the server is bound to loopback and refuses other host names (DNS rebinding), except `hosts`.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        limits: Limits,
        keys: Keys | None,
        metrics: Metrics,
        local: bool,
        hosts: Sequence[str] = (),
    ) -> None:
        self.app, self.limits, self.keys, self.metrics, self.local = app, limits, keys, metrics, local
        self.hosts = {host.lower() for host in hosts}

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

        is_open = scope["path"] == "/" or scope["path"].startswith(_OPEN)
        holds = False
        try:
            try:
                self._check(scope, is_open)
                body = b""
                if not is_open:
                    if self.metrics.open >= self.limits.requests:
                        raise too_busy(1)
                    holds = True
                    self.metrics.open += 1
                    body = await self._body(scope, receive)
                    scope["body_bytes"] = len(body)
                    _require_few_parts(body)
                await self.app(scope, _replay(body, receive), counted)
            except Problem as problem:
                if not status:
                    await reported(problem)(scope, receive, counted)
            except ConnectionError:
                status = status or 499
            except Exception:
                logger.exception("a request failed: %s %s", scope["method"], scope["path"])
                if not status:
                    failed = Problem(500, "The server failed on this request.", code="internal_error")
                    await reported(failed)(scope, receive, counted)
        finally:
            self.metrics.open -= holds
            path = getattr(scope.get("route"), "path", "other")
            seconds, model = time.monotonic() - began, scope.get("model", "")
            self.metrics.requests[path, model, status] += 1
            self.metrics.seconds[path, model, bisect_left(BOUNDS, seconds)] += 1
            self.metrics.seconds_sum[path, model] += seconds
            told = (_client(scope), scope["method"], path, model or "-", status, seconds, identity.decode())
            requests.info("%s %s %s %s %d %.3f s %s", *told)

    def _check(self, scope: Scope, is_open: bool) -> None:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        host = _host(scope)
        if self.local and host is not None and not is_loopback(host) and host.lower() not in self.hosts:
            message = f"This server only answers to this machine's own names. Start it with --allow-host {host}"
            raise Problem(403, message, code="wrong_host")
        if self.keys is not None and not is_open and not self.keys.accept(headers):
            raise Problem(
                401,
                "No valid API key. Send it as: Authorization: Bearer KEY",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )
        length = headers.get(b"content-length", "0")
        if length.isdecimal() and int(length[:20]) > self.limits.body_bytes:
            raise self._too_large()

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        if scope["method"] not in {"POST", "PUT", "PATCH"}:
            return b""
        parts, size = [], 0
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ConnectionAbortedError
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > self.limits.body_bytes:
                        raise self._too_large()
                    if not message.get("more_body"):
                        return b"".join(parts)
        except TimeoutError:
            seconds = f"{self.limits.body_seconds:g} s"
            raise Problem(
                408, f"The body did not arrive within {seconds}.", headers={"Connection": "close"}
            ) from None

    def _too_large(self) -> Problem:
        most = f"{self.limits.body_bytes:,} bytes"
        return Problem(413, f"The body is larger than {most}.", code="too_large", headers={"Connection": "close"})


def _require_few_parts(body: bytes) -> None:
    """Raise Problem for JSON of many lists and objects: reading it would stop the event loop for long."""
    parts = body.count(b"[") + body.count(b"{")
    # UTF-16 and UTF-32, which have zero bytes, also have the byte of a quotation mark in other characters.
    if parts > _MOST_PARTS and b"\0" not in body:
        outside = _STRING.sub(b"", body)
        parts = outside.count(b"[") + outside.count(b"{")
    if parts > _MOST_PARTS:
        raise Problem(400, f"The body has {parts:,} lists and objects; the most is {_MOST_PARTS:,}.")


def _host(scope: Scope) -> str | None:
    """Return the host that a request is sent to, None if it may lack one; raise Problem for a wrong header."""
    hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
    if not hosts and scope.get("http_version") == "1.0":
        return None
    match = _HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
    if match is None:
        raise Problem(400, "A request needs exactly one Host header, with the name of a host.", code="wrong_host")
    return match[1]


def is_loopback(host: str) -> bool:
    """Return whether an address or host name is this machine's loopback."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _client(scope: Scope) -> str:
    """Return the client's address; what a proxy forwards may be anything."""
    try:
        return str(ip_address((scope.get("client") or ("",))[0]))
    except ValueError:
        return "-"


def _request_id(scope: Scope) -> bytes:
    """Return the client's X-Request-Id, or a new one."""
    given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
    return given if _REQUEST_ID.fullmatch(given.decode("latin-1")) else f"req_{secrets.token_hex(16)}".encode()


def _replay(body: bytes, receive: Receive) -> Receive:
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
