"""From a raw page to its text.

HTML goes through resiliparse and `main_text`, which keep the main content (GPT-2, section 2.1, used Dragnet and
Newspaper, both unmaintained since), or through trafilatura on request. The encoding is what the server said, else
what the page says, else what its bytes look like. Wiki markup becomes prose.

Extractors are C code fed with whatever the web holds: a page of 100,000 nested tags keeps one busy for minutes,
another ends the process. `Extractor` therefore works in a process of its own, which may die or be stopped when a
page takes longer than SECONDS of processor time; that page is set aside with its reason and the next ones go on.
Processor time, since on a busy machine the clock would set aside pages that a quiet one keeps.
"""

from __future__ import annotations

import html
import queue
import re
import signal
import struct
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from typing import IO, Any, Literal, get_args

from headwater.corpus.sources.pages import CHAPTER, Page
from headwater.errors import ResourceError, UsageError

ExtractorName = Literal["resiliparse", "trafilatura"]
EXTRACTORS = get_args(ExtractorName)
SECONDS = 20.0  # of the processor for each started SHARE_BYTES of a page: a usual one takes some milliseconds
SHARE_BYTES = 8 * 1024**2
_PATIENCE = 15.0  # how many times as much by the clock, for a process that waits or a system without such timers
_START_SECONDS = 120.0
MEMORY_BYTES = 4 * 1024**3  # address space of the extracting process
_AHEAD = 16  # pages sent before their texts are awaited
_FRAME = struct.Struct("<BI")

_PLAIN = (("\r\n", "\n"), ("\r", "\n"), ("\x00", ""), ("\xa0", " "), ("\ufeff", ""), ("\xad", ""))


class Extractor:
    """Texts of pages, made in another process; use it as a context manager."""

    def __init__(self, name: str = "resiliparse", seconds: float = SECONDS) -> None:
        if name not in EXTRACTORS:
            raise UsageError(f"{name!r} is no extractor", expected=" or ".join(EXTRACTORS))
        _load(name)
        self.name, self.seconds = name, seconds
        self._child: _Child | None = None

    def __enter__(self) -> Extractor:
        return self

    def __exit__(self, *unused: object) -> None:
        if self._child is not None:
            self._child.stop()
            self._child = None

    def texts(self, pages: Iterable[Page]) -> Iterator[tuple[Page, str, str]]:
        """(page, text, reason) in the order of the pages; a reason, for a page without text, else empty."""
        waiting: deque[Page] = deque()
        for page in pages:
            waiting.append(page)
            self._send(page)
            if len(waiting) >= _AHEAD:
                yield self._receive(waiting)
        while waiting:
            yield self._receive(waiting)

    def _send(self, page: Page) -> None:
        if self._child is None:
            self._child = _Child(self.name, self.seconds)
        self._child.send(page)

    def _receive(self, waiting: deque[Page]) -> tuple[Page, str, str]:
        assert self._child is not None
        page = waiting.popleft()
        outcome, payload = self._child.receive(_allowed(self.seconds, len(page.data)))
        if outcome == _TEXT:
            return page, payload, ""
        if outcome == _REASON:
            return page, "", payload
        # The first page without an answer is the one that the process was at: the others are sent again.
        self._child.stop()
        self._child = None
        for other in waiting:
            self._send(other)
        return page, "", payload


_TEXT, _REASON, _READY, _LOST = range(4)
# What ends the process when a page's processor time is over; 0 where the system has no such timer (Windows).
_TIMER: int = getattr(signal, "SIGPROF", 0)


