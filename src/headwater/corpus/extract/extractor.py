"""Extract pages in a process of its own.

Extractors are C code, and the web is hostile input: a page of 100,000 nested tags keeps one busy for minutes,
another page crashes it. The process is ended when a page takes more than SECONDS of processor time. That page is
set aside with the reason and the others continue. Processor time, since by the clock a busy machine would set
aside pages that an idle one keeps.
"""

from __future__ import annotations

import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from headwater.corpus.extract.charset import UndecidedError
from headwater.corpus.extract.page_text import Extracted, ExtractorName, extract, load_extractor
from headwater.corpus.sources.pages import Page
from headwater.corpus.workers import WorkerDied, WorkerProcess
from headwater.errors import ResourceError

SECONDS = 20.0  # of processor time for each started SHARE_BYTES of a page; a usual page takes some milliseconds
SHARE_BYTES = 8 * 1024**2
_PATIENCE = 15.0  # factor for the limit by the clock, for a process that waits or a system without such timers
MEMORY_BYTES = 4 * 1024**3  # address space of the extracting process
_AHEAD = 16  # pages read before the first of their texts is awaited


class Extractor:
    """Extracts the texts of pages in another process, started with the first; `close` ends it."""

    def __init__(self, name: ExtractorName = "resiliparse", seconds: float = SECONDS) -> None:
        load_extractor(name)
        self.name, self.seconds = name, seconds
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
                self._worker = WorkerProcess("headwater.corpus.extract.extractor:_page_handler", self.name)
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


def _page_handler(name: str) -> Callable[[tuple[Page, float]], Extracted]:
    """Return what the extracting process does with a page and its processor time."""
    _limit_memory()
    extract(Page(name="", data=b"<p>load all that is needed</p>"), name)

    def handle(request: tuple[Page, float]) -> Extracted:
        page, seconds = request
        _set_timer(seconds)
        try:
            extracted = extract(page, name)
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
