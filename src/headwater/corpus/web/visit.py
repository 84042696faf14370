"""Visit one page: check that it may be visited, follow redirects, read a bounded part of it.

An answer that ends before its length, its last chunk or the end of its compressed stream is incomplete (RFC 9112,
section 8): it is requested again, and kept with a mark if the last answer is incomplete too.
"""

from __future__ import annotations

import asyncio
import socket
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from headwater.corpus.sources.pages import unpack_body
from headwater.corpus.web.addresses import PrivateAddress, is_public, make_resolver
from headwater.corpus.web.answers import (
    REDIRECTS,
    TEMPORARY,
    Fetched,
    Moved,
    Refused,
    redirect_target,
    retry_after,
)
from headwater.corpus.web.robots import RobotsChecker
from headwater.corpus.web.urls import PORTS, host_of

if TYPE_CHECKING:
    from headwater.corpus.web.crawl_database import CrawlDatabase
    from headwater.corpus.web.fetch import FetchConfig

_PACKINGS = {"gzip", "x-gzip", "deflate"}
_TEXT_TYPES = ("text/html", "application/xhtml+xml", "text/plain")
_HEADER_BYTES = 64 * 1024  # of one header: security policies exceed aiohttp's default of 8 KiB
_GATES_KEPT = 100_000  # hosts
_DNS_SECONDS = 120.0  # for one name; resolvers usually give up sooner
# Other failures of DNS may be temporary. Not every platform has EAI_NODATA.
_NO_SUCH_HOST = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}


