"""Read raw pages from WARC, WET and HTML files.

A page is bytes with metadata; `extract` makes text of it. A file that was cut short is used up to the cut, which
`notes` reports, as it does records and members that cannot be read. At most PAGE_BYTES of a page are read.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Literal

from headwater.corpus.folder import Tally
from headwater.errors import DataError, StorageError, require_extra
from headwater.reading import file_error

PAGE_BYTES = 8 * 1024**2  # limit for a web page
HTML_SUFFIXES = (".warc", ".warc.gz", ".html", ".htm", ".xhtml")
SUFFIXES = (*HTML_SUFFIXES, ".wet", ".wet.gz")

PageKind = Literal["html", "text"]


@dataclass(frozen=True, slots=True)
class Page:
    """One raw page; `charset` is the declared one, or empty.

    Kind of `data`: "html", a web page; "text", plain text.
    """

    name: str
    data: bytes
    kind: PageKind = "html"
    url: str = ""
    date: str = ""
    charset: str = ""


_RECORD_END = b"\r\n\r\n"
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?\r\n")
_GZIP = b"\x1f\x8b"  # the beginning of a gzip member
_BODY_BYTES = 1 << 14  # of a body unpacked at a time: what follows each of many small members is copied


def holds_pages(path: PurePath) -> bool:
    """Return whether a file, by its name, contains pages from which text is extracted."""
    return path.name.lower().endswith(SUFFIXES)


def read_pages(path: Path, notes: list[str], left_out: Tally | None = None) -> Iterator[Page]:
    """Stream the pages of a file; add a sentence to `notes` on data that was cut or cannot be used.

    Count in `left_out` the records that are not pages. Raises DataError if nothing can be read.
    """
    left_out = Tally() if left_out is None else left_out
    name = path.name.lower()
    if name.removesuffix(".gz").endswith((".warc", ".wet")):
        yield from _warc_pages(path, notes, left_out)
    else:
        with path.open("rb") as handle:
            data = handle.read(PAGE_BYTES + 1)
        if len(data) > PAGE_BYTES:
            raise DataError(f"{path} is larger than {PAGE_BYTES:,} bytes", repair="Convert it to text first")
        yield Page(name=path.name, data=data)


def _warc_pages(path: Path, notes: list[str], left_out: Tally) -> Iterator[Page]:
    with require_extra("corpus", "reading WARC"):
        from fastwarc.warc import ArchiveIterator, WarcRecordType
    position = count = cut = 0
    with path.open("rb") as handle:
        try:
            for record in ArchiveIterator(handle):
                position, count = record.stream_pos, count + 1
                if record.record_type not in (WarcRecordType.response, WarcRecordType.conversion):
                    continue
                url = (record.headers.get("WARC-Target-URI") or "").strip("<>")  # older crawlers write <URL>
                page = _page_of(record, url, record.record_type == WarcRecordType.conversion)
                if isinstance(page, str):
                    left_out.add(page, url)
                else:
                    cut += "WARC-Truncated" in record.headers
                    yield page
        except (OSError, ValueError, EOFError) as error:
            if isinstance(error, OSError) and isinstance(failure := file_error(path, error), StorageError):
                raise failure from None
            notes.append(f"{path} is damaged after {count:,} records: {error}")
    if not count:
        raise DataError(f"{path} is not a WARC file, or empty", repair="Check the file, or fetch it again")
    if cut:
        notes.append(f"{path}: {cut:,} pages were cut short; the rest of them is used")
    if not _ends_whole(path, position):
        notes.append(f"{path} is cut short after {count:,} records")


def _page_of(record: Any, url: str, converted: bool) -> Page | str:
    """Return the page of a WARC record, or the kind of a record that is not a page."""
    http = record.http_headers
    if not converted:
        if not record.is_http or http is None:
            return "responses that are not HTTP"
        if http.status_code != 200:
            return f"responses with status {http.status_code}"
        kind = (record.http_content_type or "").lower()
        if kind and "html" not in kind and kind != "text/plain":
            return "responses that are not text"
    data = record.reader.read(PAGE_BYTES + 1)
    if len(data) < min(record.content_length, PAGE_BYTES):
        return "records that end too early"
    if not converted and len(data) <= PAGE_BYTES:
        data = _joined(data) if "chunked" in http.get("Transfer-Encoding", "").lower() else data
        coding = http.get("Content-Encoding", "").strip().lower()
        if coding in {"gzip", "x-gzip", "deflate"}:
            for window in (zlib.MAX_WBITS | 32, -zlib.MAX_WBITS):  # gzip or zlib; deflate without a frame
                with suppress(zlib.error):  # the archive unpacked it
                    data = unpack_body(data, PAGE_BYTES + 1, window)[0]
                    break
        elif coding not in {"", "identity"} and not data.lstrip().startswith(b"<"):
            return f"pages in the encoding {coding[:20]}, which is not supported"
    if len(data) > PAGE_BYTES:
        return f"pages larger than {PAGE_BYTES:,} bytes"
    plain = converted or (record.http_content_type or "").lower() == "text/plain"
    date = record.record_date
    return Page(
        name=record.record_id or "",
        data=data,
        kind="text" if plain else "html",
        url=url,
        date=date.date().isoformat() if date else "",
        charset="utf-8" if converted else (record.http_charset or ""),
    )


def _joined(data: bytes) -> bytes:
    """Join the chunks of a body (RFC 9112, section 7.1); return one that the archive joined unchanged.

    A text may begin with a number: chunks end with a line end, and one that is cut short is one of several, or
    begins as a page or gzip does.
    """
    pieces: list[bytes] = []
    start = 0
    while (head := _CHUNK_SIZE.match(data, start)) and (size := int(head[1], 16)):
        piece = data[head.end() : head.end() + size]
        start = head.end() + size
        is_cut = len(piece) < size and not pieces and not piece.lstrip().startswith((b"<", b"\x1f\x8b"))
        if is_cut or data[start : start + 2] not in (b"\r\n", b"\r", b""):
            return data
        pieces.append(piece)
        start += len(b"\r\n")
    return b"".join(pieces) or data


def unpack_body(packed: bytes, most: int, window: int = zlib.MAX_WBITS | 32) -> tuple[bytes, bool]:
    """Unpack an HTTP body: gzip members one after the other, zlib, or deflate without a frame.

    Returns at most `most` bytes, and whether the last member is complete. `window`: that of `zlib.decompressobj`.
    Bytes after the end that are not another gzip member are dropped. Raises zlib.error.
    """
    pieces: list[bytes] = []
    decoder, after = zlib.decompressobj(window), b""  # the first bytes after the members so far
    for start in range(0, len(packed), _BODY_BYTES):
        block = packed[start : start + _BODY_BYTES]
        while block and most > 0:
            if decoder.eof:
                block = after + block
                after = block[: len(_GZIP)]
                if after != _GZIP:
                    break
                decoder, after = zlib.decompressobj(zlib.MAX_WBITS | 16), b""
            pieces.append(decoder.decompress(block, most))
            most -= len(pieces[-1])
            block = decoder.unused_data
    return b"".join(pieces), decoder.eof


def _ends_whole(path: Path, position: int) -> bool:
    """Return whether a file is complete whose last record begins at `position`, or in the member that does."""
    if path.name.lower().endswith(".gz"):  # in a file of one member, `position` is inside it
        return any(all(whole_members(path, start)) for start in dict.fromkeys((position, 0)))
    with path.open("rb") as handle:
        handle.seek(max(0, path.stat().st_size - len(_RECORD_END)))
        return handle.read() == _RECORD_END


def whole_members(path: Path, position: int) -> Iterator[bool]:
    """Yield True for each complete gzip member from `position` on, and False for one that is cut short."""
    with path.open("rb") as handle:
        handle.seek(position)
        decoder = zlib.decompressobj(31)
        is_begun = True
        while block := handle.read(1 << 16):
            while block:
                is_begun = True
                try:
                    decoder.decompress(block, PAGE_BYTES)  # a megabyte may unpack to a gigabyte
                except zlib.error:
                    yield False
                    return
                block = decoder.unused_data if decoder.eof else decoder.unconsumed_tail
                if decoder.eof:
                    yield True
                    decoder, is_begun = zlib.decompressobj(31), False
        if is_begun:
            yield False
