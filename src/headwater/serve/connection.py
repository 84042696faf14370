"""Limits on a connection that uvicorn lacks: for headers that do not end, and for answers that nobody reads.

uvicorn limits the size of unfinished headers with only one of its two parsers, and the time with neither.
`bounded` adds both limits to either parser's protocol. If the application gives up an answer, uvicorn closes the
connection after the client has read what is in the buffer, which may be never; `bounded` aborts it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headwater.serve.limits import Limits

_LAST_READ_SECONDS = 0.05
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


def bounded(protocol: Any, limits: Limits) -> Any:
    """Return a subclass of a uvicorn protocol class that enforces the limits."""

    class Bounded(protocol):  # type: ignore[misc]
        """Counts the bytes received since the last complete request, and aborts after an incomplete answer."""

        app: ASGIApp
        _unfinished = 0
        _deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            """See asyncio.Protocol."""
            super().connection_made(transport)
            self.app = partial(self._answer, self.app)
            self._await_headers()

        async def _answer(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
            started = complete = False

            async def counted(message: Message) -> None:
                nonlocal started, complete
                started = True
                async with asyncio.timeout(limits.seconds):  # `send` waits for a client that reads slowly
                    await send(message)
                complete = message["type"] == "http.response.body" and not message.get("more_body", False)

            with suppress(TimeoutError):
                await app(scope, receive, counted)
            if started and not complete:
                self.transport.abort()
                await asyncio.sleep(0)  # connection_lost comes first, else uvicorn logs an error

        def connection_lost(self, error: Exception | None) -> None:
            """See asyncio.Protocol."""
            self._rest()
            super().connection_lost(error)

        def data_received(self, data: bytes) -> None:
            """See asyncio.Protocol."""
            before = self.cycle
            is_body = before is not None and before.more_body
            super().data_received(data)
            if is_body or self.cycle is not before:
                self._unfinished = 0
                self._rest()
                return
            self._unfinished += len(data)
            if self._deadline is None:
                self._await_headers()
            if self._unfinished > limits.header_bytes and not self.transport.is_closing():
                if before is None or before.response_complete:
                    self.transport.write(_TOO_LARGE)
                    self.transport.close()
                else:
                    self.transport.abort()

        def _await_headers(self) -> None:
            self._deadline = asyncio.get_running_loop().call_later(limits.body_seconds, self._read_once_more)

        def _read_once_more(self) -> None:
            # After a long callback, uvloop calls the timers that are due before it reads what has arrived.
            self._deadline = asyncio.get_running_loop().call_later(_LAST_READ_SECONDS, self._give_up)

        def _give_up(self) -> None:
            self._deadline = None
            if self.cycle is None or self.cycle.response_complete:
                self.transport.close()

        def _rest(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

    return Bounded
