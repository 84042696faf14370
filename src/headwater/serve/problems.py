"""Errors as clients of the API read them: `{"error": {"message", "type", "param", "code"}}`, and a status."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import Response

from headwater.errors import HeadwaterError

_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


class Problem(Exception):
    """A request that is refused or failed; `param` names the field that is wrong, `code` is for programs."""

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
        """The body that says so."""
        kind = _TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    @property
    def response(self) -> Response:
        """The whole answer."""
        return Json(self.content, status_code=self.status, headers=self.headers)


class Json(Response):
    """JSON in ASCII, which holds any string, lone surrogates included."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """See Response."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


def refused(error: HeadwaterError, param: str | None = None) -> Problem:
    """What a lower room says of a value, without its repair, which is a command line."""
    message = error.seen.rstrip(".") + (f"; expected {error.expected}" if error.expected else "")
    return Problem(400, message + ".", param=param)


def too_busy(seconds: int) -> Problem:
    """The queue is full."""
    return Problem(
        429,
        f"The server is busy and its queue is full. Try again in {seconds} s.",
        code="queue_full",
        headers={"Retry-After": str(seconds)},
    )


def invalid(errors: Sequence[Any]) -> Problem:
    """The first thing that a body's validation found."""
    first = errors[0]
    kind, location = first["type"], [str(part) for part in first["loc"] if part != "body"]
    param = location[0] if location else None
    if kind == "json_invalid":
        return Problem(400, f"The body is not JSON: {first.get('ctx', {}).get('error', 'it cannot be read')}.")
    if param is None:
        return Problem(400, "The body is no JSON object with content type application/json.")
    if kind == "extra_forbidden":
        return Problem(400, f"There is no parameter {param!r}.", param=param, code="unknown_parameter")
    found = {error["msg"].removeprefix("Value error, ") for error in errors if error["loc"][1:2] == (param,)}
    reasons = "; ".join(sorted(found)) or first["msg"]
    return Problem(400, f"{param}: {reasons}.", param=param, code="invalid_value")
