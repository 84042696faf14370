"""Make text of a raw page.

Resiliparse and `main_text` extract the main content of HTML (GPT-2, section 2.1, used Dragnet and Newspaper, which
are no longer maintained).

The bytes are decoded here, whatever encoding they are in and whatever encoding the page declares. The order of
trust is:

1. a byte-order mark;
2. UTF-8, if the bytes are valid, or nearly: texts in other encodings are not, unless they are very short;
3. the encoding of the server or of the HTML, decoded strictly. A single-byte encoding accepts nearly any bytes,
   and Chinese encodings accept Korean and Japanese bytes, so the detected encoding must not contradict these, nor
   have only common characters where these have mostly rare ones;
4. the encoding that the bytes have (uchardet, by resiliparse), decoded strictly;
5. the same ones for a page with a few broken characters, such as a page that was cut;
6. windows-1252, if the result reads like text of the Latin alphabet.

A page for which nothing of this holds has no text: `UndecidedError`.

Extractors are C code, and the web is hostile input: a page of 100,000 nested tags keeps one busy for minutes,
another page crashes it. A build therefore uses a process of its own (`building.parts`), which ends itself when a
page takes more than its processor time. Processor time, since by the clock a busy machine would set aside pages
that an idle one keeps.
"""

from __future__ import annotations

import re
import signal
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from headwater.corpus.extract.main_text import main_text
from headwater.corpus.sources.pages import Page
from headwater.errors import DataError, UsageError
from headwater.reading import marked_encoding, text_encoding

_PLAIN = (("\r\n", "\n"), ("\r", "\n"), ("\x00", ""), ("\xa0", " "), ("\ufeff", ""), ("\xad", ""))

# The bytes of the common characters of an encoding: punctuation, and what nearly all its texts consist of.
_COMMON = {
    "gb18030": re.compile(rb"[\xa1-\xa3\xb0-\xd7][\xa1-\xfe]"),  # level 1 of GB 2312
    "big5hkscs": re.compile(rb"[\xa1-\xa3][\x40-\xfe]|[\xa4-\xc6][\x40-\xfe]"),
    "cp949": re.compile(rb"[\xa1-\xa4\xb0-\xc8][\xa1-\xfe]"),  # the syllables of KS X 1001
    "cp932": re.compile(rb"[\x81-\x83\x87-\x97][\x40-\xfc]"),  # kana, NEC's signs, level 1 of JIS X 0208
    "euc_jp": re.compile(rb"[\xa1-\xa5\xb0-\xcf][\xa1-\xfe]"),
}
_ESCAPE = b"\x1b$"  # to the characters of two bytes of ISO-2022-JP
_CHINESE = {"gb18030", "big5hkscs"}
# What the HTML declares, in its first bytes.
_META = re.compile(
    rb"""<(?:meta\b[^>]{0,400}?charset|\?xml\b[^>]{0,200}?encoding)\s*=\s*["']?\s*([\w.:+-]{2,40})""",
    re.IGNORECASE,
)
_HANGUL = re.compile("[가-힣ㄱ-ㆎ]")
_KANA = re.compile("[ぁ-ヺ]")
_BEYOND = re.compile(r"[^\x00-\x7f]")
_TEXTUAL = re.compile(r"[^\W\d_]|[‘’‚“”„–—…«»€£§©®°·¿¡ªº\xa0\xad]")
_LATIN = {
    *("cp1250", "cp1252", "cp1254", "cp1257"),
    *("iso8859-1", "iso8859-2", "iso8859-3", "iso8859-4", "iso8859-9", "iso8859-10", "iso8859-13", "iso8859-15"),
}
ENOUGH = 4  # characters beyond ASCII for UTF-8 to be certain against a declared encoding of several bytes
LONG = 20  # characters beyond ASCII for the detection to be trusted against a declaration
# Characters that are all Hangul, for a text to be Korean although it declares a Chinese encoding. In gb18030,
# half of a Chinese text's characters have bytes of Hangul in EUC-KR, so less than one of 1,000 texts looks so.
ALL_HANGUL = 12
KANA_SHARE = 0.1  # of the characters beyond ASCII of a Japanese text
HANGUL_SHARE = 0.5  # of a Korean one
BROKEN_SHARE = 0.25  # of the characters beyond ASCII that may be invalid; in a wrong encoding, most are
JUDGED = 1000  # characters beyond ASCII that are judged as common or rare
COMMON_SHARE = 0.4  # of the characters beyond ASCII that are common ones; in a wrong encoding, most are rare
LATIN_RUN_SHARE = 0.5  # of letters beyond ASCII that may follow another one; in a wrong encoding, most do


