"""From links to pages: `headwater corpus fetch`, polite, and robust against whatever answers.

Polite: robots.txt is asked first and kept to (RFC 9309: unreachable means no, missing means yes), one visit at a
time to a host and a delay between two, Retry-After heeded, a name in every request and the contact that was given.
Robust: every page has a limit in seconds and in bytes, unpacked; redirects are followed by hand, each hop checked
like a link; addresses that are not public are refused, in the URL, in a redirect and in what DNS answers, at the
moment of connecting.

What comes back is written as WARC, one gzip member a page, its body unpacked. A journal takes one line for each
link that is done, with how far the WARC file reached: killed at any moment, the same command goes on at the next
link. The order of pages is that of their arrival.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import hashlib
import heapq
import json
import time
import uuid
from array import array
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import numpy as np
from pydantic import Field

from headwater.config import Config
from headwater.corpus.destination import Destination
from headwater.corpus.links import read_links
from headwater.corpus.pages import PAGE_BYTES
from headwater.corpus.urls import canonical_url, host_of
from headwater.corpus.visit import Fetched, Refused, Visitor, require_packages
from headwater.errors import DataError, FolderError, resumable
from headwater.lock import folder_lock
from headwater.progress import SILENT, Progress
from headwater.provenance import check_files, record_files
from headwater.storage import parse_json, storage_errors, write_json

FUNNEL = "funnel.json"
JOURNAL = ".journal.jsonl"
EXAMPLES = 10
CUT_PAGE = "page, cut short"  # the outcome of a link to an answer that never came whole; its record says so
WARC_BYTES = 1024**3  # of one WARC file, compressed
_AHEAD = 20_000  # links held in memory, waiting for their hosts


class FetchConfig(Config):
    """How to visit.

    | key | default | |
    |---|---|---|
    | hosts | 256 | visited at once |
    | delay | 1.0 | seconds between two visits to a host; a longer Crawl-delay is kept up to longest_delay |
    | longest_delay | 30.0 | a host that asks for more is left alone |
    | seconds | 30.0 | for one answer; a redirect is asked anew |
    | page_bytes | 8 MiB | unpacked; more than that is not read again, and so not asked for |
    | redirects | 5 | |
    | retries | 2 | after a failure that may pass: no connection, a cut answer, 429, 5xx |
    | back_off | 5.0 | seconds before the first retry, four times as long before each further one |
    | longest_wait | 120.0 | Retry-After is kept up to so many seconds; for a longer one the link is given up |
    | failures | 3 | links in a row without any answer, after which a host is given up |
    | contact | none | an address or page for those who run the hosts, part of the user agent |
    | allow_private | false | visit addresses that are not public: for a web of your own |
    """

    hosts: int = Field(default=256, ge=1)
    delay: float = Field(default=1.0, ge=0)
    longest_delay: float = Field(default=30.0, ge=0)
    seconds: float = Field(default=30.0, gt=0)
    page_bytes: int = Field(default=PAGE_BYTES, ge=1, le=PAGE_BYTES)
    redirects: int = Field(default=5, ge=0)
    retries: int = Field(default=2, ge=0)
    back_off: float = Field(default=5.0, ge=0)
    longest_wait: float = Field(default=120.0, ge=0)
    failures: int = Field(default=3, ge=1)
    contact: str = Field(default="", pattern=r"^[\x20-\x7e]*$")
    allow_private: bool = False


@resumable()
def fetch_links(
    links: str | Path, out: str | Path, config: FetchConfig | None = None, *, progress: Progress = SILENT
) -> dict[str, Any]:
    """Visit the links of a links folder and write the pages folder `out`, go on with one, or find it there.

    Both may be URLs; pages for a URL are gathered on this machine and uploaded at the end.
    Returns what was counted: links, pages (those cut short too), bytes, outcomes {outcome: links}, examples
    {outcome: [url, …]}.
    """
    config = config or FetchConfig()
    require_packages()
    # What only says how fast or on whose behalf may change between two runs of one fetch.
    free = {"hosts", "delay", "contact", "back_off", "longest_wait", "retries", "failures"}
    decisive = {key: value for key, value in config.to_dict().items() if key not in free}
    place = Destination(out)
    stage = place.stage(kind="pages", config=decisive, inputs={"links": links}, grows=True)
    if stage.inputs[0].kind != "links":  # said before anything is begun
        raise FolderError(
            f"{links} is no links folder ({stage.inputs[0].kind})",
            repair="Make one with: headwater corpus links DUMP… --out links",
        )
    if place.is_complete(stage, progress):
        (place.folder / JOURNAL).unlink(missing_ok=True)  # of a fetch killed after its last word
        found: dict[str, Any] = place.read_json(FUNNEL)
        return found
    out = place.folder
    with storage_errors(out):
        stage.begin()
    with storage_errors(out), folder_lock(out):
        book = _Book(out)
        try:
            progress.start("fetch", unit="links")
            asyncio.run(_Fetch(config, book, progress).run(_urls(links)))
        finally:
            book.close()
        if not book.links:
            raise DataError(f"{links} holds no links", repair="Gather more with: headwater corpus links")
        result = book.result()
        write_json(out / FUNNEL, result)
        files = record_files(out)  # for hours, where the pages are many: killed here, the journal still knows them
        stage.finish(files)
        check_files(out, stage.manifest(files, complete=True), hashes=False)
        (out / JOURNAL).unlink()
    progress.finish(f"{book.pages:,} pages of {book.links:,} links, {book.bytes / 1e6:.1f} MB")
    place.publish(progress)
    return result


class _Host:
    """A host while links to it are waiting."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[str, int]] = deque()  # (link, attempts made)
        self.scheduled = False


