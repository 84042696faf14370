"""The configuration of a server: its models, its address, and the limits of a request."""

from __future__ import annotations

import re
from ipaddress import ip_address
from pathlib import Path

from pydantic import Field, ValidationInfo, field_validator

from headwater.config import Config
from headwater.errors import UsageError
from headwater.shipped import DEFAULT

# A host name, an IPv4 address, or an IPv6 address in brackets.
HOST_NAME = re.compile(r"\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~!$&'()*+,;=%-]+")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@\s]+|null|\*")
_NAMES = {
    "allow_hosts": (HOST_NAME, "the name of a host without a port, as example.org"),
    "allow_origins": (
        _ORIGIN,
        "an origin: scheme, host and perhaps port, as https://example.org:8080, or *",
    ),
}


class ServeConfig(Config):
    """What a server serves, where it listens, and how much one request may take."""

    models: list[str] = Field(default=[DEFAULT])
    """Models, each FOLDER or NAME=FOLDER."""
    tokenizer: str | None = None
    """Tokenizer of folders without one."""
    host: str = "127.0.0.1"
    """Address to bind; one other than loopback needs API keys."""
    port: int = Field(default=8000, ge=0, le=65_535)
    """Port; 0 chooses a free one."""
    api_key_file: Path | None = None
    """File with one API key per line; it is read again when it changes."""
    allow_hosts: list[str] = Field(default=[])
    """Names of this machine in addition to its loopback names."""
    allow_origins: list[str] = Field(default=[])
    """Origins of sites whose pages may use the server, as "https://example.org", or "*" for all."""
    max_concurrency: int | None = Field(default=None, ge=1)
    """Continuations of one model at once; by default its size and the memory decide."""
    precision: str = "auto"
    """Precision of the weights; see `headwater.load`."""
    device: str = "auto"
    """Device of the models; see `headwater.load`."""
    log: bool = False
    """Whether a line for each request is printed on stderr."""
    body_bytes: int = Field(default=1024 * 1024, ge=1)
    """Bytes of one request's body."""
    header_bytes: int = Field(default=64 * 1024, ge=1024)
    """Bytes of one request's headers."""
    tokens: int = Field(default=131_072, ge=1)
    """Tokens of one request's prompts and of what may follow them, and as many again for each of its logprobs."""
    queue: int = Field(default=128, ge=0)
    """Continuations of a model that wait for a slot, and jobs of its second thread."""
    requests: int = Field(default=1_024, ge=1)
    """Requests that are open at once."""
    seconds: float = Field(default=300.0, gt=0)
    """Seconds to compute one answer, and as many again to send it; a stream has them once for both."""
    body_seconds: float = Field(default=30.0, gt=0)
    """Seconds for the headers and the body to arrive."""

    @field_validator("allow_hosts", "allow_origins")
    @classmethod
    def _can_match(cls, names: list[str], info: ValidationInfo) -> list[str]:
        pattern, expected = _NAMES[info.field_name or ""]
        for name in names:
            if not pattern.fullmatch(name):
                raise UsageError(f"{name!r} would never match", expected=expected)
        return names

    @property
    def is_local(self) -> bool:
        """Whether the server listens on this machine's loopback alone."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Return whether an address or host name is this machine's loopback."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