@dataclass
class _Gate:
    """Allows one visit at a time to a host, and none before `free_at`."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    free_at: float = 0.0


class Visitor:
    """Visits pages for a fetch. Use as an asynchronous context manager."""

    def __init__(self, config: FetchConfig, database: CrawlDatabase) -> None:
        import aiohttp

        self._aiohttp: Any = aiohttp
        self._config = config
        contact = f" (+{config.contact})" if config.contact else ""
        self._agent = f"Headwater/{version('headwater')}{contact}"
        self._robots = RobotsChecker(config, database, self._get)
        self._gates: dict[str, _Gate] = {}

    async def __aenter__(self) -> Visitor:
        # All visits may wait for a name server at the same time, each in its own thread.
        threads = ThreadPoolExecutor(self._config.hosts, thread_name_prefix="resolve")
        asyncio.get_running_loop().set_default_executor(threads)
        self._resolver = make_resolver(self._aiohttp, self._config.allow_private)
        connector = self._aiohttp.TCPConnector(limit=0, use_dns_cache=False, resolver=self._resolver)
        self._session = self._aiohttp.ClientSession(
            connector=connector,
            auto_decompress=False,
            timeout=self._aiohttp.ClientTimeout(),  # none of aiohttp's: `_get` limits each answer
            max_line_size=_HEADER_BYTES,
            max_field_size=_HEADER_BYTES,
            cookie_jar=self._aiohttp.DummyCookieJar(),
            headers={
                "User-Agent": self._agent,
                "Accept": "text/html,*/*;q=0.1",
                "Accept-Encoding": "gzip",  # servers send deflate in two forms
            },
        )
        return self

    async def __aexit__(self, *unused: object) -> None:
        await self._session.close()

    def free_at(self, host: str) -> float:
        """Return when, by the monotonic clock, the host may be visited again."""
        gate = self._gates.get(host)
        return gate.free_at if gate else 0.0

    def postpone(self, host: str, seconds: float) -> None:
        """Do not visit a host for at least some seconds from now."""
        gate = self._gates.setdefault(host, _Gate())
        gate.free_at = max(gate.free_at, time.monotonic() + seconds)

    async def visit(self, url: str, hops: tuple[str, ...] = ()) -> Fetched:
        """Return the page of a link, from the last of the redirects `hops` on.

        Raises Refused with the outcome if there is none, Moved if a redirect leads to a host that is busy.
        """
        chain = [url, *hops]
        while len(chain) <= self._config.redirects + 1:
            url = chain[-1]
            try:
                delay = await self._robots.allowed_delay(url)
                answer = await self._get(url, self._config.page_bytes, delay, pages_only=True)
            except Refused as refusal:
                refusal.host = host_of(url)
                refusal.no_answer = refusal.no_answer and len(chain) == 1  # else the link's own host answered
                raise
            if answer.status not in REDIRECTS:
                if answer.status != 200:
                    patient = answer.wait <= self._config.longest_wait
                    temporary = patient and answer.status in TEMPORARY
                    raise Refused(f"status {answer.status}", temporary=temporary, host=host_of(url))
                return answer
            target = redirect_target(url, answer.location)
            if not target:
                raise Refused("redirect to no http(s) URL")
            if target in chain:
                raise Refused("redirect loop")
            chain.append(target)
            if host_of(target) != host_of(url) and self._is_busy(host_of(target)):
                raise Moved(tuple(chain[1:]))
        raise Refused("too many redirects")

    def _is_busy(self, host: str) -> bool:
        gate = self._gates.get(host)
        return gate is not None and (gate.lock.locked() or gate.free_at > time.monotonic())

    async def _get(self, url: str, limit: int, delay: float, *, pages_only: bool) -> Fetched:
        """Request a URL when its host may be visited; other requests to that host wait, then also for `delay`."""
        with suppress(ValueError):  # the host is a name; an address is never resolved
            if not self._config.allow_private and not is_public(urlsplit(url).hostname or ""):
                raise Refused("address is not public")
        host = host_of(url)
        if len(self._gates) > _GATES_KEPT:
            now = time.monotonic()
            self._gates = {n: g for n, g in self._gates.items() if g.lock.locked() or g.free_at > now}
        gate = self._gates.setdefault(host, _Gate())
        async with gate.lock:
            await asyncio.sleep(max(0.0, gate.free_at - time.monotonic()))
            wait = max(self._config.delay, delay)
            try:
                await self._resolve(url)  # the host is not charged for a slow name server
                async with asyncio.timeout(self._config.seconds):
                    answer = await self._ask(url, limit, pages_only=pages_only)
                wait = max(wait, min(answer.wait, self._config.longest_wait))
                return answer
            except TimeoutError:
                raise Refused("too slow", no_answer=True) from None
            finally:
                gate.free_at = time.monotonic() + wait

    async def _resolve(self, url: str) -> None:
        """Resolve the host of a URL; raise Refused if it has no address, or none that may be visited."""
        parts = urlsplit(url)
        try:
            async with asyncio.timeout(_DNS_SECONDS):
                await self._resolver.resolve(parts.hostname or "", parts.port or PORTS[parts.scheme])
        except PrivateAddress:
            raise Refused("address is not public") from None
        except TimeoutError:
            raise Refused("no answer from DNS", no_answer=True, temporary=True) from None
        except OSError as error:
            if isinstance(error, socket.gaierror) and error.errno in _NO_SUCH_HOST:
                raise Refused("no such host", no_answer=True) from None
            raise Refused("no answer from DNS", no_answer=True, temporary=True) from None

    async def _ask(self, url: str, limit: int, *, pages_only: bool) -> Fetched:
        errors = self._aiohttp
        try:
            async with self._session.get(url, allow_redirects=False) as response:
                headers = [(n.decode("latin-1"), v.decode("latin-1")) for n, v in response.raw_headers]
                line = f"HTTP/1.1 {response.status} {response.reason or ''}".rstrip()
                if response.status != 200:
                    response.close()  # without its body
                    requested = response.headers.get("Retry-After", "") if response.status in TEMPORARY else ""
                    location = response.headers.get("Location", "")
                    return Fetched(url, line, headers, b"", response.status, location, retry_after(requested))
                kind = response.headers.get("Content-Type", "text/html").partition(";")[0].strip().lower()
                if pages_only and kind not in _TEXT_TYPES:
                    response.close()
                    raise Refused("content type")
                body, is_whole = await self._read(response, limit, cut=not pages_only)
                page = Fetched(url, line, headers, body)
                if not is_whole:
                    part = page if pages_only and body else None
                    raise Refused("answer cut short", temporary=True, page=part)
                return page
        except (errors.ClientPayloadError, errors.ServerDisconnectedError, ConnectionResetError):
            raise Refused("answer cut short", temporary=True) from None
        except (errors.ClientConnectionError, OSError):
            raise Refused("no connection", no_answer=True, temporary=True) from None
        except (errors.ClientError, ValueError):
            raise Refused("answer is not HTTP") from None

    async def _read(self, response: Any, limit: int, *, cut: bool) -> tuple[bytes, bool]:
        """Return the unpacked body and whether it is complete; more than `limit` bytes are cut or refused."""
        encoding = response.headers.get("Content-Encoding", "").strip().lower()
        if encoding not in {"", "identity", *_PACKINGS}:
            raise Refused("content encoding")
        pieces, size, is_whole = [], 0, True
        try:
            async for chunk in response.content.iter_chunked(65536):
                pieces.append(chunk)
                size += len(chunk)
                if size > limit:
                    response.close()
                    break
        except (self._aiohttp.ClientPayloadError, self._aiohttp.ServerDisconnectedError, ConnectionResetError):
            is_whole = False
        body = b"".join(pieces)
        if body and encoding in _PACKINGS:
            try:
                body, is_unpacked = unpack_body(body, limit + 1)
            except zlib.error:
                raise Refused("content encoding is broken") from None
            is_whole = is_whole and is_unpacked
        if max(size, len(body)) > limit:
            if cut:
                return body[:limit], True
            raise Refused("too large")
        return body, is_whole
