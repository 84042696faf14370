"""How an answer is computed and sent: within the limits of time and memory, while its client stays connected."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

from pydantic_core import to_json
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headwater.errors import HeadwaterError
from headwater.serve.problems import Problem, refused
from headwater.serve.served import OpenRequest, Server

_LAST_SECONDS = 5.0  # for sending the end of a stream
_PART_BYTES = 64 * 1024  # of a body that are sent at a time
_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx forwards each event at once
]


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
    """JSON that is computed while its client stays connected and within the time limit, then sent within it.

    param: the field that a library error is about, unless the error names another.
    """

    def __init__(
        self, server: Server, model: str | None, compute: Callable[[OpenRequest], Any], param: str = "prompt"
    ) -> None:
        super().__init__()
        self._server, self._model, self._compute, self._param = server, model, compute, param

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See Response. If the client disconnects, the work is cancelled, and ConnectionAbortedError raised."""

        async def disconnected() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        with OpenRequest(self._server, self._model, scope) as request:
            work = asyncio.ensure_future(self._answer(request, scope, receive, send))
            leaving = asyncio.ensure_future(disconnected())
            try:
                await asyncio.wait((work, leaving), return_when=asyncio.FIRST_COMPLETED)
                if not work.done():
                    self._server.metrics.disconnected.inc()
                    raise ConnectionAbortedError
                work.result()
            finally:
                work.cancel()
                leaving.cancel()
                await asyncio.gather(work, leaving, return_exceptions=True)

    async def _answer(self, request: OpenRequest, scope: Scope, receive: Receive, send: Send) -> None:
        async with _timed(self._server.config.seconds, self._param):
            body = await asyncio.to_thread(encode, await self._compute(request))
        async with asyncio.timeout(self._server.config.seconds):
            await Json(body)(scope, receive, send)


class EventStream(ComputedResponse):
    """Server-sent events, sent as they come; `compute` yields them. The time limit is for all of them."""

    async def _answer(self, request: OpenRequest, scope: Scope, receive: Receive, send: Send) -> None:
        started = False
        try:
            async with (
                _timed(self._server.config.seconds, self._param),
                aclosing(self._compute(request)) as events,
            ):
                async for data in events:
                    if not started:
                        started = True
                        await send({"type": "http.response.start", "status": 200, "headers": _STREAM_HEADERS})
                    await send({"type": "http.response.body", "body": data, "more_body": True})
            last = b""
        except Problem as problem:
            if not started:
                raise
            last = b"data: %b\n\n" % encode(problem.content)
        async with asyncio.timeout(_LAST_SECONDS):  # the client may have stopped reading
            await send({"type": "http.response.body", "body": last})


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
