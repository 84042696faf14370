"""Fetch the pages of links, politely and robustly: `headwater corpus fetch`.

Polite: it obeys robots.txt (RFC 9309: unreachable means no, missing means yes) and Retry-After, visits a host once
at a time with a delay in between, and sends its name and a contact. Robust: every page has a timeout and a maximum
unpacked size; each redirect is checked like a link; addresses that are not public are refused in URLs, in
redirects and in DNS answers at the time of connecting.

`crawl_log` writes the pages in the order of arrival. The same command resumes a killed fetch at the next link.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import time
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headwater.corpus.web.crawl_log import JOURNAL, CrawlLog
from headwater.corpus.web.fetch_config import FetchConfig
from headwater.corpus.web.links import read_links
from headwater.corpus.web.urls import canonical_url, host_of
from headwater.corpus.web.visit import Refused, Visitor, require_packages
from headwater.errors import DataError, FolderError, resumable
from headwater.storage import SILENT, Destination, Progress, Stage, folder_lock, storage_errors, write_json

FUNNEL = "funnel.json"
_AHEAD = 20_000  # links in memory that wait for their hosts


@resumable()
def fetch_links(
    links: str | Path, out: str | Path, config: FetchConfig | None = None, *, progress: Progress = SILENT
) -> dict[str, Any]:
    """Visit the links of a links folder and write the pages folder `out`; resume it, or keep it if complete.

    Both may be URLs; pages for a URL are uploaded at the end. Returns counts: links, pages (also those cut short),
    bytes, outcomes {outcome: links}, examples {outcome: [url, …]}.
    """
    config = config or FetchConfig()
    require_packages()
    # Settings of speed and contact may change between two runs of one fetch.
    free = {"hosts", "delay", "contact", "back_off", "longest_wait", "retries", "failures"}
    decisive = {key: value for key, value in config.to_dict().items() if key not in free}
    destination = Destination(out)
    inputs = {"links": links}
    moves = bool(destination.url)
    stage = Stage(destination.folder, kind="pages", config=decisive, inputs=inputs, moves=moves, grows=True)
    if stage.inputs[0].kind != "links":
        raise FolderError(
            f"{links} is not a links folder ({stage.inputs[0].kind})",
            repair="Make one with: headwater corpus links DUMP… --out links",
        )
    if destination.is_complete(stage, progress):
        (destination.folder / JOURNAL).unlink(missing_ok=True)  # of a fetch killed after its last step
        return destination.read_json(FUNNEL)
    out = destination.folder
    with storage_errors(out):
        stage.begin()
    with storage_errors(out), folder_lock(out):
        log = CrawlLog(out)
        try:
            progress.start("fetch", unit="links")
            urls = (url for link in read_links(links) if (url := canonical_url(link["url"])))
            asyncio.run(_Fetch(config, log, progress).run(urls))
        finally:
            log.close()
        if not log.links:
            raise DataError(f"{links} contains no links", repair="Gather more with: headwater corpus links")
        result = log.result()
        write_json(out / FUNNEL, result)
        stage.finish()  # may take hours; killed here, the fetch still has its journal
        (out / JOURNAL).unlink()
    progress.finish(f"{log.pages:,} pages of {log.links:,} links, {log.bytes / 1e6:.1f} MB")
    destination.publish(progress)
    return result


class _Fetch:
    """One loop that starts a visit to each host at its time."""

    def __init__(self, config: FetchConfig, log: CrawlLog, progress: Progress) -> None:
        self._config, self._log, self._progress = config, log, progress
        # Waiting links of each host that is scheduled or visited: (link, previous attempts).
        self._hosts: dict[str, deque[tuple[str, int]]] = {}
        self._failures: Counter[str] = Counter()  # consecutive links without an answer, by host
        self._ready: list[tuple[float, int, str]] = []  # (time, order, host)
        self._order = self._waiting = self._visits = 0
        self._exhausted = False

    async def run(self, urls: Iterator[str]) -> None:
        """Visit all `urls` that are not in the journal."""
        self._changed = asyncio.Event()
        try:
            async with Visitor(self._config) as visitor, asyncio.TaskGroup() as visits:
                while True:
                    self._refill(urls, visitor)
                    free = self._config.hosts - self._visits
                    while self._ready and free and self._ready[0][0] <= time.monotonic():
                        visits.create_task(self._visit(visitor, heapq.heappop(self._ready)[2]))
                        self._visits += 1
                        free -= 1
                    if self._exhausted and not self._ready and not self._visits:
                        break
                    self._changed.clear()
                    wait = max(0.001, self._ready[0][0] - time.monotonic()) if self._ready and free else None
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(wait):
                            await self._changed.wait()
        except BaseExceptionGroup as failed:  # visits that raised; the others were cancelled
            raise failed.exceptions[0] from None

    async def _visit(self, visitor: Visitor, name: str) -> None:
        """Visit the next link of a host, record the outcome, and schedule the host again."""
        waiting = self._hosts[name]
        url, attempts = waiting.popleft()
        self._waiting -= 1
        if self._failures[name] >= self._config.failures:
            self._log.refuse(url, "host gave no answer")
        else:
            try:
                page = await visitor.visit(url)
                self._failures.pop(name, None)
                self._log.add(url, page)
            except Refused as refusal:
                if refusal.temporary and attempts < self._config.retries:
                    # Retry later. If a redirect led to another host, this host's other links need not wait.
                    if refusal.host == name or not waiting:
                        visitor.postpone(name, self._config.back_off * 4**attempts)
                        waiting.appendleft((url, attempts + 1))
                    else:
                        waiting.append((url, attempts + 1))
                    self._waiting += 1
                else:
                    if refusal.no_answer:
                        self._failures[name] += 1
                    else:
                        self._failures.pop(name, None)
                    if refusal.page is not None:
                        self._log.add(url, refusal.page, cut=True)
                    else:
                        self._log.refuse(url, refusal.outcome)
        self._progress.advance(self._log.links, pages=self._log.pages, hosts=self._visits)
        if waiting:
            self._schedule(name, visitor)
        else:
            del self._hosts[name]
        self._visits -= 1
        self._changed.set()

    def _schedule(self, name: str, visitor: Visitor) -> None:
        self._order += 1
        heapq.heappush(self._ready, (visitor.free_at(name), self._order, name))

    def _refill(self, urls: Iterator[str], visitor: Visitor) -> None:
        """Read links until enough are waiting."""
        if self._exhausted or self._waiting > _AHEAD // 2:
            return
        for url in urls:
            if self._log.has(url):
                continue
            name = host_of(url)
            if name not in self._hosts:
                self._hosts[name] = deque()
                self._schedule(name, visitor)
            self._hosts[name].append((url, 0))
            self._waiting += 1
            if self._waiting >= _AHEAD:
                return
        self._exhausted = True
