"""Decode text that users give, say why it is not UTF-8, and bring it into one Unicode form."""

from __future__ import annotations

import codecs
import re
import unicodedata

from headwater.errors import DataError
from headwater.reading.remote import AnyFile

_HANGUL = re.compile(rb"[\xb0-\xc8][\xa1-\xfe]")  # a syllable in EUC-KR, the common part of cp949
_BEYOND_ASCII = re.compile(rb"[\x80-\xff]")


def decode_text(data: bytes, path: AnyFile) -> str:
    """Decode the bytes of `path` as UTF-8 without a byte-order mark; raises DataError naming the line."""
    require_text(data[:65536], path)
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise undecodable(path, error) from None


def require_text(data: bytes, path: AnyFile) -> None:
    """Raise DataError if the beginning of a file is UTF-16 or has NUL bytes."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DataError(f"{path} is UTF-16", expected="UTF-8 text", repair=_conversion(path, "utf-16"))
    if b"\x00" in data:
        raise DataError(f"{path} is a binary file", expected="UTF-8 text", repair="Convert it to text first")


def undecodable(
    path: AnyFile, failure: UnicodeDecodeError, *, lines: int = 0, is_multibyte: bool = False
) -> DataError:
    """Return the DataError for a file that was cut off or is in another encoding, with the line.

    lines: how many lines are before the bytes that failed. is_multibyte: whether the text before these bytes has
    characters beyond ASCII.
    """
    data, start, end = failure.object, failure.start, failure.end
    line = lines + data.count(b"\n", 0, start) + 1
    # A single incomplete byte after pure ASCII is more likely the last letter of a text in latin1.
    if failure.reason == "unexpected end of data" and (
        is_multibyte or end > start + 1 or not data[:start].isascii()
    ):
        return DataError(
            f"{path} is cut off in its last character, in line {line}",
            expected="complete UTF-8 text",
            repair="Copy or download it again, or remove its incomplete end",
        )
    hangul = 2 * len(_HANGUL.findall(data))
    encoding = "cp949" if hangul > 0.8 * len(_BEYOND_ASCII.findall(data)) else "latin1"
    seen = f"{path} is not UTF-8: byte 0x{data[start]:02x} in line {line}"
    return DataError(seen, expected="UTF-8 text", repair=_conversion(path, encoding))


def _conversion(path: AnyFile, encoding: str) -> str:
    return f"Convert it, as with: iconv -f {encoding} -t utf-8 {path} > converted{path.suffix}"


def without_surrogates(text: str) -> str:
    """Replace lone surrogates by U+FFFD, and join split pairs."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def compose(text: str) -> str:
    """Return a text in Unicode's composed form, NFC: Hangul as syllables, é as one character.

    macOS and some editors write the decomposed form, which looks the same and has other characters and tokens.
    """
    return unicodedata.normalize("NFC", text)
