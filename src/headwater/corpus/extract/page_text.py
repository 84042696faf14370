"""Make text of a raw page.

Resiliparse and `main_text` extract the main content of HTML (GPT-2, section 2.1, used Dragnet and Newspaper, which
are no longer maintained). `charset` decodes the bytes, `wiki_text` reads wiki markup.

Extractors are C code, and the web is hostile input: a page of 100,000 nested tags keeps one busy for minutes,
another page crashes it. `Extractor` therefore uses a process of its own, which is ended when a page takes more
than SECONDS of processor time. That page is set aside with the reason and the others continue. Processor time,
since by the clock a busy machine would set aside pages that an idle one keeps.
"""

from __future__ import annotations

import re
import signal
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

from headwater.corpus.extract.charset import UndecidedError, decode_page
from headwater.corpus.extract.main_text import main_text
from headwater.corpus.extract.wiki_text import FILES, wiki_text
from headwater.corpus.sources.pages import CHAPTER, Page
from headwater.corpus.workers import WorkerDied, WorkerProcess
from headwater.errors import ResourceError, require_extra

SECONDS = 20.0  # of processor time for each started SHARE_BYTES of a page; a usual page takes some milliseconds
SHARE_BYTES = 8 * 1024**2
_PATIENCE = 15.0  # factor for the limit by the clock, for a process that waits or a system without such timers
MEMORY_BYTES = 4 * 1024**3  # address space of the extracting process
_AHEAD = 16  # pages read before the first of their texts is awaited

_PLAIN = (("\r\n", "\n"), ("\r", "\n"), ("\x00", ""), ("\xa0", " "), ("\ufeff", ""), ("\xad", ""))


class Extracted(NamedTuple):
    """The text of a page, or the reason why it has none.

    encoding: as "cp949" or "cp949 (declared utf-8)", empty for a book; left_out: what of the page the text does
    not have, with its number.
    """

    text: str = ""
    reason: str = ""
    encoding: str = ""
    left_out: Mapping[str, int] = {}


def extract_page(page: Page) -> str:
    """Return the text of a page, extracted in this process; empty if it has none.

    Raises DataError if the encoding of the page cannot be decided.
    """
    return extract(page).text


def extract(page: Page) -> Extracted:
    """Return the text of a page; raises UndecidedError."""
    if page.kind == "book":
        chapters = (decode_page(chapter, page.charset).text for chapter in page.data.split(CHAPTER))
        return Extracted(tidy("\n\n".join(_whole_text(chapter) for chapter in chapters)))
    decoded = decode_page(page.data, page.charset, is_html=page.kind == "html")
    encoding = decoded.encoding + (f" (declared {decoded.contradicts})" if decoded.contradicts else "")
    if page.kind == "html":
        counted: Counter[str] = Counter()
        return Extracted(tidy(main_text(decoded.text, counted)), encoding=encoding, left_out=counted)
    if page.kind == "wikitext":
        text, left_out = wiki_text(decoded.text, page.namespaces or FILES)
        return Extracted(tidy(text), encoding=encoding, left_out=left_out)
    return Extracted(tidy(decoded.text), encoding=encoding)


def tidy(text: str) -> str:
    """Strip the ends of lines and of the text, and keep at most one blank line between two.

    No-break spaces become spaces; soft hyphens, byte-order marks and NUL are removed.
    """
    for old, new in _PLAIN:
        text = text.replace(old, new)
    text = "\n".join([line.rstrip() for line in text.split("\n")])
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def _whole_text(chapter: str) -> str:
    from resiliparse.extract.html2text import extract_plain_text

    text: str = extract_plain_text(chapter, preserve_formatting=True, alt_texts=False, list_bullets=False)
    return text


class Extractor:
    """Extracts the texts of pages in another process, started with the first; `close` ends it."""

    def __init__(self, seconds: float = SECONDS) -> None:
        with require_extra("corpus", "extracting the text of pages"):
            import resiliparse.extract.html2text  # noqa: F401
        self.seconds = seconds
        self._worker: WorkerProcess | None = None
        self._thread = ThreadPoolExecutor(1)  # asks the worker while the caller reads pages and uses texts

    def close(self) -> None:
        """End the process."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        if self._worker is not None:
            self._worker.kill()
        self._thread.shutdown()
        if self._worker is not None:
            self._worker.stop()

    def texts(self, pages: Iterable[tuple[str, Page]]) -> Iterator[tuple[str, Page, Extracted]]:
        """Yield (file, page, its text) in the order of the pages."""
        waiting: deque[tuple[str, Page, Future[Extracted]]] = deque()
        for file, page in pages:
            waiting.append((file, page, self._thread.submit(self._extract, page)))
            if len(waiting) >= _AHEAD:
                oldest = waiting.popleft()
                yield *oldest[:2], oldest[2].result()
        for file, page, result in waiting:
            yield file, page, result.result()

    def _extract(self, page: Page) -> Extracted:
        """Return the text of a page; start the worker if needed, and stop one that failed."""
        if self._worker is None:
            try:
                self._worker = WorkerProcess("headwater.corpus.extract.page_text:_page_handler")
            except WorkerDied:
                raise ResourceError(
                    "the extracting process ended before its first page",
                    repair="See its own message above, and whether memory ran out",
                ) from None
        seconds = self.seconds * (1 + len(page.data) // SHARE_BYTES)
        try:
            extracted: Extracted = self._worker.ask((page, seconds), _PATIENCE * seconds)
            return extracted
        except WorkerDied as died:
            self._worker.stop()
            self._worker = None
            if died.timed_out:
                return Extracted(reason=f"the extractor took longer than {_PATIENCE * seconds:g} s by the clock")
            if _TIMER and died.status == -_TIMER:
                return Extracted(reason=f"the extractor took longer than {seconds:g} s")
            return Extracted(reason="the extractor crashed on it")


# The signal that ends the process when a page's processor time is used up; 0 on Windows, which has no such timer.
_TIMER: int = getattr(signal, "SIGPROF", 0)


def _page_handler() -> Callable[[tuple[Page, float]], Extracted]:
    """Return what the extracting process does with a page and its processor time."""
    _limit_memory()
    extract(Page(name="", data=b"<p>load all that is needed</p>"))

    def handle(request: tuple[Page, float]) -> Extracted:
        page, seconds = request
        _set_timer(seconds)
        try:
            extracted = extract(page)
            return extracted._replace(text=extracted.text.encode("utf-8", "replace").decode())
        except UndecidedError as error:
            return Extracted(reason=error.seen)
        except Exception as error:  # whatever a page provokes in an extractor is its reason
            return Extracted(reason=f"the extractor failed: {type(error).__name__}: {error}"[:500])
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