class Extracted(NamedTuple):
    """The text of a page, or the reason why it has none.

    encoding: as "cp949" or "cp949 (declared utf-8)"; left_out: what of the page the text does not have, with its
    number.
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
    decoded = decode_page(page.data, page.charset, is_html=page.kind == "html")
    encoding = decoded.encoding + (f" (declared {decoded.contradicts})" if decoded.contradicts else "")
    if page.kind == "html":
        counted: Counter[str] = Counter()
        return Extracted(tidy(main_text(decoded.text, counted)), encoding=encoding, left_out=counted)
    return Extracted(tidy(decoded.text), encoding=encoding)


def tidy(text: str) -> str:
    """Strip the ends of lines and of the text, and keep at most one blank line between two.

    No-break spaces become spaces; soft hyphens, byte-order marks and NUL are removed.
    """
    for old, new in _PLAIN:
        text = text.replace(old, new)
    text = "\n".join([line.rstrip() for line in text.split("\n")])
    return re.sub(r"\n{3,}", "\n\n", text).strip()


class Decoded(NamedTuple):
    """Text of a page, its encoding, and the encoding that was declared if it is another one."""

    text: str
    encoding: str
    contradicts: str = ""


class UndecidedError(DataError):
    """No encoding gives a text that can be trusted."""


def decode_page(data: bytes, charset: str = "", *, is_html: bool = True) -> Decoded:
    """Return the text of a page and its encoding; `charset` is what its server declares. Raises UndecidedError."""
    if not data.isascii() and (encoding := marked_encoding(data)):
        return Decoded(data.decode(encoding, "ignore"), encoding.removesuffix("-sig"))
    declared = _declared(data, charset, is_html=is_html)
    text, encoding = _ascii_text(data) if data.isascii() else _trusted_text(data, declared)
    first = declared[0] if declared else ""
    return Decoded(text, encoding, first if first not in {"", encoding} and not text.isascii() else "")


def _declared(data: bytes, charset: str, *, is_html: bool) -> list[str]:
    """Return the known encodings that the server and the HTML declare, without repetition."""
    encodings = [_canonical(charset)] if charset else []
    if is_html and (meta := _META.search(data[:4096])):
        encoding = _canonical(meta[1].decode("ascii", "ignore"))
        encodings.append("" if encoding.startswith("utf-16") else encoding)  # it could not have been read so
    return [encoding for encoding in dict.fromkeys(encodings) if encoding]


def _ascii_text(data: bytes) -> tuple[str, str]:
    text = _strict(data, "iso2022_jp") if _ESCAPE in data else None
    return (text, "iso2022_jp") if text else (data.decode("ascii"), "utf-8")


def _trusted_text(data: bytes, declared: Sequence[str]) -> tuple[str, str]:
    """Return the text of a page beyond ASCII, and its encoding: the first in the order of trust."""
    utf8 = _strict(data, "utf-8")
    many = utf8 is not None and len(_BEYOND.findall(utf8)) >= ENOUGH
    if utf8 is not None and (many or not any(_is_multibyte(name) and _is_common(data, name) for name in declared)):
        return utf8, "utf-8"
    if utf8 is None and (text := _nearly(data, "utf-8")) is not None:
        return text, "utf-8"
    detected = "cp949" if _CHINESE & {*declared} and _is_korean(data) else _detected(data)
    if strict := _strict_text(data, declared, detected):
        return strict
    if utf8 is not None:
        return utf8, "utf-8"
    for encoding in (*declared, detected):
        if not encoding or encoding in _LATIN or _strict(data, encoding) is not None:
            continue  # what decodes strictly was rejected above
        if (text := _nearly(data, encoding)) is not None and _is_common(data, encoding, COMMON_SHARE):
            return text, encoding
    text = data.decode("cp1252", "replace")
    if _reads_latin(text):
        return text.replace("\ufffd", ""), "cp1252"
    raise UndecidedError("its encoding cannot be decided")


def _strict_text(data: bytes, declared: Sequence[str], detected: str) -> tuple[str, str] | None:
    """Return the text in the first encoding, of those declared and the detected one, that all bytes have."""
    for encoding in (*declared, detected):
        text = _strict(data, encoding) if encoding and encoding != "utf-8" else None
        if text is None or (encoding in declared and _contradicted(text, encoding, data, detected)):
            continue
        if not _is_common(data, encoding, COMMON_SHARE) and detected in _COMMON and _is_common(data, detected):
            continue
        if encoding in _LATIN and not _reads_latin(text):
            continue
        # A short text does not tell a single-byte encoding from its relatives.
        is_told = _is_multibyte(encoding) or len(_BEYOND.findall(text)) >= LONG
        if encoding in declared or (_has_script(text, encoding) and is_told):
            return text, encoding
    return None


def _canonical(name: str) -> str:
    """Return Python's name of an encoding as the web understands it; empty if there is none."""
    from resiliparse.parse.encoding import map_encoding_to_html5

    with suppress(UsageError):
        return text_encoding(map_encoding_to_html5(name, False) or name).removesuffix("-sig")
    return ""


