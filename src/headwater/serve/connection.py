"""Limits on a connection that uvicorn lacks: for headers that do not end, and for answers that nobody reads.

uvicorn limits the size of unfinished headers with only one of its two parsers, and the time with neither. A
`Connection` passes everything to uvicorn's protocol and counts what arrives. The application that `bounded`
returns tells it when a request begins and ends; it finds the connection in the scope's `state`.

If the application gives up an answer, uvicorn closes the connection after the client has read what is in the
buffer, which may be never; `bounded` aborts it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, cast

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headwater.serve.limits import Limits

_LAST_READ_SECONDS = 0.05
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_BODY_HEADERS = (b"content-length", b"transfer-encoding")


class Connection(asyncio.Protocol):
    """One client's connection. inner: one of uvicorn's protocol classes."""

    def __init__(self, inner: Any, limits: Limits, *, app_state: dict[str, Any], **options: Any) -> None:
        self._inner: asyncio.Protocol = inner(app_state={**app_state, "connection": self}, **options)
        self._limits = limits
        self._transport: asyncio.Transport
        self._received = 0  # bytes since the last request began
        self._answering = self._in_body = False
        self._deadline: asyncio.TimerHandle | None = None

    def begin(self, has_body: bool) -> None:
        """Note that the headers of a request are complete."""
        self._received, self._answering, self._in_body = 0, True, has_body
        self._rest()

    def end_body(self) -> None:
        """Note that the body of the request has been read: what arrives from now on is another request."""
        self._in_body = False

    def end(self) -> None:
        """Note that the request is answered: what arrives from now on is the next one."""
        self._answering = self._in_body = False

    def abort(self) -> None:
        """Close the connection without sending what is in the buffer."""
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast("asyncio.Transport", transport)
        self._inner.connection_made(transport)
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._rest()
        self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._inner.data_received(data)
        if not self._in_body:
            self._received += len(data)
            if self._deadline is None:
                self._await_headers()
            # If these bytes complete a request, its task runs first, so `begin` is called before.
            asyncio.get_running_loop().call_soon(self._require_end_of_headers)

    def eof_received(self) -> bool | None:
        """See asyncio.Protocol."""
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        """See asyncio.Protocol."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""
        self._inner.resume_writing()

    def _require_end_of_headers(self) -> None:
        if self._received <= self._limits.header_bytes or self._transport.is_closing():
            return
        if self._answering:
            self._transport.abort()
        else:
            self._transport.write(_TOO_LARGE)
            self._transport.close()

    def _await_headers(self) -> None:
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(self._limits.body_seconds, self._read_once_more)

    def _read_once_more(self) -> None:
        # After a long callback, uvloop calls the timers that are due before it reads what has arrived.
        self._deadline = asyncio.get_running_loop().call_later(_LAST_READ_SECONDS, self._give_up)

    def _give_up(self) -> None:
        self._deadline = None
        if not self._answering:
            self._transport.close()

    def _rest(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def bounded(app: ASGIApp, limits: Limits) -> ASGIApp:
    """Return the application, bounded in the time to send each part of an answer. For a `Connection`."""

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        connection: Connection = scope["state"]["connection"]
        connection.begin(any(name in _BODY_HEADERS for name, _ in scope["headers"]))
        started = complete = False

        async def read() -> Message:
            message = await receive()
            if not message.get("more_body"):
                connection.end_body()
            return message

        async def write(message: Message) -> None:
            nonlocal started, complete
            started = True
            async with asyncio.timeout(limits.seconds):  # `send` waits for a client that reads slowly
                await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                complete = True
                connection.end()  # now: the next request may begin before the application returns

        with suppress(TimeoutError):
            await app(scope, read, write)
        if started and not complete:
            connection.abort()
            await asyncio.sleep(0)  # connection_lost comes first, else uvicorn logs an error

    return run
