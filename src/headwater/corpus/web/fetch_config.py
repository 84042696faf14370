"""How links are visited: the configuration of `headwater corpus fetch`."""

from __future__ import annotations

from pydantic import Field

from headwater.config import Config
from headwater.corpus.sources.pages import PAGE_BYTES


class FetchConfig(Config):
    """How to visit."""

    hosts: int = Field(default=256, ge=1)
    """Hosts visited at once."""
    delay: float = Field(default=1.0, ge=0)
    """Seconds between two visits to a host; a longer Crawl-delay is kept up to longest_delay."""
    longest_delay: float = Field(default=30.0, ge=0)
    """A host that asks for a longer delay is left alone."""
    seconds: float = Field(default=30.0, gt=0)
    """Seconds for one answer; each redirect has as many."""
    page_bytes: int = Field(default=PAGE_BYTES, ge=1, le=PAGE_BYTES)
    """Bytes of a page, unpacked; the rest is not requested."""
    redirects: int = Field(default=5, ge=0)
    """Redirects that are followed."""
    retries: int = Field(default=2, ge=0)
    """Tries after a failure that may pass: no connection, a cut answer, 429, 5xx."""
    back_off: float = Field(default=5.0, ge=0)
    """Seconds before the first retry, four times as long before each further one."""
    longest_wait: float = Field(default=120.0, ge=0)
    """Longest Retry-After that is kept; for a longer one the link is given up."""
    failures: int = Field(default=3, ge=1)
    """Links in a row without any answer, after which a host is given up."""
    contact: str = Field(default="", pattern=r"^[\x20-\x7e]*$")
    """Address or page for those who run the hosts, part of the user agent."""
    allow_private: bool = False
    """Visit addresses that are not public, for a web of your own."""
