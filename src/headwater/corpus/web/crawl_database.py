"""The state of a fetch: an SQLite database of its links, and the WARC files of its pages.

A host is visited by one visit at a time, so that the rate of a crawl is the number of hosts that can be visited at
once. Links by host, instead of a window of links in their order, keep that number up where one host has many of
them. Hosts with more links come first: the largest decides when the crawl ends. Memory does not grow with links.

Each outcome is a transaction, after its page was written: a killed fetch resumes with the links that have no
outcome. A power cut may lose the last transactions and pages, but no transaction is flushed before its page. What
the files have beyond the last page that the database names is truncated.
"""

from __future__ import annotations

import errno
import sqlite3
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from headwater.corpus.folder import Tally
from headwater.corpus.sources.pages import whole_members
from headwater.corpus.web.answers import Fetched
from headwater.corpus.web.robots import RobotsFile
from headwater.corpus.web.urls import host_of
from headwater.corpus.web.warc import RecordSpan, WarcWriter, warc_path
from headwater.errors import FolderError
from headwater.storage import atomic_path

DATABASE = ".crawl.sqlite"
CUT_PAGE = "page, cut short"  # outcome of a link whose answer never arrived completely; its record says so
SYNC_LINKS = 100
_TAKEN = 50  # links of one host in memory
# Arrived links are sorted by host as a whole: inserted one by one, they would write a page of the disk each.
_IMPORT = """
CREATE TABLE links (
    host TEXT, number INTEGER, url TEXT, outcome TEXT, bytes INTEGER, file INTEGER, start INTEGER, stop INTEGER,
    PRIMARY KEY (host, number)
) WITHOUT ROWID;
INSERT INTO links SELECT host, rowid, url, outcome, NULL, NULL, NULL, NULL FROM arrived ORDER BY host, rowid;
DROP TABLE arrived;
"""
# One process has the database: it needs no shared memory. Checkpoints happen after the pages are flushed.
_OPEN = """
PRAGMA locking_mode = EXCLUSIVE;
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
PRAGMA wal_autocheckpoint = 0;
CREATE TEMP TABLE robots (origin TEXT PRIMARY KEY, until REAL, failed INTEGER, body BLOB) WITHOUT ROWID;
CREATE TEMP TABLE hosts (host TEXT);
"""


class WaitingLink(NamedTuple):
    """A link, its number, its previous attempts, and the redirects that led from it to another host."""

    url: str
    number: int
    attempts: int = 0
    hops: tuple[str, ...] = ()


@dataclass
class HostLinks:
    """The links of one host that are in memory; those after the number `last` are in the database.

    last: None if no link of the database is this host's to visit.
    """

    host: str
    last: int | None = None
    waiting: deque[WaitingLink] = field(default_factory=deque)


