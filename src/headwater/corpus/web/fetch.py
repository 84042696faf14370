"""Fetch the pages of links, politely and robustly: `headwater corpus fetch`.

Polite: it obeys robots.txt (RFC 9309: unreachable means no, missing means yes) and Retry-After, visits a host once
at a time with a delay in between, and sends its name and a contact. Robust: every page has a timeout and a maximum
unpacked size; each redirect is checked like a link; addresses that are not public are refused in URLs, in
redirects and in DNS answers at the time of connecting.

`crawl_database` has the links and their outcomes: the same command resumes a killed fetch at the next link.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from pydantic import Field

from headwater.config import Config
from headwater.corpus.sources.pages import PAGE_BYTES
from headwater.corpus.web.answers import Moved, Refused
from headwater.corpus.web.crawl_database import DATABASE, CrawlDatabase, HostLinks, WaitingLink
from headwater.corpus.web.links import read_links
from headwater.corpus.web.urls import canonical_url, host_of
from headwater.corpus.web.visit import Visitor
from headwater.errors import DataError, require_extra, resumable
from headwater.reading import read_json
from headwater.storage import INTERACTIVE, Progress, Stage, folder_lock, open_folder, storage_errors, write_json

FUNNEL = "funnel.json"
_BEGUN = 20_000  # hosts that are being visited or wait for their delay


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


@resumable()
def fetch_links(
    links: Path, out: Path, config: FetchConfig | None = None, *, progress: Progress = INTERACTIVE
) -> dict[str, Any]:
    """Visit the links of a links folder and write the pages folder `out`; resume it, or keep it if complete.

    Returns counts: links, pages (also those cut short), bytes, outcomes {outcome: links}, examples {outcome:
    [url, …]}. Raises FolderError if `links` is another folder, DataError if it contains no links.
    """
    config = config or FetchConfig()
    with require_extra("corpus", "fetching"):
        import aiohttp  # noqa: F401
        import protego  # noqa: F401
    open_folder(links, "links")
    # Settings of speed and contact may change between two runs of one fetch.
    free = {"hosts", "delay", "contact", "back_off", "longest_wait", "retries", "failures"}
    decisive = {key: value for key, value in config.to_dict().items() if key not in free}
    stage = Stage(out, kind="pages", config=decisive, inputs={"links": links}, grows=True)
    if stage.is_complete(progress):
        (out / DATABASE).unlink(missing_ok=True)  # of a fetch killed after its last step
        return dict(read_json(out / FUNNEL))
    with storage_errors(out):
        stage.begin()
        with folder_lock(out):
            with closing(CrawlDatabase(out, _with_hosts(links))) as database:
                progress.start("fetch", unit="links")
                asyncio.run(_Fetch(config, database, progress).run())
                if not database.links:
                    raise DataError(
                        f"{links} contains no links", repair="Gather more with: headwater corpus links"
                    )
                result = database.result()
            write_json(out / FUNNEL, result)
            stage.finish()  # may take hours; killed here, the fetch still has its links
            (out / DATABASE).unlink()
    progress.finish(f"{result['pages']:,} pages of {result['links']:,} links, {result['bytes'] / 1e6:.1f} MB")
    return result


def _with_hosts(links: Path) -> Iterator[tuple[str, str, str | None]]:
    """Yield (host, link, outcome) of each link; an outcome if it cannot be visited."""
    for link in read_links(links):
        url = canonical_url(link["url"])
        yield (host_of(url), url, None) if url else ("", link["url"], "no http(s) URL")


class _Fetch:
    """Visits hosts in parallel, each in turn: a visit, then the host's delay."""

    def __init__(self, config: FetchConfig, database: CrawlDatabase, progress: Progress) -> None:
        self._config, self._database, self._progress = config, database, progress
        self._hosts: dict[str, HostLinks] = {}  # those begun and not finished
        self._failures: Counter[str] = Counter()  # consecutive links without an answer, by host

    async def run(self) -> None:
        """Visit all links that have no outcome."""
        self._visits, self._changed = asyncio.Semaphore(self._config.hosts), asyncio.Event()
        try:
            async with Visitor(self._config, self._database) as self._visitor, asyncio.TaskGroup() as self._tasks:
                while links := self._database.next_host():
                    while self._visits.locked() or len(self._hosts) >= _BEGUN:  # those begun come first
                        self._changed.clear()
                        await self._changed.wait()
                    begun = self._hosts.get(links.host)  # by redirects
                    self._hosts[links.host] = links
                    if begun is None:
                        self._tasks.create_task(self._visit_host(links.host))
                        await asyncio.sleep(0)
                    else:
                        links.waiting = begun.waiting
        except BaseExceptionGroup as failed:  # visits that raised; the others were cancelled
            raise failed.exceptions[0] from None

    async def _visit_host(self, name: str) -> None:
        """Visit the links of a host, also those that redirects add meanwhile."""
        while self._database.take(self._hosts[name]):
            while (wait := self._visitor.free_at(name) - time.monotonic()) > 0:
                await asyncio.sleep(wait)
            async with self._visits:
                await self._visit(name)
            await asyncio.sleep(0)  # for other hosts: a link that robots.txt forbids is refused without waiting
            self._changed.set()
        del self._hosts[name]

    async def _visit(self, name: str) -> None:
        """Visit the next link of a host and record the outcome."""
        host = self._hosts[name]
        waiting = host.waiting
        link = waiting.popleft()
        url, attempts = link.url, link.attempts
        if self._failures[name] >= self._config.failures:
            self._database.record(link, "host gave no answer")
        else:
            try:
                page = await self._visitor.visit(url, link.hops)
                self._failures.pop(name, None)
                self._database.add(link, page)
            except Moved as moved:  # this host's other links need not wait
                self._failures.pop(name, None)
                self._move(link._replace(hops=moved.hops))
            except Refused as refusal:
                if refusal.temporary and attempts < self._config.retries:
                    # Retry later. If a redirect led to another host, this host's other links need not wait.
                    if refusal.host == name or not self._database.take(host):
                        self._visitor.postpone(name, self._config.back_off * 4**attempts)
                        waiting.appendleft(link._replace(attempts=attempts + 1))
                    else:
                        waiting.append(link._replace(attempts=attempts + 1))
                else:
                    if refusal.no_answer:
                        self._failures[name] += 1
                    else:
                        self._failures.pop(name, None)
                    if refusal.page is not None:
                        self._database.add(link, refusal.page, cut=True)
                    else:
                        self._database.record(link, refusal.outcome)
        self._progress.advance(self._database.links, pages=self._database.pages, hosts=len(self._hosts))

    def _move(self, link: WaitingLink) -> None:
        """Queue a link with the links of the host that it was redirected to."""
        name = host_of(link.hops[-1])
        if name not in self._hosts:
            self._hosts[name] = HostLinks(name)
            self._tasks.create_task(self._visit_host(name))
        self._hosts[name].waiting.append(link)
