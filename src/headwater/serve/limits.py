"""The limits of a server on requests, and its API keys."""

from __future__ import annotations

import hashlib
import hmac
from ipaddress import ip_address
from pathlib import Path

from pydantic import Field

from headwater.config import Config
from headwater.errors import FolderError, UsageError
from headwater.storage import read_text


class Limits(Config):
    """Bounds of one server."""

    body_bytes: int = Field(default=1024 * 1024, ge=1)
    """Bytes of one request's body."""
    header_bytes: int = Field(default=64 * 1024, ge=1024)
    """Bytes of one request's headers."""
    answer_bytes: int = Field(default=32 * 1024 * 1024, ge=1)
    """Bytes of one answer, as estimated before it is computed."""
    held_bytes: int = Field(default=64 * 1024 * 1024, ge=1)
    """Bytes of all answers under way that have more than 64 KiB, as estimated."""
    tokens: int = Field(default=131_072, ge=1)
    """Tokens of the prompts and of what may follow them, in one request."""
    queue: int = Field(default=128, ge=0)
    """Continuations of a model that wait for a slot, and jobs of its second thread."""
    requests: int = Field(default=1_024, ge=1)
    """Requests that are open at once."""
    seconds: float = Field(default=300.0, gt=0)
    """Seconds to compute one answer, and as many again to send it; a stream has them once for both."""
    body_seconds: float = Field(default=30.0, gt=0)
    """Seconds for the headers and the body to arrive."""


class Keys:
    """The API keys of a server, stored as hashes."""

    def __init__(self, keys: list[str]) -> None:
        self._digests = [hashlib.sha256(key.encode()).digest() for key in keys]

    @classmethod
    def read(cls, path: Path) -> Keys:
        """Read one key per line. Empty lines and lines that begin with # are skipped."""
        if not path.is_file():
            raise FolderError(f"{path} is not a file", expected="a file with one API key a line")
        lines = [line.strip() for line in read_text(path).splitlines()]
        keys = [line for line in lines if line and not line.startswith("#")]
        if not keys:
            raise UsageError(f"{path} has no key", expected="one API key a line")
        for key in keys:
            if not key.isascii() or any(character.isspace() for character in key):
                raise UsageError(f"{path} has a key with a space or a character beyond ASCII")
        return cls(keys)

    def accept(self, authorization: str) -> bool:
        """Return whether the header `Authorization: Bearer KEY` has one of the keys, in constant time."""
        scheme, _, key = authorization.partition(" ")
        digest = hashlib.sha256(key.strip().encode("utf-8", "replace")).digest()
        equal = [hmac.compare_digest(digest, known) for known in self._digests]
        return any(equal) and scheme.lower() == "bearer"


def is_loopback(host: str) -> bool:
    """Return whether an address or host name is this machine's loopback."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
