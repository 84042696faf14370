"""Make text of a raw page.

Resiliparse and `main_text` extract the main content of HTML (GPT-2, section 2.1, used Dragnet and Newspaper, which
are no longer maintained).

The bytes are decoded here, in the encoding that they have (`reading.encoding_of`); what the page and its server
declare counts if it is plausible. A page whose encoding cannot be decided has no text.

Extractors are C code, and the web is hostile input: a page of 100,000 nested tags keeps one busy for minutes,
another page crashes it. A build therefore uses a process of its own (`building.parts`), which ends itself when a
page takes more than its processor time. Processor time, since by the clock a busy machine would set aside pages
that an idle one keeps.
"""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

from headwater.corpus.extract.main_text import main_text
from headwater.corpus.sources.pages import Page
from headwater.errors import DataError, UsageError, require_extra
from headwater.reading import encoding_of, text_encoding

_PLAIN = (("\r\n", "\n"), ("\r", "\n"), ("\x00", ""), ("\xa0", " "), ("\ufeff", ""), ("\xad", ""))

_HEAD_BYTES = 4096  # in which the HTML declares an encoding
_META = re.compile(
    rb"""<(?:meta\b[^>]{0,400}?charset|\?xml\b[^>]{0,200}?encoding)\s*=\s*["']?\s*(?P<name>[\w.:+-]{2,40})""",
    re.IGNORECASE,
)


class Extracted(NamedTuple):
    """The text of a page, or the reason why it has none.

    encoding: as "cp949" or "cp949 (declared utf-8)"; left_out: counts of the page's parts that the text lacks.
    """

    text: str = ""
    reason: str = ""
    encoding: str = ""
    left_out: Mapping[str, int] = {}


def extract_page(page: Page) -> Extracted:
    """Return the text of a page, extracted in this process; raises DataError if its encoding cannot be decided."""
    text, encoding = decode_page(page.data, page.charset, is_html=page.kind == "html")
    counted: Counter[str] = Counter()
    if page.kind == "html":
        text = main_text(text, counted)
    return Extracted(tidy(text), encoding=encoding, left_out=counted)


def tidy(text: str) -> str:
    """Strip the ends of lines and of the text, and keep at most one blank line between two.

    No-break spaces become spaces; soft hyphens, byte-order marks and NUL are removed.
    """
    for old, new in _PLAIN:
        text = text.replace(old, new)
    text = "\n".join([line.rstrip() for line in text.split("\n")])
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def decode_page(data: bytes, charset: str = "", *, is_html: bool = True) -> tuple[str, str]:
    """Return the text of a page, and its encoding as `Extracted` has it; `charset` is what its server declares.

    Raises DataError if no encoding gives a text that can be trusted.
    """
    meta = _META.search(data[:_HEAD_BYTES]) if is_html else None
    names = [charset, meta["name"].decode("ascii") if meta else ""]
    declared = [encoding for encoding in dict.fromkeys(map(_canonical, names)) if encoding]
    # The detector would believe the declaration.
    judged = data if meta is None else data[: meta.start("name")] + data[meta.end("name") :]
    encoding = encoding_of(judged, [name for name in declared if not name.startswith("utf-16")])
    if not encoding:
        raise DataError("its encoding cannot be decided")
    text = data.decode(encoding, "ignore")
    encoding = encoding.removesuffix("-sig")
    if declared and declared[0] != encoding and not text.isascii():
        encoding += f" (declared {declared[0]})"
    return text, encoding


def _canonical(name: str) -> str:
    """Return Python's name of an encoding as the web understands it; empty if there is none."""
    from resiliparse.parse.encoding import map_encoding_to_html5

    with suppress(UsageError):
        return text_encoding(map_encoding_to_html5(name, False) or name).removesuffix("-sig") if name else ""
    return ""


MEMORY_BYTES = 4 * 1024**3  # address space of the extracting process
# The signal that ends the process when a page's processor time is used up; 0 on Windows, which has no such timer.
TIMER: int = getattr(signal, "SIGPROF", 0)
OUT_OF_TIME = 1  # status of a process that `faulthandler` ended


def page_handler(seconds: float, clock_seconds: float) -> Callable[[Page], Extracted]:
    """Return the function with which the extracting process handles a page.

    A page that takes more processor time, or more time by the clock, ends the process, also in C code.
    """
    _limit_memory()
    with require_extra("corpus", "extracting the text of pages"):
        extract_page(Page(name="", data=b"<p>load all that is needed</p>"))
    nowhere = os.open(os.devnull, os.O_WRONLY)

    def handle(page: Page) -> Extracted:
        faulthandler.dump_traceback_later(clock_seconds, exit=True, file=nowhere)
        _set_timer(seconds)
        try:
            extracted = extract_page(page)
            return extracted._replace(text=extracted.text.encode("utf-8", "replace").decode())
        except DataError as error:
            return Extracted(reason=error.seen)
        except Exception as error:  # whatever a page provokes in an extractor is its reason
            return Extracted(reason=f"the extractor failed: {type(error).__name__}: {error}"[:500])
        finally:
            _set_timer(0)
            faulthandler.cancel_dump_traceback_later()

    return handle


def _set_timer(seconds: float) -> None:
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