def _allowed(seconds: float, size: int) -> float:
    """Processor time for a page of `size` bytes."""
    return seconds * (1 + size // SHARE_BYTES)


class _Child:
    """The extracting process and the two threads that keep its pipes moving."""

    def __init__(self, name: str, seconds: float) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "headwater.corpus.extract.page_text", name, str(seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._replies: queue.SimpleQueue[tuple[int, str]] = queue.SimpleQueue()
        self._ready = False
        self._threads = [
            threading.Thread(target=target, args=(pipe,), daemon=True)
            for target, pipe in ((self._write, self._process.stdin), (self._read, self._process.stdout))
        ]
        for thread in self._threads:
            thread.start()

    def send(self, page: Page) -> None:
        kind = page.kind.encode()
        charset = page.charset.encode("ascii", "ignore")[:255]
        header = _FRAME.pack(len(kind), len(page.data)) + bytes([len(charset)]) + kind + charset
        self._requests.put(header + page.data)

    def receive(self, seconds: float) -> tuple[int, str]:
        try:
            if not self._ready:  # starting is not the page's time
                if self._replies.get(timeout=_START_SECONDS)[0] != _READY:
                    raise ResourceError(
                        "the extracting process ended before its first page",
                        repair="See its own message above, and whether memory ran out",
                    )
                self._ready = True
            outcome, payload = self._replies.get(timeout=_PATIENCE * seconds)
        except queue.Empty:
            return _LOST, f"the extractor took longer than {_PATIENCE * seconds:g} s by the clock"
        if outcome == _LOST and _TIMER and self._process.wait() == -_TIMER:
            return _LOST, f"the extractor took longer than {seconds:g} s"
        return outcome, payload

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self._requests.put(None)
        for thread in self._threads:
            thread.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    continue  # what was not written any more belongs to a process that is gone

    def _write(self, pipe: IO[bytes]) -> None:
        while (request := self._requests.get()) is not None:
            try:
                pipe.write(request)
                pipe.flush()
            except OSError:
                return

    def _read(self, pipe: IO[bytes]) -> None:
        while True:
            header = pipe.read(_FRAME.size)
            if len(header) < _FRAME.size:
                self._replies.put((_LOST, "the extractor crashed on it"))
                return
            outcome, size = _FRAME.unpack(header)
            self._replies.put((outcome, pipe.read(size).decode("utf-8", "replace")))


def extract(page: Page, name: str = "resiliparse") -> str:
    """The text of a page, in this process; empty where it has none."""
    if page.kind == "html":
        return tidy(_load(name)(decode(page.data, page.charset)))
    if page.kind == "book":
        chapters = (decode(chapter, page.charset) for chapter in page.data.split(CHAPTER))
        return tidy("\n\n".join(_whole_text(chapter) for chapter in chapters))
    text = decode(page.data, page.charset)
    return tidy(wiki_text(text) if page.kind == "wikitext" else text)


def decode(data: bytes, charset: str = "") -> str:
    """Bytes of a page as text, by what was said of them, what they say, or what they look like."""
    from resiliparse.parse.encoding import bytes_to_str, detect_encoding, map_encoding_to_html5

    said = map_encoding_to_html5(charset, False) if charset else None
    try:
        if said:
            return data.decode(said).removeprefix("\ufeff")
    except (UnicodeDecodeError, LookupError):
        said = None
    found = detect_encoding(data, from_html_meta=True) or "utf-8"
    text: str = bytes_to_str(data, found)
    return text


def tidy(text: str) -> str:
    """Lines without white space at their ends, at most one blank line between two, none at both ends.

    No-break spaces become spaces; soft hyphens, byte-order marks and NUL go.
    """
    for seen, meant in _PLAIN:
        text = text.replace(seen, meant)
    text = "\n".join([line.rstrip() for line in text.split("\n")])
    return re.sub(r"\n{3,}", "\n\n", text).strip()


_WIKI_RULES = [
    (re.compile(pattern, flags), replacement)
    for pattern, flags, replacement in (
        (r"<!--.*?-->", re.S, ""),
        (r"<ref\b[^>]*/>|<ref\b[^>]*>.*?</ref\s*>", re.S, ""),
        (r"<(math|gallery|timeline|syntaxhighlight|source|score)\b[^>]*>.*?</\1>", re.S, ""),
        (r"<br\b[^<>]*>", re.I, "\n"),
        (r"</?[A-Za-z][^<>]*>", 0, ""),
        (r"^=+\s*(?:See also|References|External links|Further reading|Notes)\s*=+\s*$.*", re.S | re.M, ""),
        (r"^(=+)\s*(.+?)\s*\1\s*$", re.M, r"\n\2\n"),
        (r"\[https?://\S+ ([^\]]+)\]", 0, r"\1"),
        (r"\[https?://\S+\]|__[A-Z]+__", 0, ""),
        (r"'{2,}", 0, ""),
        (r"^[*#:;]+\s*", re.M, ""),
    )
]
_WIKI_LINK = re.compile(r"\[\[([^\[\]|]*)(?:\|([^\[\]]*))?\]\]")
_WIKI_BRACES = re.compile(r"\{\{[^{}]*\}\}|\{\|[^{}]*?\|\}", re.S)
# What stands before a colon: a title of several words has a space behind it, a name space has none, mostly.
_UNSEEN = {"file", "image", "category"}
_INLINE = {"w", "wikt", "wiktionary", "s", "wikisource", "wikipedia", "help", "portal"}
_DEPTH = 20  # of templates inside templates


def wiki_text(markup: str) -> str:
    """The prose of an article: templates, tables, references, files and categories go, link texts stay."""
    text = markup
    for pattern, replacement in _WIKI_RULES[:3]:
        text = pattern.sub(replacement, text)
    for _ in range(_DEPTH):
        text, count = _WIKI_BRACES.subn("", text)
        if not count:
            break
    for _ in range(_DEPTH):
        text, count = _WIKI_LINK.subn(_link_text, text)
        if not count:
            break
    for pattern, replacement in _WIKI_RULES[3:]:
        text = pattern.sub(replacement, text)
    return html.unescape(text)


def _link_text(link: re.Match[str]) -> str:
    target, text = link.group(1), link.group(2)
    space, colon, name = target.partition(":")
    space = space.strip().lower()
    if colon and space and (space in _UNSEEN or not (name[:1].isspace() or space in _INLINE or space.isdecimal())):
        return ""  # a file, a category, another language: no part of the sentence, as the rest of a title is
    return (text.rpartition("|")[2] if text else target.removeprefix(":")).strip()


def _load(name: str) -> Any:
    """The function from HTML to main text."""
    try:
        if name == "trafilatura":
            import trafilatura

            return lambda page: trafilatura.extract(page, include_comments=False) or ""
        import resiliparse.extract.html2text  # noqa: F401
    except ImportError:
        extra = "trafilatura" if name == "trafilatura" else "'headwater[corpus]'"
        raise ResourceError(f"the package {name} is not installed", repair=f"pip install {extra}") from None
    from headwater.corpus.extract.main_text import main_text

    return main_text


def _whole_text(chapter: str) -> str:
    from resiliparse.extract.html2text import extract_plain_text

    text: str = extract_plain_text(chapter, preserve_formatting=True, alt_texts=False, list_bullets=False)
    return text


def _serve(name: str, seconds: float) -> None:
    """The extracting process: pages from stdin, texts to stdout, until stdin ends or a page takes too long."""
    _limit_memory()
    stdin, stdout = sys.stdin.buffer, sys.stdout.buffer
    extract(Page(name="", data=b"<p>all that is needed is loaded</p>"), name)
    stdout.write(_FRAME.pack(_READY, 0))
    stdout.flush()
    while len(header := stdin.read(_FRAME.size + 1)) == _FRAME.size + 1:
        kind_size, size = _FRAME.unpack(header[:-1])
        kind: Any = stdin.read(kind_size).decode()
        charset = stdin.read(header[-1]).decode("ascii")
        page = Page(name="", data=stdin.read(size), kind=kind, charset=charset)
        _set_timer(_allowed(seconds, size))
        try:
            text, outcome = extract(page, name), _TEXT
        except Exception as error:  # whatever a page provokes in an extractor is a reason, not an end
            text, outcome = f"the extractor failed: {type(error).__name__}: {error}"[:500], _REASON
        _set_timer(0)
        payload = text.encode("utf-8", "replace")
        stdout.write(_FRAME.pack(outcome, len(payload)) + payload)
        stdout.flush()


def _set_timer(seconds: float) -> None:
    """Let the system end this process after so much processor time, in C code too; 0 takes that back."""
    if sys.platform != "win32":
        signal.setitimer(signal.ITIMER_PROF, seconds)


def _limit_memory() -> None:
    if sys.platform == "win32":
        return
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard == resource.RLIM_INFINITY or hard > MEMORY_BYTES:
        try:
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, hard))
        except (ValueError, OSError):
            return  # macOS refuses: the time limit remains


if __name__ == "__main__":
    _serve(sys.argv[1], float(sys.argv[2]))
