"""What a fetch knows of its hosts, on disk: the links that wait for each, and each robots.txt.

A host is visited by one visit at a time, so that the rate of a crawl is the number of hosts that can be visited at
once. Links by host, instead of a window of links in their order, keep that number up where one host has many of
them. Hosts with more links come first: the largest decides when the crawl ends.

The SQLite database is made again at each start, from the links that the journal does not name; memory does not
grow with the links. SQLite sorts them in the system's folder for temporary files.
"""

from __future__ import annotations

import errno
import sqlite3
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

QUEUES = ".queues.sqlite"
_TAKEN = 50  # links of one host in memory
_SORTED = """
CREATE TABLE links AS SELECT url FROM arrived ORDER BY host, rowid;
CREATE TABLE hosts AS
    SELECT host, COUNT(*) AS links, SUM(COUNT(*)) OVER (ORDER BY host) AS last FROM arrived GROUP BY host;
DROP TABLE arrived;
CREATE TABLE robots (origin TEXT PRIMARY KEY, until REAL, failed INTEGER, body BLOB) WITHOUT ROWID;
"""


class WaitingLink(NamedTuple):
    """A link, its previous attempts, and the URLs of the redirects that led from it to this host."""

    url: str
    attempts: int = 0
    hops: tuple[str, ...] = ()


@dataclass
class HostLinks:
    """The links of one host: the numbers of the first and the last on disk, and the next ones."""

    host: str
    first: int
    last: int
    waiting: deque[WaitingLink] = field(default_factory=deque)


class RobotsFile(NamedTuple):
    """A robots.txt as it was fetched; an empty one allows everything.

    until: when, by the monotonic clock, it is requested again; failed: the number of consecutive failed requests.
    """

    until: float
    failed: int
    body: bytes


class HostQueues:
    """The database of a fetch. Close it when the fetch ends, which removes it."""

    def __init__(self, folder: Path, urls: Iterable[tuple[str, str]]) -> None:
        """`urls` are pairs of host and link, in order."""
        self._path = folder / QUEUES
        self._path.unlink(missing_ok=True)  # of a fetch that was killed
        with _storage():
            self._database = sqlite3.connect(self._path, isolation_level=None)
            self._database.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")
            self._database.execute("CREATE TABLE arrived (host TEXT, url TEXT)")
            self._database.execute("BEGIN")
            self._database.executemany("INSERT INTO arrived VALUES (?, ?)", urls)
            self._database.execute("COMMIT")
            self._database.executescript(_SORTED)
            self._hosts = self._database.execute("SELECT host, links, last FROM hosts ORDER BY links DESC, host")

    def next_host(self) -> HostLinks | None:
        """Return the host with most links of those not yet returned; None after the last."""
        with _storage():
            row = self._hosts.fetchone()
        return HostLinks(row[0], row[2] - row[1] + 1, row[2]) if row else None

    def take(self, host: HostLinks) -> bool:
        """Read more links of a host if none is in memory; return whether one waits."""
        if not host.waiting and host.first <= host.last:
            with _storage():
                query = "SELECT url FROM links WHERE rowid BETWEEN ? AND ? ORDER BY rowid LIMIT ?"
                rows = self._database.execute(query, (host.first, host.last, _TAKEN))
                host.waiting.extend(WaitingLink(*row) for row in rows)
            host.first += len(host.waiting)
        return bool(host.waiting)

    def robots(self, origin: str) -> RobotsFile | None:
        """Return the robots.txt of an origin, if it was fetched."""
        with _storage():
            query = "SELECT until, failed, body FROM robots WHERE origin = ?"
            row = self._database.execute(query, (origin,)).fetchone()
        return RobotsFile(row[0], row[1], zlib.decompress(row[2])) if row else None

    def keep_robots(self, origin: str, file: RobotsFile) -> None:
        """Save the robots.txt of an origin."""
        with _storage():
            values = (origin, file.until, file.failed, zlib.compress(file.body))
            self._database.execute("INSERT OR REPLACE INTO robots VALUES (?, ?, ?, ?)", values)

    def close(self) -> None:
        """Remove the database."""
        self._hosts.close()
        self._database.close()
        self._path.unlink(missing_ok=True)


@contextmanager
def _storage() -> Iterator[None]:
    """Turn SQLite's errors into those of a file."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise OSError(errno.ENOSPC if "full" in str(error) else errno.EIO, str(error)) from None
