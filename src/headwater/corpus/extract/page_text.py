"""Extract the text of a raw page.

Resiliparse and `main_text`, or trafilatura on request, extract the main content of HTML (GPT-2, section 2.1, used
Dragnet and Newspaper, which are no longer maintained). The encoding is the server's, else the one that HTML
declares, else UTF-8 if the bytes are valid, else a guess. Wiki markup becomes prose.

Extractors are C code, and the web is hostile input: a page of 100,000 nested tags keeps one busy for minutes,
another page crashes it. `Extractor` therefore uses a process of its own, which is ended when a page takes more
than SECONDS of processor time. That page is set aside with the reason and the others continue. Processor time,
since by the clock a busy machine would set aside pages that an idle one keeps.
"""

from __future__ import annotations

import html
import re
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, Literal

from headwater.corpus.sources.pages import CHAPTER, Page
from headwater.corpus.workers import WorkerDied, WorkerProcess
from headwater.errors import ResourceError, require_extra

ExtractorName = Literal["resiliparse", "trafilatura"]
SECONDS = 20.0  # of processor time for each started SHARE_BYTES of a page; a usual page takes some milliseconds
SHARE_BYTES = 8 * 1024**2
_PATIENCE = 15.0  # factor for the limit by the clock, for a process that waits or a system without such timers
MEMORY_BYTES = 4 * 1024**3  # address space of the extracting process
_AHEAD = 16  # pages read before the first of their texts is awaited

# The encodings of the web have more characters than Python's of the same name.
_AS_ON_THE_WEB = {"euc_kr": "cp949", "shift_jis": "cp932", "gbk": "gb18030", "big5": "big5hkscs"}
_PLAIN = (("\r\n", "\n"), ("\r", "\n"), ("\x00", ""), ("\xa0", " "), ("\ufeff", ""), ("\xad", ""))


class Extractor:
    """Extracts the texts of pages in another process; use it as a context manager."""

    def __init__(self, name: ExtractorName = "resiliparse", seconds: float = SECONDS) -> None:
        _load(name)
        self.name, self.seconds = name, seconds
        self._worker: WorkerProcess | None = None
        self._thread = ThreadPoolExecutor(1)  # asks the worker while the caller reads pages and uses texts

    def __enter__(self) -> Extractor:
        return self

    def __exit__(self, *unused: object) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
        if self._worker is not None:
            self._worker.kill()
        self._thread.shutdown()
        if self._worker is not None:
            self._worker.stop()

    def texts(self, pages: Iterable[tuple[str, Page]]) -> Iterator[tuple[str, Page, str, str]]:
        """Yield (file, page, text, reason) in the order of the pages; `reason` says why a page has no text."""
        waiting: deque[tuple[str, Page, Future[tuple[str, str]]]] = deque()
        for file, page in pages:
            waiting.append((file, page, self._thread.submit(self._extract, page)))
            if len(waiting) >= _AHEAD:
                first = waiting.popleft()
                yield *first[:2], *first[2].result()
        for file, page, result in waiting:
            yield file, page, *result.result()

    def _extract(self, page: Page) -> tuple[str, str]:
        """Return (text, reason) of a page; start the worker if there is none, and stop one that failed."""
        if self._worker is None:
            try:
                self._worker = WorkerProcess("headwater.corpus.extract.page_text:_page_handler", self.name)
            except WorkerDied:
                raise ResourceError(
                    "the extracting process ended before its first page",
                    repair="See its own message above, and whether memory ran out",
                ) from None
        seconds = self.seconds * (1 + len(page.data) // SHARE_BYTES)
        try:
            text, reason = self._worker.ask((page, seconds), _PATIENCE * seconds)
            return text, reason
        except WorkerDied as died:
            self._worker.stop()
            self._worker = None
            if died.timed_out:
                return "", f"the extractor took longer than {_PATIENCE * seconds:g} s by the clock"
            if _TIMER and died.status == -_TIMER:
                return "", f"the extractor took longer than {seconds:g} s"
            return "", "the extractor crashed on it"


# The signal that ends the process when a page's processor time is used up; 0 on Windows, which has no such timer.
_TIMER: int = getattr(signal, "SIGPROF", 0)


def extract_page(page: Page, name: str = "resiliparse") -> str:
    """Return the text of a page, extracted in this process; empty if it has none."""
    if page.kind == "html":
        return tidy(_load(name)(decode(page.data, page.charset)))
    if page.kind == "book":
        chapters = (decode(chapter, page.charset) for chapter in page.data.split(CHAPTER))
        return tidy("\n\n".join(_whole_text(chapter) for chapter in chapters))
    text = decode(page.data, page.charset, is_html=False)
    return tidy(wiki_text(text) if page.kind == "wikitext" else text)


def decode(data: bytes, charset: str = "", *, is_html: bool = True) -> str:
    """Decode a page by the given charset, else by what its HTML declares, else as UTF-8 or by a guess.

    A page that was cut inside a character, or has a few other invalid bytes, is decoded without them.
    """
    from resiliparse.parse.encoding import bytes_to_str, detect_encoding, map_encoding_to_html5

    declared = map_encoding_to_html5(charset, False) if charset else None
    if declared:
        with suppress(UnicodeDecodeError, LookupError):
            return data.decode(_AS_ON_THE_WEB.get(declared, declared)).removeprefix("\ufeff")
    detect = partial(detect_encoding, data, html5_compatible=False)  # True detects cp949 as UTF-8
    encoding = detect(from_html_meta=is_html) or "utf-8"
    is_guess = not is_html or encoding == detect()
    if (is_guess or "utf-8" in {declared, encoding}) and _is_utf8(data):
        return data.decode("utf-8", "ignore").removeprefix("\ufeff")
    encoding = map_encoding_to_html5(encoding, False) or encoding
    # Windows-1252 decodes any bytes. As a fallback it would replace the detected encoding of a text with a few
    # invalid bytes.
    others = ["windows-1252"] if encoding == "utf-8" else []
    text: str = bytes_to_str(data, _AS_ON_THE_WEB.get(encoding, encoding), fallback_encodings=others)
    return text


def _is_utf8(data: bytes) -> bool:
    """Return whether data has non-ASCII characters, and fewer than a quarter of them are invalid UTF-8.

    In other encodings, at least two thirds of them are invalid.
    """
    text = data.decode("utf-8", "replace")
    beyond = len(text) - len(text.encode("ascii", "ignore"))
    return 4 * (text.count("\ufffd") - data.count("\ufffd".encode())) < beyond


def tidy(text: str) -> str:
    """Strip the ends of lines and of the text, and keep at most one blank line between two.

    No-break spaces become spaces; soft hyphens, byte-order marks and NUL are removed.
    """
    for old, new in _PLAIN:
        text = text.replace(old, new)
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
        (  # to the next heading of the same or a higher level
            r"^(=+)\s*(?:See also|References|External links|Further reading|Notes)\s*=+\s*$"
            r".*?(?=^(?!\1=)=[^\n]*=[ \t]*$|\Z)",
            re.S | re.M,
            "",
        ),
        (r"^(=+)\s*(.+?)\s*\1\s*$", re.M, r"\n\2\n"),
        (r"\[https?://\S+ ([^\]]+)\]", 0, r"\1"),
        (r"\[https?://\S+\]|__[A-Z]+__", 0, ""),
        (r"'{2,}", 0, ""),
        (r"^[*#:;]+\s*", re.M, ""),
    )
]
_WIKI_LINK = re.compile(r"\[\[([^\[\]|]*)(?:\|([^\[\]]*))?\]\]")
_WIKI_BRACES = re.compile(r"\{\{[^{}]*\}\}|\{\|[^{}]*?\|\}", re.S)
# Before the colon of a link. A title usually has a space after its colon; a name space has none.
_UNSEEN = {"file", "image", "category"}
_INLINE = {"w", "wikt", "wiktionary", "s", "wikisource", "wikipedia", "help", "portal"}
_DEPTH = 20  # of templates inside templates


