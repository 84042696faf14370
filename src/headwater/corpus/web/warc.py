"""Write crawled pages to WARC files: one gzip member for each page, with the body unpacked."""

from __future__ import annotations

import base64
import gzip
import hashlib
import os
import uuid
import zlib
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, NamedTuple

from headwater.corpus.web.answers import Fetched
from headwater.storage import atomic_write

WARC_BYTES = 1024**3  # of one WARC file, compressed


class RecordSpan(NamedTuple):
    """Where a record is: the number of its WARC file, and its first byte and the one after its last."""

    file: int
    start: int
    stop: int

    def is_readable(self, folder: Path) -> bool:
        """Return whether the record can be unpacked."""
        try:
            with warc_path(folder, self.file).open("rb") as handle:
                handle.seek(self.start)
                packed = handle.read(self.stop - self.start)
            gzip.decompress(packed)
        except (OSError, EOFError, zlib.error):  # a gzip file that is not one is an OSError
            return False
        return len(packed) == self.stop - self.start


class WarcWriter:
    """Appends pages to the WARC files of a folder, after a record that was written before."""

    def __init__(self, folder: Path, last: RecordSpan | None) -> None:
        """Truncate the file of the record `last` after it."""
        self._folder = folder
        self._number = last.file if last else 0
        self._file: IO[bytes] | None = None
        if last:
            self._file = warc_path(folder, last.file).open("r+b")
            self._file.truncate(last.stop)
            self._file.seek(last.stop)

    def add(self, link: str, page: Fetched, *, cut: bool) -> RecordSpan:
        """Write a page, or the part of it that arrived."""
        if self._file is None or self._file.tell() >= WARC_BYTES:
            self._file = self._next_file()
        start = self._file.tell()
        self._file.write(gzip.compress(_record(link, page, cut), 6))
        self._file.flush()
        return RecordSpan(self._number, start, self._file.tell())

    def flush(self) -> None:
        """Make the pages survive a power cut."""
        if self._file is not None:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Flush and close the file."""
        if self._file is not None:
            self.flush()
            self._file.close()

    def _next_file(self) -> IO[bytes]:
        if self._file is not None:
            self.close()
            self._number += 1
        path = warc_path(self._folder, self._number)
        header = "software: Headwater\r\nformat: WARC File Format 1.1\r\n"
        with atomic_write(path) as handle:
            handle.write(gzip.compress(_warc_block("warcinfo", "application/warc-fields", header.encode(), "")))
        return path.open("ab")


def warc_path(folder: Path, number: int) -> Path:
    """Return the path of a WARC file in a folder of pages."""
    return folder / f"pages-{number:05d}.warc.gz"


def _record(link: str, page: Fetched, cut: bool) -> bytes:
    """Return a response record, with headers that describe the unpacked body."""
    body = page.body
    dropped = {"content-encoding", "transfer-encoding", "content-length", "connection"}
    headers = [f"{name}: {value}\r\n" for name, value in page.headers if name.lower() not in dropped]
    headers.append(f"Content-Length: {len(body)}\r\n")
    head = f"{page.status_line}\r\n{''.join(headers)}\r\n".encode("utf-8", "replace")
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
