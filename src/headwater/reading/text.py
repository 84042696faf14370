"""Read text files as streams of blocks, lines or parts, plain or compressed."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePath

from headwater.errors import DataError
from headwater.reading.compressed import CompressedFile, compression_of
from headwater.reading.encoding import UTF_8, encoding_of, require_plain, require_text, undecodable
from headwater.reading.files import FileLimits, file_blocks, file_error

_COMPRESSIONS = (".gz", ".zst", ".xz", ".bz2")
_BLOCK_BYTES = 4 * 1024**2
_CHARACTER_BYTES = 4  # in any encoding
_HELD_BYTES = 1 << 16  # before the first bytes beyond ASCII, if these end a block


def is_compressed(path: PurePath) -> bool:
    """Return whether a file is compressed, by the suffix of its name."""
    return path.suffix.lower() in _COMPRESSIONS


def unpacked_name(path: PurePath) -> str:
    """Return the name of a file in lower case, without the suffix of a compression."""
    name = path.name.lower()
    for packed in _COMPRESSIONS:
        name = name.removesuffix(packed)
    return name


def unpacked_suffix(path: PurePath) -> str:
    """Return the suffix of `unpacked_name`."""
    return PurePath(unpacked_name(path)).suffix


def read_lines(path: Path, encoding: str | None = None) -> Iterator[str]:
    """Yield lines without their "\\n"; other separators that str.splitlines knows are text inside JSON.

    A byte-order mark at the beginning of a line, where files were joined, is dropped.
    """
    return (line.removeprefix("\ufeff") for line in split_text(path, "\n", encoding))


def split_text(path: Path, separator: str, encoding: str | None = None) -> Iterator[str]:
    """Yield the parts of a file between separators; `encoding` as in `text_blocks`."""
    pending: list[str] = []
    size = 0
    tail = ""  # may be the beginning of a separator
    for block in text_blocks(path, encoding=encoding):
        *whole, rest = (tail + block).split(separator)
        for part in whole:
            yield "".join(pending) + part
            pending, size = [], 0
        end = max(0, len(rest) - len(separator) + 1)
        pending.append(rest[:end])
        tail = rest[end:]
        size += end
        check_unpacked(path, size)
    yield "".join(pending) + tail


def check_unpacked(path: Path, size: int, *, is_packed: bool | None = None) -> None:
    """Raise DataError if a text of `size` characters is longer than a compressed file may unpack to.

    is_packed: whether the file is compressed; None to decide it by its first bytes.
    """
    if size <= FileLimits.UNPACKED_CHARACTERS or not (compression_of(path) if is_packed is None else is_packed):
        return
    most = max(FileLimits.UNPACKED_CHARACTERS, FileLimits.UNPACKED_RATIO * path.stat().st_size)
    if size > most:
        raise DataError(
            f"{path} unpacks to a text of more than {most:,} characters",
            expected=f"at most {FileLimits.UNPACKED_RATIO} characters for each compressed byte",
            repair="If it is not a compression bomb, unpack it first",
        )


def text_blocks(path: Path, block_bytes: int | None = None, encoding: str | None = None) -> Iterator[str]:
    """Yield the text of a file in blocks; raise DataError naming the first line that cannot be decoded.

    encoding: a name that `text_encoding` returned; None for UTF-8; "" for that of `file_encoding`.
    """
    chosen = file_encoding(path) if encoding == "" else encoding or UTF_8
    decoder = codecs.getincrementaldecoder(chosen)()
    is_first, lines, is_multibyte = True, 0, False
    for block in byte_blocks(path, block_bytes or _BLOCK_BYTES):
        if chosen == UTF_8:
            require_text(block, path, encoding, lines)
        try:
            text = decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            named = encoding if chosen == UTF_8 else chosen
            raise undecodable(path, error, lines=lines, is_multibyte=is_multibyte, encoding=named) from None
        if is_first and chosen != UTF_8:  # a mark that the decoder of UTF-16 LE does not remove
            text = text.removeprefix("\ufeff")
        is_first = False
        lines += text.count("\n")
        is_multibyte = is_multibyte or not text.isascii()
        if text:
            yield text


def file_encoding(path: Path, block_bytes: int = _BLOCK_BYTES) -> str:
    """Return the encoding of a file by its first characters beyond ASCII; raise DataError if it is undecided.

    A file that cannot be read further, or unpacks to far more than its size, has the encoding of what was read:
    `text_blocks` yields that before it raises the error.
    """
    encoding, held, lines, size = UTF_8, b"", 0, 0
    with suppress(DataError):
        for block in byte_blocks(path, block_bytes):
            sample, held = held + block, b""
            if block and not sample.isascii() and sample[:-_CHARACTER_BYTES].isascii():
                held = sample[-_HELD_BYTES:]  # it may end inside a character
            elif (encoding := encoding_of(sample)) != UTF_8 or not sample.isascii():
                break
            lines += sample.count(b"\n", 0, len(sample) - len(held))
            size += len(block)
            check_unpacked(path, size)
    if not encoding:
        require_text(sample, path, "", lines)
        raise DataError(f"the encoding of {path} cannot be decided", repair="Name it, as with: --encoding NAME")
    return encoding


def byte_blocks(path: Path, block_bytes: int) -> Iterator[bytes]:
    """Yield the unpacked bytes of a text in blocks, then an empty one; raise DataError for a PDF."""
    is_first = True
    try:
        for block in _unpacked_blocks(path, block_bytes):
            if is_first:
                require_plain(block, path)
            is_first = False
            yield block
    except OSError as error:
        raise file_error(path, error) from None
    yield b""


def _unpacked_blocks(path: Path, block_bytes: int) -> Iterator[bytes]:
    if compression_of(path):
        file = CompressedFile(path)
        yield from file.blocks()
        if file.cut:
            raise DataError(file.cut, expected="a whole file", repair="Fetch or make it again")
    else:
        yield from file_blocks(path, block_bytes)


def cut_text(text: str, characters: int, border: re.Pattern[str]) -> Iterator[str]:
    """Yield a text in pieces that end at the first match of `border` after so many characters, to bound memory."""
    start = 0
    while len(text) - start > characters and (match := border.search(text, start + characters)):
        yield text[start : match.end()]
        start = match.end()
    yield text[start:] if start else text
