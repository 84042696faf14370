"""Read compressed files as streams: .zst (also with long windows), .xz, .bz2, .gz, or plain.

Dumps and crawls of many gigabytes are sometimes cut short. Everything before the cut is returned, and `cut` says
what was wrong.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from headwater.errors import DataError, require_extra
from headwater.reading.files import FileLimits, file_blocks, file_error

_BLOCK_BYTES = 1 << 20
# The window of Reddit's dumps is 2 GiB (`zstd --long=31`), more than decoders allow by default.
_ZSTANDARD_WINDOW = 1 << 31
_PACKED_BYTES = 1 << 16
_XZ_MEMORY = 512 * 1024**2  # `xz -9` asks for 65 MiB
# Input of one call of the decoder: a block of equal bytes grows from 4 bytes to 131,072.
_ZSTANDARD_INPUT_BYTES = 1 << 11

_FIRST_BYTES = 512
_CONTROLS = bytes([*range(9), *range(14, 27), *range(28, 32)])  # the bytes that no text has, in any encoding
# How compressed files begin.
_MAGIC = {b"\x28\xb5\x2f\xfd": ".zst", b"\xfd7zXZ\0": ".xz", b"\x1f\x8b": ".gz"} | {
    b"BZh%d1AY&SY" % level: ".bz2" for level in range(1, 10)
}
# A decoder of one stream, and the bytes that may be between streams.
_DECODERS: dict[str, tuple[Callable[[], Any], bytes]] = {
    ".xz": (partial(lzma.LZMADecompressor, lzma.FORMAT_XZ, _XZ_MEMORY), b"\0"),
    ".bz2": (bz2.BZ2Decompressor, b""),
    ".gz": (partial(zlib.decompressobj, zlib.MAX_WBITS | 16), b"\0"),
}


class CompressedFile:
    """A file read in blocks of unpacked bytes; `cut` says where and why reading ended early, if it did."""

    def __init__(self, path: Path) -> None:
        self.path, self.cut = path, ""
        self.bytes = 0  # unpacked bytes so far

    def blocks(self) -> Iterator[bytes]:
        """Yield the content in blocks; raises DataError if the file, or its first block, cannot be read."""
        try:
            if not self.path.stat().st_size:  # a complete file in some formats
                raise EOFError("it is empty")
            for block in _blocks(self.path):
                self.bytes += len(block)
                yield block
        except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
            if isinstance(error, OSError) and error.errno is not None:  # bz2 raises one without a number
                raise file_error(self.path, error) from None
            self.cut = f"{self.path} ends early, after {self.bytes:,} bytes of content: {error}"
            if not self.bytes:
                raise DataError(
                    f"{self.path} cannot be read: {error}",
                    expected="a complete .zst, .xz, .bz2, .gz or plain file",
                    repair="Fetch it again",
                ) from None

    def lines(self) -> Iterator[bytes]:
        """Yield lines without their ends; cut one at `FileLimits.LINE_BYTES`; drop a last one that was cut."""
        pending: list[bytes] = []
        size = 0
        for block in self.blocks():
            *whole, rest = block.split(b"\n")
            for line in whole:
                yield b"".join([*pending, line])[: FileLimits.LINE_BYTES]
                pending, size = [], 0
            if size <= FileLimits.LINE_BYTES:
                pending.append(rest)
                size += len(rest)
        last = b"".join(pending)[: FileLimits.LINE_BYTES]
        if last and not self.cut:
            yield last


def compression_of(path: Path) -> str:
    """Return the suffix of a file's compression by its first bytes; "" if it is plain, whatever its name is.

    By its name if these are neither a compression's nor text.
    """
    with path.open("rb") as handle:
        first = handle.read(_FIRST_BYTES)
    for magic, suffix in _MAGIC.items():
        if first.startswith(magic):
            return suffix
    named = path.suffix.lower().replace(".zstd", ".zst")
    is_text = first and len(first.translate(None, _CONTROLS)) == len(first)
    return "" if is_text or named not in _MAGIC.values() else named


def _blocks(path: Path) -> Iterator[bytes]:
    suffix = compression_of(path)
    if suffix == ".zst":
        with require_extra("corpus", "reading .zst"):
            import zstandard
        frames = zstandard.ZstdDecompressor(max_window_size=_ZSTANDARD_WINDOW)
        try:
            yield from _stream_blocks(path, frames.decompressobj, packed_bytes=_ZSTANDARD_INPUT_BYTES)
        except zstandard.ZstdError as error:
            raise EOFError(str(error)) from None
    elif suffix in _DECODERS:
        new_decoder, padding = _DECODERS[suffix]
        yield from _stream_blocks(path, new_decoder, _BLOCK_BYTES, padding=padding)
    else:
        yield from file_blocks(path, _BLOCK_BYTES)


def _stream_blocks(
    path: Path,
    new_decoder: Callable[[], Any],
    *most: int,
    padding: bytes = b"",
    packed_bytes: int = _PACKED_BYTES,
) -> Iterator[bytes]:
    """Decode stream after stream; the libraries' own readers silently end at one that is cut or begins wrongly.

    most: the most bytes that one call of the decoder returns; none for a decoder that cannot limit them.
    """
    decoder: Any = None
    for packed in file_blocks(path, packed_bytes):
        is_pending = True
        while is_pending:
            if decoder is None:
                packed = packed.lstrip(padding) if padding else packed
                if not packed:
                    break
                decoder = new_decoder()
            if block := decoder.decompress(packed, *most):
                yield block
            if decoder.eof:
                packed, decoder = decoder.unused_data, None
                is_pending = bool(packed)
            else:  # zlib gives back the input that it has not used, bz2 and lzma keep it
                packed = getattr(decoder, "unconsumed_tail", b"")
                is_pending = bool(packed) or not getattr(decoder, "needs_input", True)
    if decoder is not None:
        raise EOFError("its last stream is cut short")