class _Fetch:
    """One loop that sends a visit to each host when its time has come."""

    def __init__(self, config: FetchConfig, book: _Book, progress: Progress) -> None:
        self._config, self._book, self._progress = config, book, progress
        self._hosts: dict[str, _Host] = {}
        self._failures: Counter[str] = Counter()  # links in a row without any answer, by host
        self._ready: list[tuple[float, int, str]] = []  # (time, order, host)
        self._order = self._waiting = 0
        self._visits: set[asyncio.Task[None]] = set()
        self._exhausted = False
        self._failure: BaseException | None = None

    async def run(self, urls: Iterator[str]) -> None:
        """Visit all of `urls` that the journal does not have."""
        self._changed = asyncio.Event()
        async with Visitor(self._config) as visitor:
            try:
                while self._failure is None:
                    self._refill(urls, visitor)
                    while self._ready and len(self._visits) < self._config.hosts:
                        if self._ready[0][0] > time.monotonic():
                            break
                        self._send(visitor, heapq.heappop(self._ready)[2])
                    if self._exhausted and not self._ready and not self._visits:
                        break
                    self._changed.clear()
                    full = len(self._visits) >= self._config.hosts
                    wait = None if full or not self._ready else self._ready[0][0] - time.monotonic()
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._changed.wait(), wait if wait is None else max(wait, 0.001))
            finally:
                for visit in self._visits:
                    visit.cancel()
                await asyncio.gather(*self._visits, return_exceptions=True)
        if self._failure is not None:
            raise self._failure

    def _send(self, visitor: Visitor, name: str) -> None:
        visit = asyncio.create_task(self._visit(visitor, name))
        self._visits.add(visit)
        visit.add_done_callback(self._ended)

    def _ended(self, visit: asyncio.Task[None]) -> None:
        self._visits.discard(visit)
        if not visit.cancelled():
            self._failure = self._failure or visit.exception()
        self._changed.set()

    async def _visit(self, visitor: Visitor, name: str) -> None:
        """Visit the next link of a host, write down what came of it, and put the host back in line."""
        host = self._hosts[name]
        url, attempts = host.waiting.popleft()
        self._waiting -= 1
        if self._failures[name] >= self._config.failures:
            self._book.refuse(url, "host gave no answer")
        else:
            try:
                page = await visitor.visit(url)
                self._failures.pop(name, None)
                self._book.add(url, page)
            except Refused as refusal:
                if refusal.passing and attempts < self._config.retries:
                    # Back in line, so that nobody stands idle meanwhile: behind the other links of a host that led
                    # to another, for these need not wait for that one.
                    if refusal.host == name or not host.waiting:
                        visitor.hold(name, self._config.back_off * 4**attempts)
                        host.waiting.appendleft((url, attempts + 1))
                    else:
                        host.waiting.append((url, attempts + 1))
                    self._waiting += 1
                else:
                    if refusal.no_answer:
                        self._failures[name] += 1
                    else:
                        self._failures.pop(name, None)
                    if refusal.page is not None:
                        self._book.add(url, refusal.page, cut=True)
                    else:
                        self._book.refuse(url, refusal.outcome)
        self._progress.advance(self._book.links, pages=self._book.pages, hosts=len(self._visits))
        host.scheduled = False
        self._schedule(name, host, visitor)

    def _schedule(self, name: str, host: _Host, visitor: Visitor) -> None:
        if host.waiting and not host.scheduled:
            host.scheduled = True
            self._order += 1
            heapq.heappush(self._ready, (visitor.free_at(name), self._order, name))
        elif not host.waiting:
            del self._hosts[name]

    def _refill(self, urls: Iterator[str], visitor: Visitor) -> None:
        """Read links until enough are waiting."""
        if self._exhausted or self._waiting > _AHEAD // 2:
            return
        for url in urls:
            if self._book.has(url):
                continue
            name = host_of(url)
            host = self._hosts.setdefault(name, _Host())
            host.waiting.append((url, 0))
            self._waiting += 1
            self._schedule(name, host, visitor)
            if self._waiting >= _AHEAD:
                return
        self._exhausted = True


