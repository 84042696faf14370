"""The configuration of `headwater corpus fetch`."""

from __future__ import annotations

from pydantic import Field

from headwater.config import Config
from headwater.corpus.sources.pages import PAGE_BYTES


class FetchConfig(Config):
    """How to visit links."""

    hosts: int = Field(default=256, ge=1)
    """Hosts visited at the same time."""
    delay: float = Field(default=1.0, ge=0)
    """Seconds between two visits to a host; a longer Crawl-delay counts, up to longest_delay."""
    longest_delay: float = Field(default=30.0, ge=0)
    """Skip a host that asks for a longer delay."""
    seconds: float = Field(default=30.0, gt=0)
    """Timeout in seconds of one answer; each redirect has its own."""
    page_bytes: int = Field(default=PAGE_BYTES, ge=1, le=PAGE_BYTES)
    """Maximum size of an unpacked page; a larger one is refused."""
    redirects: int = Field(default=5, ge=0)
    """Maximum number of redirects."""
    retries: int = Field(default=2, ge=0)
    """Retries after a temporary failure: no connection, an incomplete answer, 429, 5xx."""
    back_off: float = Field(default=5.0, ge=0)
    """Seconds before the first retry, four times as many before each further one."""
    longest_wait: float = Field(default=120.0, ge=0)
    """Longest Retry-After to wait for; a link with a longer one is given up."""
    failures: int = Field(default=3, ge=1)
    """Number of consecutive links without an answer after which a host is given up."""
    contact: str = Field(default="", pattern=r"^[\x20-\x7e]*$")
    """Contact for the hosts' operators, an address or page, in the user agent."""
    allow_private: bool = False
    """Visit addresses that are not public, such as an intranet."""
