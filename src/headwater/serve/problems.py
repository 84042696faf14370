"""The API's errors: `{"error": {"message", "type", "param", "code"}}`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headwater.errors import ContextError, HeadwaterError

# Parameters that are objects with fields of their own, which an error names.
OBJECTS = ("stream_options",)
_TYPES = {401: "authentication_error", 429: "rate_limit_error"}


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


def refused(error: HeadwaterError, param: str | None = None) -> Problem:
    """Return a 400 for a library error. Its repair is left out: it is for Python or the command line."""
    message = error.seen.rstrip(".") + (f"; expected {error.expected}" if error.expected else "")
    code = "context_length_exceeded" if isinstance(error, ContextError) else None
    return Problem(400, message + ".", param=error.param or param, code=code)


def too_busy() -> Problem:
    """Return a 429: the queue is full."""
    message = "The server is busy and its queue is full. Try again in 1 s."
    return Problem(429, message, code="queue_full", headers={"Retry-After": "1"})


def invalid(errors: Sequence[Any]) -> Problem:
    """Return a 400 for the first error that the validation of a body found."""
    first = errors[0]
    kind, location = first["type"], [str(part) for part in first["loc"] if part != "body"]
    if kind == "json_invalid":
        return Problem(400, f"The body is not JSON: {first.get('ctx', {}).get('error', 'it cannot be read')}.")
    if kind == "string_unicode" and not location:
        return Problem(400, "A key of the body has a lone surrogate; expected Unicode text.")
    if not location:
        return Problem(400, "The body is not a JSON object with content type application/json.")
    # In other objects and in lists the location also names the types that were tried.
    param = ".".join(location[:2] if location[0] in OBJECTS else location[:1])
    if kind == "extra_forbidden":
        return Problem(400, f"There is no parameter {param!r}.", param=param, code="unknown_parameter")
    same = [
        error for error in errors if [str(part) for part in error["loc"] if part != "body"][:1] == location[:1]
    ]
    # Of several types that were tried, the one that fits most elements is meant.
    indices = [tuple(part for part in error["loc"] if isinstance(part, int)) for error in same]
    furthest = [error for error, at in zip(same, indices, strict=True) if at == max(indices)]
    reasons = "; ".join(sorted({error["msg"].removeprefix("Value error, ") for error in furthest}))
    where = param + "".join(f"[{index}]" for index in max(indices))
    return Problem(400, f"{where}: {reasons}.", param=param, code="invalid_value")