class _Book:
    """The WARC files and the journal of a fetch, gone on with where they were left."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self.links = self.pages = self.bytes = 0
        self._outcomes: Counter[str] = Counter()
        self._examples: dict[str, list[str]] = {}
        self._done = array("Q")  # the links of earlier runs, as numbers in order: 8 bytes a link
        self._warc: IO[bytes] | None = None
        self._number = self._end = 0
        self._recover()
        self._journal = (out / JOURNAL).open("a", encoding="utf-8")

    def has(self, url: str) -> bool:
        """Whether a link was done by an earlier run; those of this run are not met twice."""
        number = _short(url)
        place = bisect_left(self._done, number)
        return place < len(self._done) and self._done[place] == number

    def refuse(self, url: str, outcome: str) -> None:
        """Write down a link of which no page came."""
        self._note({"url": url, "outcome": outcome})

    def add(self, link: str, page: Fetched, *, cut: bool = False) -> None:
        """Write a page, or as much of it as came, and its line in the journal."""
        if self._warc is None or self._end >= WARC_BYTES:
            self._next_file()
        assert self._warc is not None
        self._warc.write(gzip.compress(_record(link, page, cut), 6))
        self._warc.flush()
        self._end = self._warc.tell()
        outcome, size = CUT_PAGE if cut else "page", len(page.body)
        self._note({"url": link, "outcome": outcome, "bytes": size, "file": self._number, "end": self._end})

    def result(self) -> dict[str, Any]:
        """What was counted."""
        return {
            "links": self.links,
            "pages": self.pages,
            "bytes": self.bytes,
            "outcomes": dict(self._outcomes.most_common()),
            "examples": self._examples,
        }

    def close(self) -> None:
        self._journal.close()
        if self._warc is not None:
            self._warc.close()

    def _note(self, entry: dict[str, Any]) -> None:
        self._journal.write(json.dumps(entry) + "\n")
        self._journal.flush()
        self._count(entry)

    def _count(self, entry: dict[str, Any]) -> None:
        self.links += 1
        self._outcomes[entry["outcome"]] += 1
        shown = self._examples.setdefault(entry["outcome"], [])
        if len(shown) < EXAMPLES:
            shown.append(entry["url"])
        if "file" in entry:
            self.pages += 1
            self.bytes += entry["bytes"]

    def _recover(self) -> None:
        """Count what the journal has and cut off what it does not vouch for."""
        journal = self._out / JOURNAL
        whole = 0
        if journal.exists():
            with journal.open("rb") as handle:
                for number, line in enumerate(handle, 1):
                    if not line.endswith(b"\n"):
                        break
                    whole += len(line)
                    try:
                        entry = parse_json(line)
                        self._done.append(_short(entry["url"]))
                        self._count(entry)
                        if "file" in entry:
                            self._number, self._end = int(entry["file"]), int(entry["end"])
                    except (json.JSONDecodeError, LookupError, TypeError, ValueError, AttributeError):
                        raise self._damaged(journal, f"line {number} cannot be read") from None
            with journal.open("r+b") as handle:
                handle.truncate(whole)
        if self._done:
            np.frombuffer(self._done, np.uint64).sort()
        for path in sorted(self._out.glob("pages-*.warc.gz")):
            if not self.pages or path.name > _warc_name(self._number):
                path.unlink()
        if self.pages:
            for number in range(self._number + 1):
                path = self._out / _warc_name(number)
                if not path.is_file() or (number == self._number and path.stat().st_size < self._end):
                    raise self._damaged(
                        path, "it ends before its journal does" if path.is_file() else "it is gone"
                    )
            self._warc = (self._out / _warc_name(self._number)).open("r+b")
            self._warc.truncate(self._end)
            self._warc.seek(self._end)

    def _damaged(self, path: Path, how: str) -> FolderError:
        return FolderError(f"{path} was cut short or altered: {how}", repair=f"Remove {self._out} to fetch anew")

    def _next_file(self) -> None:
        if self._warc is not None:
            self._warc.close()
            self._number += 1
        self._warc = (self._out / _warc_name(self._number)).open("wb")
        header = "software: Headwater\r\nformat: WARC File Format 1.1\r\n"
        self._warc.write(gzip.compress(_warc_block("warcinfo", "application/warc-fields", header.encode(), "")))
        self._end = self._warc.tell()


def _urls(links: str | Path) -> Iterator[str]:
    return (url for link in read_links(links) if (url := canonical_url(link["url"])))


def _short(url: str) -> int:
    """A number for a URL: among 45 million links two have the same one with a probability of 1 in 20,000."""
    return int.from_bytes(hashlib.blake2b(url.encode(), digest_size=8).digest(), "little")


def _warc_name(number: int) -> str:
    return f"pages-{number:05d}.warc.gz"


def _record(link: str, page: Fetched, cut: bool) -> bytes:
    """A response record; headers that speak of the packed form go, the length is that of the body here."""
    body = page.body
    dropped = {"content-encoding", "transfer-encoding", "content-length", "connection"}
    kept = [f"{name}: {value}\r\n" for name, value in page.headers if name.lower() not in dropped]
    head = f"{page.status_line}\r\n{''.join(kept)}Content-Length: {len(body)}\r\n\r\n".encode("utf-8", "replace")
    digest = base64.b32encode(hashlib.sha1(body, usedforsecurity=False).digest()).decode()
    extra = f"WARC-Target-URI: {page.url}\r\nWARC-Payload-Digest: sha1:{digest}\r\nX-Headwater-Link: {link}\r\n"
    if cut:
        extra += "WARC-Truncated: disconnect\r\n"
    return _warc_block("response", "application/http; msgtype=response", head + body, extra)


def _warc_block(kind: str, content_type: str, block: bytes, extra: str) -> bytes:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    header = (
        f"WARC/1.1\r\nWARC-Type: {kind}\r\nWARC-Date: {now}\r\nWARC-Record-ID: <urn:uuid:{uuid.uuid4()}>\r\n"
        f"{extra}Content-Type: {content_type}\r\nContent-Length: {len(block)}\r\n\r\n"
    )
    return header.encode("utf-8", "replace") + block + b"\r\n\r\n"