def wiki_text(markup: str) -> str:
    """Return the prose of an article: link texts, but no templates, tables, references, files or categories."""
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
        return ""  # a file, a category, another language: not part of the sentence
    return (text.rpartition("|")[2] if text else target.removeprefix(":")).strip()


def _load(name: str) -> Any:
    """Return the function from HTML to main text."""
    if name == "trafilatura":
        with require_extra("corpus", "extractor = trafilatura", " trafilatura"):
            import trafilatura

        return lambda page: trafilatura.extract(page, include_comments=False) or ""
    with require_extra("corpus", "extracting the text of pages"):
        import resiliparse.extract.html2text  # noqa: F401
    from headwater.corpus.extract.main_text import main_text

    return main_text


def _whole_text(chapter: str) -> str:
    from resiliparse.extract.html2text import extract_plain_text

    text: str = extract_plain_text(chapter, preserve_formatting=True, alt_texts=False, list_bullets=False)
    return text


def _page_handler(name: str) -> Callable[[tuple[Page, float]], tuple[str, str]]:
    """Return what the extracting process does with a page and its processor time: (text, reason)."""
    _limit_memory()
    extract_page(Page(name="", data=b"<p>load all that is needed</p>"), name)

    def handle(request: tuple[Page, float]) -> tuple[str, str]:
        page, seconds = request
        _set_timer(seconds)
        try:
            return extract_page(page, name).encode("utf-8", "replace").decode(), ""
        except Exception as error:  # whatever a page provokes in an extractor is its reason
            return "", f"the extractor failed: {type(error).__name__}: {error}"[:500]
        finally:
            _set_timer(0)

    return handle


def _set_timer(seconds: float) -> None:
    """Let the system end this process after `seconds` of processor time, in C code too; 0 cancels that."""
    if sys.platform != "win32":
        signal.setitimer(signal.ITIMER_PROF, seconds)


def _limit_memory() -> None:
    if sys.platform == "win32":
        return
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard == resource.RLIM_INFINITY or hard > MEMORY_BYTES:
        with suppress(ValueError, OSError):  # macOS refuses: the time limit remains
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, hard))
