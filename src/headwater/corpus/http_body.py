"""Unpack the bodies of HTTP responses."""

from __future__ import annotations

import zlib

_GZIP = b"\x1f\x8b"  # the beginning of a gzip member
_BODY_BYTES = 1 << 14  # of a body unpacked at a time: what follows each of many small members is copied


class BodyDecoder:
    """Unpacks the body of an HTTP response: gzip members one after the other, zlib, or deflate without a frame.

    Bytes after the end that are not another gzip member are dropped.
    """

    def __init__(self, window: int = zlib.MAX_WBITS | 32) -> None:
        """`window` is that of `zlib.decompressobj`; by default gzip or zlib."""
        self._decoder = zlib.decompressobj(window)
        self._after = b""  # the first bytes after the members so far

    @property
    def eof(self) -> bool:
        """Whether the last member is complete."""
        return self._decoder.eof

    def decompress(self, packed: bytes, most: int) -> bytes:
        """Return the next unpacked bytes, at most `most`, and drop those beyond; raises zlib.error."""
        pieces: list[bytes] = []
        for start in range(0, len(packed), _BODY_BYTES):
            block = packed[start : start + _BODY_BYTES]
            while block and most > 0:
                if self._decoder.eof:
                    block = self._after + block
                    self._after = block[: len(_GZIP)]
                    if self._after != _GZIP:
                        break
                    self._decoder, self._after = zlib.decompressobj(zlib.MAX_WBITS | 16), b""
                pieces.append(self._decoder.decompress(block, most))
                most -= len(pieces[-1])
                block = self._decoder.unused_data
        return b"".join(pieces)
