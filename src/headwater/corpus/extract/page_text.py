"""Extract the text of a raw page.

Resiliparse and `main_text`, or trafilatura on request, extract the main content of HTML (GPT-2, section 2.1, used
Dragnet and Newspaper, which are no longer maintained). `charset` decodes the bytes. Wiki markup becomes prose.

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
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Literal

from headwater.corpus.extract.charset import Decoded, UndecidedError, decode_page
from headwater.corpus.sources.pages import CHAPTER, Page
from headwater.corpus.workers import WorkerDied, WorkerProcess
from headwater.errors import ResourceError, require_extra

ExtractorName = Literal["resiliparse", "trafilatura"]
SECONDS = 20.0  # of processor time for each started SHARE_BYTES of a page; a usual page takes some milliseconds
SHARE_BYTES = 8 * 1024**2
_PATIENCE = 15.0  # factor for the limit by the clock, for a process that waits or a system without such timers
MEMORY_BYTES = 4 * 1024**3  # address space of the extracting process
_AHEAD = 16  # pages read before the first of their texts is awaited

_PLAIN = (("\r\n", "\n"), ("\r", "\n"), ("\x00", ""), ("\xa0", " "), ("\ufeff", ""), ("\xad", ""))


class Extractor:
    """Extracts the texts of pages in another process; use it as a context manager.

    encodings: the number of pages of each encoding, as "cp949" or "cp949 (declared utf-8)".
    """

    def __init__(self, name: ExtractorName = "resiliparse", seconds: float = SECONDS) -> None:
        _load(name)
        self.name, self.seconds = name, seconds
        self.encodings: Counter[str] = Counter()
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
        waiting: deque[tuple[str, Page, Future[tuple[str, str, str]]]] = deque()

        def oldest() -> tuple[str, Page, str, str]:
            file, page, result = waiting.popleft()
            text, reason, encoding = result.result()
            if encoding:
                self.encodings[encoding] += 1
            return file, page, text, reason

        for file, page in pages:
            waiting.append((file, page, self._thread.submit(self._extract, page)))
            if len(waiting) >= _AHEAD:
                yield oldest()
        while waiting:
            yield oldest()

    def _extract(self, page: Page) -> tuple[str, str, str]:
        """Return (text, reason, encoding) of a page; start the worker if needed, and stop one that failed."""
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
            text, reason, encoding = self._worker.ask((page, seconds), _PATIENCE * seconds)
            return text, reason, encoding
        except WorkerDied as died:
            self._worker.stop()
            self._worker = None
            if died.timed_out:
                return "", f"the extractor took longer than {_PATIENCE * seconds:g} s by the clock", ""
            if _TIMER and died.status == -_TIMER:
                return "", f"the extractor took longer than {seconds:g} s", ""
            return "", "the extractor crashed on it", ""


# The signal that ends the process when a page's processor time is used up; 0 on Windows, which has no such timer.
_TIMER: int = getattr(signal, "SIGPROF", 0)


def extract_page(page: Page, name: str = "resiliparse") -> str:
    """Return the text of a page, extracted in this process; empty if it has none.

    Raises DataError if the encoding of the page cannot be decided.
    """
    return _text_and_encoding(page, name)[0]


def _text_and_encoding(page: Page, name: str) -> tuple[str, str]:
    """Return the text of a page and its encoding, which is empty for a book."""
    if page.kind == "book":
        chapters = (decode_page(chapter, page.charset).text for chapter in page.data.split(CHAPTER))
        return tidy("\n\n".join(_whole_text(chapter) for chapter in chapters)), ""
    decoded = decode_page(page.data, page.charset, is_html=page.kind == "html")
    if page.kind == "html":
        return tidy(_load(name)(decoded.text)), _encoding_of(decoded)
    text = wiki_text(decoded.text) if page.kind == "wikitext" else decoded.text
    return tidy(text), _encoding_of(decoded)


def _encoding_of(decoded: Decoded) -> str:
    return decoded.encoding + (f" (declared {decoded.contradicts})" if decoded.contradicts else "")


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


def _page_handler(name: str) -> Callable[[tuple[Page, float]], tuple[str, str, str]]:
    """Return what the extracting process does with a page and its processor time: (text, reason, encoding)."""
    _limit_memory()
    extract_page(Page(name="", data=b"<p>load all that is needed</p>"), name)

    def handle(request: tuple[Page, float]) -> tuple[str, str, str]:
        page, seconds = request
        _set_timer(seconds)
        try:
            text, encoding = _text_and_encoding(page, name)
            return text.encode("utf-8", "replace").decode(), "", encoding
        except UndecidedError as error:
            return "", error.seen, ""
        except Exception as error:  # whatever a page provokes in an extractor is its reason
            return "", f"the extractor failed: {type(error).__name__}: {error}"[:500], ""
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
