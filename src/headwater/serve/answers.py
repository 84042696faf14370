"""How an answer is computed and sent: within the limits of time and memory, while its client stays connected."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Any

from pydantic_core import to_json
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headwater.errors import HeadwaterError
from headwater.serve.problems import Problem, refused
from headwater.serve.served import OpenRequest, Server

_LAST_SECONDS = 5.0  # for sending the error that ends a stream
_PART_BYTES = 64 * 1024  # of a body that are sent at a time


class Json(Response):
    """JSON in ASCII, which can represent any string, including lone surrogates."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """See Response. Bytes are sent as they are."""
        return content if isinstance(content, bytes) else encode(content)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See Response. The body is sent in parts: `send` waits for the client before it writes, not after."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for start in range(0, max(1, len(self.body)), _PART_BYTES):
            end = start + _PART_BYTES
            more = end < len(self.body)
            await send({"type": "http.response.body", "body": self.body[start:end], "more_body": more})


class ComputedResponse(Response):
    """An answer that is computed while its client stays connected and within the time limit, then sent within it.

    param: the field that a library error is about, unless the error names another.
    """

    def __init__(
        self,
        server: Server,
        model: str | None,
        compute: Callable[[OpenRequest], Awaitable[dict[str, Any]]],
        param: str,
    ) -> None:
        super().__init__()
        self._server, self._model, self._compute, self._param = server, model, compute, param

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See Response."""
        body = b""

        async def work() -> None:
            nonlocal body
            async with _timed(self._server.config.seconds, self._param):
                body = await request.write(partial(encode, await self._compute(request)))

        with OpenRequest(self._server, self._model, scope) as request:
            await _while_connected(self._server, receive, work)
            async with asyncio.timeout(self._server.config.seconds):
                await Json(body)(scope, receive, send)


class EventStream(Response):
    """Server-sent events, sent as they come, until the client leaves or the time limit is reached."""

    def __init__(
        self, server: Server, model: str | None, events: Callable[[OpenRequest], AsyncIterator[bytes]]
    ) -> None:
        headers = {
            "Cache-Control": "no-cache",
            "X-Accel-Buffering": "no",  # nginx forwards each event at once
        }
        super().__init__(media_type="text/event-stream", headers=headers)
        del self.headers["content-length"]
        self._server, self._model, self._events = server, model, events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See Response."""
        started = False

        async def put(data: bytes, more: bool = True) -> None:
            nonlocal started
            if not started:
                started = True
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await send({"type": "http.response.body", "body": data, "more_body": more})

        async def work() -> None:
            try:
                answer = aclosing(self._events(request))  # type: ignore[type-var]
                async with _timed(self._server.config.seconds, "prompt"), answer as events:
                    async for data in events:
                        await put(data)
            except Problem as problem:
                if not started:
                    raise
                async with asyncio.timeout(_LAST_SECONDS):  # the client may have stopped reading
                    await put(b"data: %b\n\n" % encode(problem.content), more=False)
            else:
                await put(b"", more=False)

        with OpenRequest(self._server, self._model, scope) as request:
            await _while_connected(self._server, receive, work)


@asynccontextmanager
async def _timed(seconds: float, param: str) -> AsyncIterator[None]:
    """Limit the time of the block. Raise a timeout as Problem, and a library error as a Problem about `param`."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise Problem(504, f"The request took longer than {seconds:g} s.", code="timeout") from None
    except HeadwaterError as error:
        raise refused(error, param) from None


async def _while_connected(server: Server, receive: Receive, work: Callable[[], Awaitable[None]]) -> None:
    """Run `work`. If the client disconnects, cancel it and raise ConnectionAbortedError."""

    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    tasks = [asyncio.ensure_future(work()), asyncio.ensure_future(gone())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not tasks[0].done():
            server.metrics.disconnected.inc()
            raise ConnectionAbortedError
        tasks[0].result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def reported(problem: Problem) -> Response:
    """Return the answer that reports a problem."""
    return Json(problem.content, status_code=problem.status, headers=problem.headers)


def encode(content: Any) -> bytes:
    """Return JSON in ASCII; raise Problem for a number that is not finite.

    Pydantic's writer is faster, but it refuses lone surrogates and does not escape.
    """
    try:
        written = to_json(content)
    except ValueError:
        written = b""
    # "NaN" may be part of a string.
    if not written or not written.isascii() or b"NaN" in written or b"Infinity" in written:
        try:
            return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()
        except ValueError:
            raise Problem(500, "The answer has a number that is not finite.", code="not_finite") from None
    return written
