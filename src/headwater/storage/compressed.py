"""Read compressed files as streams: .zst (also with long windows), .xz, .bz2, .gz, or plain.

Dumps and crawls of many gigabytes are sometimes cut short. Everything before the cut is returned, and `cut` says
what was wrong.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from headwater.errors import DataError, require_extra
from headwater.storage.files import file_error

_BLOCK_BYTES = 1 << 20
# The window of Reddit's dumps is 2 GiB (`zstd --long=31`), more than decoders allow by default.
_ZSTANDARD_WINDOW = 1 << 31
_PACKED_BYTES = 1 << 16
_XZ_MEMORY = 512 * 1024**2  # `xz -9` asks for 65 MiB
# Input of one call of the decoder: a block of equal bytes grows from 4 bytes to 131,072.
_ZSTANDARD_INPUT_BYTES = 1 << 11
# Longer than any line of a dump; bounds the memory for a line that does not end, as in a compression bomb.
LINE_BYTES = 64 * 1024**2


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
        """Yield lines without their ends; truncate one longer than LINE_BYTES, drop a last one that was cut."""
        pending: list[bytes] = []
        size = 0
        for block in self.blocks():
            *whole, rest = block.split(b"\n")
            for line in whole:
                yield b"".join(pending) + line
                pending, size = [], 0
            if size <= LINE_BYTES:
                pending.append(rest)
                size += len(rest)
        last = b"".join(pending)
        if last and not self.cut:
            yield last


def _blocks(path: Path) -> Iterator[bytes]:
    suffix = path.suffix.lower()
    if suffix in {".zst", ".zstd"}:
        yield from _zstandard_blocks(path)
        return
    if suffix == ".xz":
        yield from _stream_blocks(path, _xz_decoder, padding=b"\0")
        return
    if suffix == ".bz2":
        yield from _stream_blocks(path, bz2.BZ2Decompressor)
        return
    if suffix == ".gz":
        yield from _stream_blocks(path, _GzipDecoder, padding=b"\0")
        return
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK_BYTES):
            yield block


class _GzipDecoder:
    """A decoder of one gzip member with the interface of bz2's and lzma's."""

    def __init__(self) -> None:
        self._decoder = zlib.decompressobj(zlib.MAX_WBITS | 16)

    def decompress(self, packed: bytes, most: int) -> bytes:
        return self._decoder.decompress(self._decoder.unconsumed_tail + packed, most)

    @property
    def eof(self) -> bool:
        return self._decoder.eof

    @property
    def needs_input(self) -> bool:
        return not self._decoder.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._decoder.unused_data


def _xz_decoder() -> lzma.LZMADecompressor:
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)


def _stream_blocks(path: Path, new_decoder: Callable[[], Any], padding: bytes = b"") -> Iterator[bytes]:
    """Decode stream after stream; Python's own file classes silently end at a stream that begins wrongly."""
    decoder: Any = None
    with path.open("rb") as handle:
        while packed := handle.read(_PACKED_BYTES):
            while packed:
                if decoder is None:
                    packed = packed.lstrip(padding) if padding else packed
                    if not packed:
                        break
                    decoder = new_decoder()
                if block := decoder.decompress(packed, _BLOCK_BYTES):
                    yield block
                while not decoder.eof and not decoder.needs_input:
                    if block := decoder.decompress(b"", _BLOCK_BYTES):
                        yield block
                packed = decoder.unused_data if decoder.eof else b""
                if decoder.eof:
                    decoder = None
    if decoder is not None:
        raise EOFError("its last stream is cut short")


def _zstandard_blocks(path: Path) -> Iterator[bytes]:
    """Decode frame after frame; zstandard's own reader silently ends at a cut frame."""
    with require_extra("corpus", "reading .zst"):
        import zstandard
    decoder = zstandard.ZstdDecompressor(max_window_size=_ZSTANDARD_WINDOW)
    frame: Any = None
    with path.open("rb") as handle:
        while compressed := handle.read(_ZSTANDARD_INPUT_BYTES):
            while compressed:
                frame = frame or decoder.decompressobj()
                try:
                    block = frame.decompress(compressed)
                except zstandard.ZstdError as error:
                    raise EOFError(str(error)) from None
                compressed = frame.unused_data if frame.eof else b""
                if frame.eof:
                    frame = None
                if block:
                    yield block
    if frame is not None:
        raise EOFError("the last frame is cut short")
