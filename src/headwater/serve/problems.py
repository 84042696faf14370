"""The API's errors, `{"error": {"message", "type", "param", "code"}}`, and its JSON."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headwater.errors import ContextError, HeadwaterError

_TYPES = {401: "authentication_error", 429: "rate_limit_error"}
# Elements of a list that are serialised in one call: no other thread runs meanwhile.
_TOGETHER = 256
_PART_BYTES = 64 * 1024  # of a body that are sent at a time
_ANY: TypeAdapter[Any] = TypeAdapter(Any, config=ConfigDict(ser_json_inf_nan="constants"))


class ErrorDetail(BaseModel):
    """One error."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """The body of every answer that reports an error."""

    error: ErrorDetail


ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody, "description": text}
    for status, text in {
        400: "The request is wrong",
        401: "No valid API key",
        403: "The Host header names another machine",
        404: "No such model or page",
        405: "No such method",
        408: "The body took too long",
        413: "The body is too large",
        431: "The headers are too large",
        429: "The queue is full: see Retry-After",
        500: "The server failed",
        503: "The server is stopping",
        504: "The request took too long",
    }.items()
}


class Problem(Exception):
    """A refused or failed request. `param` names the wrong field; `code` identifies the error for programs."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.headers = dict(headers or {})

    @property
    def content(self) -> dict[str, Any]:
        """The body of the answer."""
        kind = _TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    @property
    def response(self) -> Response:
        """The answer."""
        return Json(self.content, status_code=self.status, headers=self.headers)


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


def encode(content: Any) -> bytes:
    """Return JSON. Long lists are serialised in parts, so that other threads can run in between."""
    written = io.BytesIO()
    for part in _parts(content):
        written.write(part.encode())
    return written.getvalue()


def is_small(content: Any) -> bool:
    """Return whether JSON content has few values and little text, so that processing it is quick."""
    left = _TOGETHER
    rest = [content]
    while rest:
        value = rest.pop()
        if isinstance(value, str):
            left -= len(value) // 16
        elif isinstance(value, dict | list | tuple):
            left -= len(value)
            if left >= 0:
                rest.extend(value.values() if isinstance(value, dict) else value)
        if left < 0:
            return False
    return True


def _parts(content: Any) -> Iterator[str]:
    if isinstance(content, dict) and not _is_flat(content):
        mark = "{"
        for key, value in content.items():
            yield f"{mark}{json.dumps(key)}:"
            yield from _parts(value)
            mark = ","
        yield "}"
    elif isinstance(content, list) and not all(_is_flat(value) for value in content):
        mark = "["
        for value in content:
            yield mark
            yield from _parts(value)
            mark = ","
        yield "]"
    elif isinstance(content, list) and len(content) > _TOGETHER:
        mark = "["
        for start in range(0, len(content), _TOGETHER):
            yield mark + _plain(content[start : start + _TOGETHER])[1:-1]
            mark = ","
        yield "]"
    else:
        yield _plain(content)


def _is_flat(value: Any) -> bool:
    """Return whether a value is neither a list nor an object that contains lists or objects."""
    if isinstance(value, dict):
        return not any(isinstance(inner, dict | list) for inner in value.values())
    return not isinstance(value, list)


def _plain(content: Any) -> str:
    """Return JSON in ASCII. Pydantic's writer is faster, but it refuses lone surrogates and does not escape."""
    try:
        written = _ANY.dump_json(content).decode()
    except ValueError:
        written = ""
    # "NaN" may be part of a string; json.dumps raises ValueError for the number.
    if not written or not written.isascii() or "NaN" in written or "Infinity" in written:
        return json.dumps(content, allow_nan=False, separators=(",", ":"))
    return written


def refused(error: HeadwaterError, param: str | None = None) -> Problem:
    """Return a 400 for a library error. Its repair is left out: it is for Python or the command line."""
    message = error.seen.rstrip(".") + (f"; expected {error.expected}" if error.expected else "")
    code = "context_length_exceeded" if isinstance(error, ContextError) else None
    return Problem(400, message + ".", param=error.param or param, code=code)


def too_busy(seconds: int) -> Problem:
    """Return a 429: the queue is full."""
    return Problem(
        429,
        f"The server is busy and its queue is full. Try again in {seconds} s.",
        code="queue_full",
        headers={"Retry-After": str(seconds)},
    )


def invalid(errors: Sequence[Any]) -> Problem:
    """Return a 400 for the first error that the validation of a body found."""
    first = errors[0]
    kind, location = first["type"], [str(part) for part in first["loc"] if part != "body"]
    param = location[0] if location else None
    if kind == "json_invalid":
        return Problem(400, f"The body is not JSON: {first.get('ctx', {}).get('error', 'it cannot be read')}.")
    if param is None:
        return Problem(400, "The body is not a JSON object with content type application/json.")
    if kind == "extra_forbidden":
        return Problem(400, f"There is no parameter {param!r}.", param=param, code="unknown_parameter")
    same = [error for error in errors if [str(part) for part in error["loc"] if part != "body"][:1] == [param]]
    found = {error["msg"].removeprefix("Value error, ") for error in same}
    reasons = "; ".join(sorted(found)) or first["msg"]
    return Problem(400, f"{param}: {reasons}.", param=param, code="invalid_value")