def _detected(data: bytes) -> str:
    from resiliparse.parse.encoding import detect_encoding

    encoding = _canonical(detect_encoding(data, html5_compatible=False) or "")
    # No page is in mac-cyrillic, and short Cyrillic texts look so.
    return "cp1251" if encoding == "mac-cyrillic" else encoding


def _strict(data: bytes, encoding: str) -> str | None:
    with suppress(UnicodeError):
        return data.decode(encoding)
    return None


def _nearly(data: bytes, encoding: str) -> str | None:
    """Return the text without its broken characters; None if there are too many of them."""
    try:
        text = data.decode(encoding, "replace")
    except UnicodeError:  # Python's `idna` and others replace nothing
        return None
    beyond = len(_BEYOND.findall(text))
    broken = text.count("\ufffd") - data.count("\ufffd".encode())
    return data.decode(encoding, "ignore") if beyond and broken < BROKEN_SHARE * beyond else None


def _is_multibyte(encoding: str) -> bool:
    return encoding in _CHINESE or encoding.startswith(("cp9", "euc", "iso2022", "shift"))


def _is_common(data: bytes, encoding: str, share: float = 1) -> bool:
    """Return whether at least this share of the characters beyond ASCII are common ones of a multibyte encoding.

    An encoding whose characters are not known has only common ones.
    """
    if (common := _COMMON.get(encoding)) is None:
        return True
    beyond = _BEYOND.findall(data.decode(encoding, "replace").replace("\ufffd", ""))[:JUDGED]
    there = sum(1 for one in beyond if common.fullmatch(one.encode(encoding)))
    return bool(beyond) and there >= share * len(beyond)


def _contradicted(text: str, encoding: str, data: bytes, detected: str) -> bool:
    """Return whether the detected encoding is more plausible than this declared one; both decode the bytes."""
    if not detected or detected == encoding or detected == "ascii":
        return False
    other = _strict(data, detected)
    if other is None or not _has_script(other, detected):
        return False
    if encoding in _LATIN:
        return detected not in _LATIN and not _reads_latin(text)
    if not _is_multibyte(encoding):
        return _is_multibyte(detected)
    if encoding in _CHINESE:
        if not _is_multibyte(detected):
            return _reads_latin(data.decode("latin-1"))
        return len(_BEYOND.findall(other)) >= LONG or _is_korean(data)
    return _is_multibyte(detected) and not _has_script(text, encoding)


def _is_korean(data: bytes) -> bool:
    """Return whether all characters beyond ASCII are Hangul of EUC-KR, and enough of them."""
    beyond = _BEYOND.findall(_strict(data, "euc_kr") or "")
    return len(beyond) >= ALL_HANGUL and all(map(_HANGUL.match, beyond))


def _has_script(text: str, encoding: str) -> bool:
    """Return whether a text has the script that its encoding is for: Hangul or kana."""
    beyond = len(_BEYOND.findall(text))
    if encoding in {"cp949", "iso2022_kr"}:
        return len(_HANGUL.findall(text)) >= HANGUL_SHARE * beyond
    if encoding.startswith(("cp932", "euc_j", "shift", "iso2022_jp")):
        return len(_KANA.findall(text)) >= KANA_SHARE * beyond
    return True


def _reads_latin(text: str) -> bool:
    """Return whether the characters beyond ASCII are mostly letters and marks next to ASCII letters."""
    beyond = _BEYOND.findall(text)
    textual = _TEXTUAL.findall(text)
    if not beyond:
        return True
    textual_beyond = sum(1 for character in textual if character > "\x7f")
    runs = len(re.findall(r"(?<=([^\x00-\x7f]))(?!\1)[^\x00-\x7f]", text))  # a row of one sign is decoration
    return 2 * textual_beyond >= len(beyond) and runs <= LATIN_RUN_SHARE * len(beyond)


MEMORY_BYTES = 4 * 1024**3  # address space of the extracting process
# The signal that ends the process when a page's processor time is used up; 0 on Windows, which has no such timer.
TIMER: int = getattr(signal, "SIGPROF", 0)


def page_handler() -> Callable[[tuple[Page, float]], Extracted]:
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
