"""The state of a fetch: pages in WARC files, and a journal of the links that are done.

A WARC file has one gzip member a page, with the body unpacked. The journal has one line a link, with the length of
the WARC file after it. Both are flushed to the disk every SYNC_LINKS links, the WARC first. A power cut may lose
the end of either: the fetch resumes after the last line whose page can be read.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import uuid
import zlib
from array import array
from bisect import bisect_left
from collections import deque
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from headwater.corpus.folder import Tally, rank
from headwater.corpus.sources.pages import whole_members
from headwater.corpus.web.visit import Fetched
from headwater.errors import FolderError
from headwater.reading import parse_json
from headwater.storage import atomic_write

JOURNAL = ".journal.jsonl"
CUT_PAGE = "page, cut short"  # outcome of a link whose answer never arrived completely; its record says so
WARC_BYTES = 1024**3  # of one WARC file, compressed
SYNC_LINKS = 100


class CrawlLog:
    """The WARC files and the journal of a fetch; recovers those of an earlier run."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self.links = self.pages = self.bytes = 0
        self._outcomes = Tally()
        self._done = array("Q")  # sorted hashes of earlier links: two of 45 million are equal once in 20,000
        self._warc: IO[bytes] | None = None
        self._number = self._end = 0  # of the WARC file being written, and its length
        self._unflushed = 0  # links
        self._recover()
        self._journal = (out / JOURNAL).open("ab")

    def has(self, url: str) -> bool:
        """Return whether an earlier run finished a link; within one run no link comes twice."""
        number = rank(url)
        position = bisect_left(self._done, number)
        return position < len(self._done) and self._done[position] == number

    def refuse(self, url: str, outcome: str) -> None:
        """Record a link without a page."""
        self._note({"url": url, "outcome": outcome})

    def add(self, link: str, page: Fetched, *, cut: bool = False) -> None:
        """Write a page, or the part of it that arrived, and its line in the journal."""
        if self._warc is None or self._end >= WARC_BYTES:
            self._next_file()
        assert self._warc is not None
        self._warc.write(gzip.compress(_record(link, page, cut), 6))
        self._warc.flush()
        self._end = self._warc.tell()
        outcome, size = CUT_PAGE if cut else "page", len(page.body)
        self._note({"url": link, "outcome": outcome, "bytes": size, "file": self._number, "end": self._end})

    def result(self) -> dict[str, Any]:
        """Return the counts."""
        outcomes = sorted(self._outcomes.items(), key=lambda named: -named[1]["count"])
        return {
            "links": self.links,
            "pages": self.pages,
            "bytes": self.bytes,
            "outcomes": {name: entry["count"] for name, entry in outcomes},
            "examples": {name: entry["examples"] for name, entry in self._outcomes.items()},
        }

    def close(self) -> None:
        """Flush and close both files."""
        try:
            self._flush()
        finally:
            self._journal.close()
            if self._warc is not None:
                self._warc.close()

    def _note(self, entry: dict[str, Any]) -> None:
        self._journal.write(json.dumps(entry).encode() + b"\n")
        self._journal.flush()
        self._count(entry)
        self._unflushed += 1
        if self._unflushed >= SYNC_LINKS:
            self._flush()

    def _flush(self) -> None:
        """Make both files survive a power cut: the WARC first, so that the journal names only written pages."""
        for handle in (self._warc, self._journal):
            if handle is not None:
                handle.flush()
                os.fsync(handle.fileno())
        self._unflushed = 0

    def _count(self, entry: dict[str, Any]) -> None:
        self.links += 1
        self._outcomes.add(entry["outcome"], entry["url"])
        if "file" in entry:
            self.pages += 1
            self.bytes += entry["bytes"]

    def _recover(self) -> None:
        """Restore the state on which journal and WARC agree, and truncate both after it."""
        journal = self._out / JOURNAL
        if journal.exists():
            whole = self._read_journal(journal)
            with journal.open("r+b") as handle:
                handle.truncate(whole)
        if self._done:
            np.frombuffer(self._done, np.uint64).sort()
        self._remove_unsynced(journal)
        if self.pages:
            for number in range(self._number + 1):
                path = self._out / _warc_name(number)
                if not path.is_file() or (number == self._number and path.stat().st_size < self._end):
                    raise self._damaged(
                        path, "it ends before its journal does" if path.is_file() else "it is missing"
                    )
            self._warc = (self._out / _warc_name(self._number)).open("r+b")
            self._warc.truncate(self._end)
            self._warc.seek(self._end)

    def _remove_unsynced(self, journal: Path) -> None:
        """Remove a WARC file begun after the last flush; raise FolderError if more pages would be lost."""
        for path in sorted(self._out.glob("pages-*.warc.gz")):
            begin = self._end if self.pages and path.name == _warc_name(self._number) else 0
            is_later = not self.pages or path.name > _warc_name(self._number)
            if not begin and not is_later:
                continue
            unnamed = sum(islice(whole_members(path, begin), 2 * SYNC_LINKS + 1))
            if unnamed > 2 * SYNC_LINKS or not journal.exists():
                raise self._damaged(journal, f"it does not name the pages of {path.name}")
            if is_later:
                path.unlink()

    def _read_journal(self, journal: Path) -> int:
        """Restore the lines of a journal; return how many of its bytes to keep.

        The last lines may not have been flushed before a power cut: restore them up to the first one that cannot
        be read, or whose page cannot. Raises FolderError if an earlier line cannot be read.
        """
        recent: deque[tuple[int, dict[str, Any]]] = deque()  # (place, entry) of the last lines
        most, offset, unread = 2 * SYNC_LINKS, 0, 0
        with journal.open("rb") as handle:
            for number, line in enumerate(handle, 1):
                entry = None if unread else _parse_line(line)
                if entry is None:
                    unread += 1
                    if unread > most:
                        raise self._damaged(journal, f"line {number - unread + 1} cannot be read")
                    continue
                recent.append((offset, entry))
                offset += len(line)
                if len(recent) > most:
                    self._restore(recent.popleft()[1])
        for before, entry in recent:
            if "file" in entry and not self._is_readable(entry):
                return before
            self._restore(entry)
        return offset

    def _restore(self, entry: dict[str, Any]) -> None:
        self._done.append(rank(entry["url"]))
        self._count(entry)
        if "file" in entry:
            self._number, self._end = entry["file"], entry["end"]

    def _is_readable(self, entry: dict[str, Any]) -> bool:
        """Return whether the page of a line, which begins at the end of the previous one, can be read."""
        begin = self._end if entry["file"] == self._number else 0
        try:
            with (self._out / _warc_name(entry["file"])).open("rb") as handle:
                handle.seek(begin)
                packed = handle.read(entry["end"] - begin)
            gzip.decompress(packed)
        except (OSError, EOFError, zlib.error):  # a gzip file that is not one is an OSError
            return False
        return 0 < len(packed) == entry["end"] - begin

    def _damaged(self, path: Path, how: str) -> FolderError:
        return FolderError(
            f"{path} was cut short or altered: {how}",
            repair=f"Copy that file again from where it was, or remove {self._out} to fetch it again",
        )

    def _next_file(self) -> None:
        if self._warc is not None:
            self._flush()
            self._warc.close()
            self._number += 1
        path = self._out / _warc_name(self._number)
        header = "software: Headwater\r\nformat: WARC File Format 1.1\r\n"
        with atomic_write(path) as handle:
            handle.write(gzip.compress(_warc_block("warcinfo", "application/warc-fields", header.encode(), "")))
        self._warc = path.open("ab")
        self._end = self._warc.tell()


def _parse_line(line: bytes) -> dict[str, Any] | None:
    """Return the entry of a journal's line; None if the line was cut short or altered."""
    try:
        entry = parse_json(line)
        whole = line.endswith(b"\n") and isinstance(entry["url"], str) and isinstance(entry["outcome"], str)
        if "file" in entry:
            whole &= all(type(entry[key]) is int and entry[key] >= 0 for key in ("bytes", "file", "end"))
    except (json.JSONDecodeError, LookupError, TypeError):
        return None
    return entry if whole else None


def _warc_name(number: int) -> str:
    return f"pages-{number:05d}.warc.gz"


def _record(link: str, page: Fetched, cut: bool) -> bytes:
    """Return a response record, with headers that describe the unpacked body."""
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
