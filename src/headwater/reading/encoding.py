"""Detect the encoding of text, decode it, explain what is not UTF-8, and bring text into one form."""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headwater.errors import DataError, UsageError, suggest

if TYPE_CHECKING:
    from pathlib import Path

UTF_8 = "utf-8-sig"
_MARKS = (
    (codecs.BOM_UTF8, UTF_8),
    (codecs.BOM_UTF32_LE, "utf-32"),  # begins with the mark of UTF-16
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# Python's encodings that have more characters than those that programs call by these names.
_WIDER = {"euc_kr": "cp949", "shift_jis": "cp932", "gb2312": "gb18030", "gbk": "gb18030", "big5": "big5hkscs"}
_COMMON = (
    *("utf-8", "utf-16", "cp949", "euc-kr", "cp932", "shift_jis", "euc_jp", "gb18030", "big5", "cp1251"),
    *("koi8-r", "cp1250", "cp1252", "latin-1", "iso8859-15", "mac-roman"),
)
_SORTED_RUN = 30  # combining marks, as in the stream-safe text format; no writing system has more
_TWO_MARKS = "\u0f73\u0f75\u0f81"  # no marks themselves, but they decompose into two
_BROKEN_SHARE = 0.25  # of the characters beyond ASCII that may be invalid; in a wrong encoding, most are
# Of the detector's confidence in its best answer: for a declared encoding to be used, and for windows-1252, the
# web's default, also of a text with less than _SEVERAL bytes beyond ASCII. With less confidence than
# _LITTLE_EVIDENCE, a declaration that fits is believed.
_AS_PLAUSIBLE, _TIE, _NEAR_TIE, _SEVERAL, _LITTLE_EVIDENCE = 0.5, 0.999, 0.75, 10, 0.03
_ESCAPE = b"\x1b$"  # to the characters of two bytes of ISO-2022-JP


def text_encoding(name: str) -> str:
    """Return Python's name of a text encoding that a user named; raise UsageError if there is none."""
    try:
        bytes(4).decode(name)  # raises LookupError for what does not encode text, such as rot13
        codec = codecs.lookup(name).name
    except (LookupError, ValueError):
        raise UsageError(f"there is no encoding {name!r}", **suggest(name, _COMMON)) from None
    return UTF_8 if codec == "utf-8" else _WIDER.get(codec, codec)


# How documents begin that are not plain text although all their bytes may be: what they are, and what reads them.
_NOT_TEXT = (
    (b"%PDF-", "is a PDF", "pdftotext FILE"),
    (b"{\\rtf", "is an RTF document", "unrtf --text FILE"),
    (b"%!PS", "is PostScript", "ps2ascii FILE"),
)
# A text has at most one NUL byte or other control character in so many bytes.
_FEW = 10
_NOT_IN_TEXT = bytes([*range(9), 11, *range(14, 27), *range(28, 32)])


def encoding_of(data: bytes, declared: Sequence[str] = ()) -> str:
    """Return Python's name of the encoding of a text, or of its beginning; "" if it cannot be decided.

    In this order: a byte-order mark; UTF-8, if all or nearly all characters are valid; the first of `declared`
    that is at least half as plausible as chardet's best answer; that answer. A text that is broken in a few places
    has the encoding of its other characters.
    """
    if marked := next((encoding for mark, encoding in _MARKS if data.startswith(mark)), ""):
        return marked
    if data.isascii() and b"\0" not in data and _ESCAPE not in data:
        return UTF_8
    valid = _begins(data, "utf-8")
    # One byte beyond ASCII at the end is more likely a letter of another encoding than a character cut short.
    is_utf8 = _is_nearly(data, "utf-8") if valid is None else not valid.isascii() or len(data) > len(valid) + 1
    if is_utf8 and b"\0" not in data:
        return UTF_8
    import chardet

    era = chardet.EncodingEra.MODERN_WEB | chardet.EncodingEra.LEGACY_ISO
    ranked: dict[str, float] = {}
    for answer in chardet.detect_all(data, encoding_era=era):
        if answer["encoding"] is not None:  # as that of a binary file
            ranked.setdefault(text_encoding(answer["encoding"]), answer["confidence"])
    best = max(ranked.values(), default=0.0)
    least = _AS_PLAUSIBLE * best if best > _LITTLE_EVIDENCE else 0.0
    plausible = [name for name in declared if ranked.get(name, 0.0) >= least]
    tie = _TIE if len(data) - len(data.decode("ascii", "ignore")) >= _SEVERAL else _NEAR_TIE
    western = ["cp1252"] if ranked.get("cp1252", 0.0) >= tie * best > 0 else []
    candidates = [*plausible, *western, *ranked]
    for fits in (lambda name: _begins(data, name) is not None, lambda name: _is_nearly(data, name)):
        if encoding := next(filter(fits, candidates), ""):
            return encoding
    return ""


def _begins(data: bytes, encoding: str) -> str | None:
    """Return the text of bytes that may end inside a character; None if they are not in this encoding."""
    try:
        return codecs.getincrementaldecoder(encoding)().decode(data)
    except UnicodeError:
        return None


def _is_nearly(data: bytes, encoding: str) -> bool:
    """Return whether only a few of the characters beyond ASCII are broken."""
    try:
        text = data.decode(encoding, "replace")
    except UnicodeError:  # Python's `idna` and others replace nothing
        return False
    beyond = len(text) - len(text.encode("ascii", "ignore"))
    return text.count("\ufffd") - data.count("\ufffd".encode()) < _BROKEN_SHARE * beyond


def decode_text(data: bytes, path: Path) -> str:
    """Decode the bytes of `path` as UTF-8 without a byte-order mark; raises DataError naming the line."""
    require_plain(data, path)
    require_text(data[:65536], path)
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise undecodable(path, error) from None


def require_plain(data: bytes, path: Path) -> None:
    """Raise DataError if a file, by its first bytes, is a PDF or another document that is not plain text."""
    for beginning, kind, command in _NOT_TEXT:
        if data.startswith(beginning):
            raise DataError(f"{path} {kind}", expected="plain text", repair=f"Convert it, as with: {command}")


def require_text(data: bytes, path: Path, encoding: str | None = None, lines: int = 0) -> None:
    """Raise DataError if a part of a file is UTF-16 or has NUL bytes; `lines` are before it.

    `encoding` as in `text_blocks`.
    """
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DataError(f"{path} is UTF-16", expected="UTF-8 text", repair=_conversion("utf-16"))
    if b"\x00" in data:
        texts = len(data.translate(None, _NOT_IN_TEXT))
        whole = data.lstrip(bytes(range(0x80, 0xC0)))  # a block may begin inside a character
        if _FEW * (len(data) - texts) <= len(data) and _begins(whole, "utf-8") is not None:
            line = lines + data.count(b"\n", 0, data.index(0)) + 1
            raise DataError(
                f"{path} has a NUL byte in line {line:,}",
                expected="text",
                repair=r"Remove it, as with: tr -d '\000' < FILE",
            )
        option = "" if encoding is None else "; if it is UTF-16: --encoding utf-16-le"
        raise DataError(
            f"{path} is a binary file", expected="UTF-8 text", repair=f"Convert it to text first{option}"
        )


def undecodable(
    path: Path,
    failure: UnicodeDecodeError,
    *,
    lines: int = 0,
    is_multibyte: bool = False,
    encoding: str | None = None,
) -> DataError:
    """Return the DataError for a file that was cut off or is in another encoding, with the line.

    lines: how many lines are before the bytes that failed. is_multibyte: whether the text before these bytes has
    characters beyond ASCII. encoding: see `text_blocks`.
    """
    data, start, end = failure.object, failure.start, failure.end
    line = lines + data.count(b"\n", 0, start) + 1
    byte = f"byte 0x{data[start]:02x} in line {line:,}"
    if encoding and encoding != UTF_8:
        return DataError(f"{path} is not in the encoding {encoding}: {byte}", repair="Repair that line")
    # A single incomplete byte after pure ASCII is more likely the last letter of a text in another encoding.
    if failure.reason == "unexpected end of data" and (
        is_multibyte or end > start + 1 or not data[:start].isascii()
    ):
        return DataError(
            f"{path} is cut off in its last character, in line {line:,}",
            expected="complete UTF-8 text",
            repair="Copy or download it again, or remove its incomplete end",
        )
    other = encoding_of(data) if encoding is None else UTF_8
    repair = _conversion(other, f"If it is {other}") if other not in {"", UTF_8} else "Repair that line"
    return DataError(f"{path} is not UTF-8: {byte}", expected="UTF-8 text", repair=repair)


def _conversion(encoding: str, when: str = "Convert it, as with") -> str:
    return f"{when}: iconv -f {encoding} -t utf-8 FILE"


def compose(text: str) -> str:
    """Return a text in Unicode's composed form, NFC: Hangul as syllables, é as one character.

    macOS and some editors write the decomposed form, which looks the same and has other characters and tokens.
    """
    return unicodedata.normalize("NFC", sort_marks(text))


def sort_marks(text: str, run: int = _SORTED_RUN) -> str:
    """Return a canonically equivalent text whose runs of `run` or more combining marks are in canonical order.

    The normal forms of both texts are equal (UAX #15), and CPython normalises this one in linear time: it orders
    the marks of a run by insertion, holding the interpreter for minutes at a megabyte of marks.
    """
    if text.isascii() or not any(unicodedata.combining(c) or c in _TWO_MARKS for c in set(text[::run])):
        return text  # a long run has a mark at one of these positions
    from tokenizers.normalizers import NFD

    long_run = rf"[^\x00-\u02ff\w\s\ud800-\udfff]{{{run},}}"
    return re.sub(long_run, lambda match: str(NFD().normalize_str(match[0])), text)


class _WithoutPunctuation(dict[int, int]):
    """Table for `str.translate`: punctuation (Unicode's categories P) becomes a space."""

    def __missing__(self, code: int) -> int:
        self[code] = ord(" ") if unicodedata.category(chr(code)).startswith("P") else code
        return self[code]


_TABLE = _WithoutPunctuation()


def copy_key(text: str) -> str:
    """Return a form that is equal for texts that differ only in Unicode form, case, white space or punctuation.

    A text of punctuation alone keeps it: ":)" is not a copy of ":(".
    """
    folded = compose(compose(text).casefold())
    return " ".join(folded.translate(_TABLE).split()) or " ".join(folded.split())
