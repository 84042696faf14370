"""Obey robots.txt (RFC 9309): missing allows every page of a host, unreachable none.

A file is requested once a day, with a byte limit, and again with each retry of a link while its host fails.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from headwater.corpus.web.answers import REDIRECTS, Fetched, Refused, redirect_target
from headwater.corpus.web.urls import host_of

if TYPE_CHECKING:
    from headwater.corpus.web.crawl_database import CrawlDatabase
    from headwater.corpus.web.fetch import FetchConfig

_ROBOTS_BYTES = 512 * 1024  # of robots.txt: RFC 9309 requires at least 500 KiB
_ROBOTS_KEPT = 4000  # files whose rules are in memory; `CrawlDatabase` has all on disk
_ROBOTS_SECONDS = 24 * 3600.0  # how long one is cached (RFC 9309, section 2.4)


class RobotsFile(NamedTuple):
    """A robots.txt as it was fetched; an empty one allows everything.

    until: when, by the monotonic clock, it is requested again; failed: the number of consecutive failed requests.
    """

    until: float
    failed: int
    body: bytes


class RobotsChecker:
    """Requests each host's robots.txt with `get`, once at a time, and checks pages against it."""

    def __init__(
        self, config: FetchConfig, database: CrawlDatabase, get: Callable[..., Awaitable[Fetched]]
    ) -> None:
        self._config, self._database, self._get = config, database, get
        self._asking: dict[str, asyncio.Lock] = {}

    async def allowed_delay(self, url: str) -> float:
        """Return the host's delay after a visit; raise Refused unless robots.txt allows the URL."""
        robots = await self._file_of(url)
        if robots.failed:
            raise Refused("robots.txt unreachable", temporary=robots.failed <= self._config.retries)
        rules, delay = _rules(robots.body)
        if delay > self._config.longest_delay:
            raise Refused("robots.txt asks for too long a delay")
        if not rules.can_fetch(url, "Headwater"):
            raise Refused("robots.txt forbids it")
        return delay

    async def _file_of(self, url: str) -> RobotsFile:
        origin = f"{url.partition('://')[0]}://{host_of(url)}"
        lock = self._asking.setdefault(origin, asyncio.Lock())
        try:
            async with lock:
                known = self._database.robots(origin)
                if known is None or known.until <= time.monotonic():
                    known = await self._request(origin, known or RobotsFile(0.0, 0, b""))
                    self._database.save_robots(origin, known)
                return known
        finally:
            if not lock.locked():
                self._asking.pop(origin, None)

    async def _request(self, origin: str, known: RobotsFile) -> RobotsFile:
        """Request robots.txt; `known` is what was fetched before."""
        url = f"{origin}/robots.txt"
        for _ in range(self._config.redirects + 1):
            answer = await self._get(url, _ROBOTS_BYTES, _rules(known.body)[1], pages_only=False)
            if answer.status not in REDIRECTS:
                break
            url = redirect_target(url, answer.location)
            if not url:
                break
        until = time.monotonic() + _ROBOTS_SECONDS
        if answer.status >= 500 or answer.status == 429:
            # Requested again with each retry of the first link, then not for a day.
            return RobotsFile(until if known.failed >= self._config.retries else 0.0, known.failed + 1, b"")
        return RobotsFile(until, 0, answer.body if answer.status == 200 else b"")


@lru_cache(_ROBOTS_KEPT)
def _rules(robots: bytes) -> tuple[Any, float]:
    """Return protego's rules of a robots.txt, and the seconds between two visits that it asks for."""
    from protego import Protego

    rules = Protego.parse(robots.decode("utf-8-sig", "replace"))  # without a byte-order mark
    delay = rules.crawl_delay("Headwater")
    return rules, float(delay) if delay else 0.0
