"""Limits on connections that uvicorn lacks: on their number, on slow headers, and on answers that nobody reads.

A `Connection` passes everything to uvicorn's protocol of h11, which bounds the size of headers. The application
that `bounded` returns tells it when a request begins and ends; it finds the connection in the scope's `state`. One
that waits for a request is closed when its time is over, or earlier if a new client needs its place.

If the application gives up an answer, uvicorn closes the connection after the client has read what is in the
buffer, which may be never; `bounded` aborts it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, cast

import h11
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headwater.serve.limits import Limits

_LAST_READ_SECONDS = 0.05
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class Connections:
    """The open connections of a server, at most `most`; those that wait for a request, the longest first."""

    def __init__(self, limits: Limits, most: int) -> None:
        self.limits, self.most = limits, most
        self.count = 0
        self.waiting: dict[Connection, None] = {}

    def admit(self) -> bool:
        """Close the connection that has waited longest if there are too many. Returns whether there is a place."""
        if self.count < self.most:
            return True
        if not self.waiting:
            return False
        longest = next(iter(self.waiting))
        del self.waiting[longest]
        longest.abort()
        return True


class Connection(asyncio.Protocol):
    """One client's connection. inner: one of uvicorn's protocol classes."""

    def __init__(self, inner: Any, connections: Connections, *, app_state: dict[str, Any], **options: Any) -> None:
        self._inner: asyncio.Protocol = inner(app_state={**app_state, "connection": self}, **options)
        self._all = connections
        self._transport: asyncio.Transport
        self._answering = False
        self._deadline: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Note that the headers of a request are complete."""
        self._answering = True
        self._all.waiting.pop(self, None)
        self._rest()

    def end(self) -> None:
        """Note that the request is answered: what arrives from now on is the next one."""
        self._answering = False
        self._all.waiting[self] = None

    def abort(self) -> None:
        """Close the connection without sending what is in the buffer."""
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast("asyncio.Transport", transport)
        has_place = self._all.admit()
        self._all.count += 1
        self._inner.connection_made(transport)
        if has_place:
            self._all.waiting[self] = None
            self._await_headers()
        else:
            self._transport.write(_FULL)
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._all.count -= 1
        self._all.waiting.pop(self, None)
        self._rest()
        self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if self._deadline is None and not self._answering:
            self._await_headers()
        try:
            self._inner.data_received(data)
        except h11.ProtocolError:  # wrong bytes after the answer has begun, so that an error cannot be sent
            self.abort()

    def eof_received(self) -> bool | None:
        """See asyncio.Protocol."""
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        """See asyncio.Protocol."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""
        self._inner.resume_writing()

    def _await_headers(self) -> None:
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(self._all.limits.body_seconds, self._read_once_more)

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
        connection.begin()
        started = complete = False

        async def write(message: Message) -> None:
            nonlocal started, complete
            started = True
            async with asyncio.timeout(limits.seconds):  # `send` waits for a client that reads slowly
                await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                complete = True
                connection.end()  # now: the next request may begin before the application returns

        with suppress(TimeoutError):
            await app(scope, receive, write)
        if started and not complete:
            connection.abort()
            await asyncio.sleep(0)  # connection_lost comes first, else uvicorn logs an error

    return run
