"""The result of visiting a page: the page, the host to continue at, or the reason for having no page."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from urllib.parse import urljoin

from headwater.corpus.web.urls import canonical_url

TEMPORARY = {429, 500, 502, 503, 504}
REDIRECTS = {301, 302, 303, 307, 308}


@dataclass(eq=False)
class Refused(Exception):
    """A visit without a complete page; `outcome` says why.

    no_answer: the host did not respond; temporary: a later visit may succeed; page: the beginning of the page, if
    that arrived; host: the host that failed.
    """

    outcome: str
    no_answer: bool = False
    temporary: bool = False
    page: Fetched | None = None
    host: str = ""


class Moved(Exception):
    """A visit was redirected by `hops` to a host that is in use: it resumes when that host is free."""

    def __init__(self, hops: tuple[str, ...]) -> None:
        super().__init__(hops)
        self.hops = hops


@dataclass(frozen=True, slots=True)
class Fetched:
    """A page: its URL after redirects, status line, headers, and unpacked body; or another answer without a body.

    location: the target of a redirect; wait: the seconds before the next visit that the host requested.
    """

    url: str
    status_line: str
    headers: list[tuple[str, str]]
    body: bytes
    status: int = 200
    location: str = ""
    wait: float = 0.0


def retry_after(value: str) -> float:
    """Return the seconds of a Retry-After header (RFC 9110, 10.2.3: a number or a date); 0 for other values."""
    value = value.strip()
    if value.isascii() and value.isdigit():
        return float(value)
    try:
        requested = parsedate_to_datetime(value)
    except (ValueError, TypeError, OverflowError):
        return 0.0
    return max(0.0, (requested - datetime.now(requested.tzinfo)).total_seconds())


def redirect_target(url: str, location: str) -> str:
    """Return the canonical target of a redirect; empty if it is not an http(s) URL."""
    try:
        return canonical_url(urljoin(url, location))
    except ValueError:
        return ""