class CrawlDatabase:
    """The links and pages of a fetch; recovers those of an earlier run. Close it at the end.

    links, pages: numbers of those that are done.
    """

    def __init__(self, out: Path, urls: Iterable[tuple[str, str, str | None]]) -> None:
        """`urls` are (host, link, outcome) in order, read if `out` has no database.

        Raises FolderError if pages of an earlier run would be lost.
        """
        self._out, self._path = out, out / DATABASE
        if not self._path.exists():
            for warc in out.glob("pages-*.warc.gz"):
                raise self._damaged(self._path, f"it does not name the pages of {warc.name}")
            self._import(urls)
        with self._storage():
            self._database = sqlite3.connect(self._path, isolation_level=None)
            self._database.executescript(_OPEN)
        self._warc = WarcWriter(out, self._recover())
        ((self.links, self.pages),) = self._execute("SELECT COUNT(outcome), COUNT(file) FROM links")
        self._execute(
            "INSERT INTO hosts SELECT host FROM links WHERE outcome IS NULL "
            "GROUP BY host ORDER BY COUNT(*) DESC, host"
        )
        self._next_host = 1
        self._unflushed = 0  # links

    def next_host(self) -> HostLinks | None:
        """Return the remaining host with the most links; None after the last."""
        rows = self._execute("SELECT host FROM hosts WHERE rowid = ?", self._next_host)
        self._next_host += 1
        return HostLinks(rows[0][0], 0) if rows else None

    def take(self, host: HostLinks) -> bool:
        """Read more links of a host if none is in memory; return whether one waits."""
        if not host.waiting and host.last is not None:
            query = "SELECT url, number FROM links WHERE host = ? AND number > ? AND outcome IS NULL"
            rows = self._execute(f"{query} ORDER BY number LIMIT ?", host.host, host.last, _TAKEN)
            host.waiting.extend(WaitingLink(*row) for row in rows)
            host.last = host.waiting[-1].number if host.waiting else None
        return bool(host.waiting)

    def record(self, link: WaitingLink, outcome: str, *page: int) -> None:
        """Record the outcome of a link; `page` is the size of its page and the span of its record."""
        size, file, start, stop = page or (None, None, None, None)
        query = "UPDATE links SET outcome = ?, bytes = ?, file = ?, start = ?, stop = ?"
        values = outcome, size, file, start, stop, host_of(link.url), link.number
        self._execute(f"{query} WHERE host = ? AND number = ?", *values)
        self.links += 1
        self._unflushed += 1
        if self._unflushed >= SYNC_LINKS:
            self._warc.flush()
            self._execute("PRAGMA wal_checkpoint")
            self._unflushed = 0

    def add(self, link: WaitingLink, page: Fetched, *, cut: bool = False) -> None:
        """Write a page, or the part of it that arrived, and record its link."""
        span = self._warc.add(link.url, page, cut=cut)
        self.pages += 1
        self.record(link, CUT_PAGE if cut else "page", len(page.body), *span)

    def robots(self, origin: str) -> RobotsFile | None:
        """Return the robots.txt of an origin, if it was fetched in this run."""
        rows = self._execute("SELECT until, failed, body FROM robots WHERE origin = ?", origin)
        return RobotsFile(rows[0][0], rows[0][1], zlib.decompress(rows[0][2])) if rows else None

    def save_robots(self, origin: str, file: RobotsFile) -> None:
        """Save the robots.txt of an origin."""
        body = zlib.compress(file.body)
        self._execute("INSERT OR REPLACE INTO robots VALUES (?, ?, ?, ?)", origin, file.until, file.failed, body)

    def result(self) -> dict[str, Any]:
        """Return the counts of all links."""
        outcomes = Tally()
        with self._storage():
            for row in self._database.execute("SELECT outcome, url FROM links WHERE outcome IS NOT NULL"):
                outcomes.add(*row)
        ((size,),) = self._execute("SELECT COALESCE(SUM(bytes), 0) FROM links")
        ordered = sorted(outcomes.items(), key=lambda named: -named[1]["count"])
        return {
            "links": self.links,
            "pages": self.pages,
            "bytes": size,
            "outcomes": {name: entry["count"] for name, entry in ordered},
            "examples": {name: entry["examples"] for name, entry in outcomes.items()},
        }

    def close(self) -> None:
        """Flush and close all files."""
        try:
            self._warc.close()
        finally:
            self._database.close()

    def _import(self, urls: Iterable[tuple[str, str, str | None]]) -> None:
        with atomic_path(self._path) as path, self._storage():
            database = sqlite3.connect(path, isolation_level=None)
            try:
                database.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")
                database.execute("CREATE TABLE arrived (host TEXT, url TEXT, outcome TEXT)")
                database.execute("BEGIN")
                database.executemany("INSERT INTO arrived VALUES (?, ?, ?)", urls)
                database.execute("COMMIT")
                database.executescript(_IMPORT)
            finally:
                database.close()

    def _recover(self) -> RecordSpan | None:
        """Return the last page on which database and WARC files agree; remove what either has after it.

        Raises FolderError if those are more pages than a power cut may lose.
        """
        most = 2 * SYNC_LINKS
        query = "SELECT host, number, file, start, stop FROM links WHERE file IS NOT NULL"
        recent = self._execute(f"{query} ORDER BY file DESC, stop DESC LIMIT ?", most + 1)[::-1]
        spans = [RecordSpan(*row[2:]) for row in recent]
        whole = next((n for n, span in enumerate(spans) if not span.is_readable(self._out)), len(spans))
        if not whole and len(spans) > most:
            raise self._damaged(warc_path(self._out, spans[0].file), "it ends before its database does")
        last = spans[whole - 1] if whole else None
        for number in range(last.file if last else 0):
            if not (path := warc_path(self._out, number)).is_file():
                raise self._damaged(path, "it is missing")
        current = warc_path(self._out, last.file) if last else None
        later = [path for path in sorted(self._out.glob("pages-*.warc.gz")) if not current or path >= current]
        for path in later:
            begin = last.stop if last and path == current else 0
            if sum(islice(whole_members(path, begin), most + 1)) > most:
                raise self._damaged(self._path, f"it does not name the pages of {path.name}")
        for path in later:
            if path != current:
                path.unlink()
        lost = "UPDATE links SET outcome = NULL, bytes = NULL, file = NULL WHERE host = ? AND number = ?"
        for host, number, *_ in recent[whole:]:
            self._execute(lost, host, number)
        return last

    def _execute(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._storage():
            return self._database.execute(query, values).fetchall()

    @contextmanager
    def _storage(self) -> Iterator[None]:
        """Turn SQLite's errors into errors of the file."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise OSError(errno.ENOSPC if "full" in str(error) else errno.EIO, str(error)) from None
        except sqlite3.DatabaseError as error:
            raise self._damaged(self._path, str(error)) from None

    def _damaged(self, path: Path, how: str) -> FolderError:
        return FolderError(
            f"{path} was cut short or altered: {how}",
            repair=f"Copy that file again from where it was, or remove {self._out} to fetch it again",
        )
