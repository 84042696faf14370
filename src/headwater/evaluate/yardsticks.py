"""What a language model's bits per byte are measured against: two compressors that everybody has met.

`xz -9` alone on the held-out text; `xz -9` that has seen the training text, which is the size of both together
less the size of the training text (its dictionary reaches back 64 MiB, further than the XZ_BYTES given to it
here); and a byte n-gram model counted on up to NGRAM_BYTES of the training text. All of them pay for
exactly the bytes that the model is scored on, its ends of documents included, which stand as the byte 0xFF, never
part of UTF-8.
"""

from __future__ import annotations

import lzma
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from headwater.errors import DataError
from headwater.evaluate.ngram import LONGEST, ByteNgram
from headwater.storage.progress import SILENT, Progress

END_OF_TEXT = b"\xff"
# How much of the training text each learns from: all of a small corpus, a bounded share of a large one. Counting
# takes about 30 bytes of memory a byte; xz takes about a second a megabyte, twice.
NGRAM_BYTES = 32 * 1024**2
XZ_BYTES = 16 * 1024**2
_PIECE_BYTES = 64 * 1024


@dataclass(frozen=True)
class Yardstick:
    """One compressor's held-out bits per byte, and on how many bytes of training text it rests."""

    name: str
    bits_per_byte: float
    training_bytes: int


def yardsticks(
    training: bytes,
    held_out: bytes,
    *,
    bytes_counted: int | None = None,
    limit: int | None = None,
    progress: Progress = SILENT,
) -> list[Yardstick]:
    """Held-out bits per byte of xz alone, of xz after the training text, and of a byte n-gram model.

    Of `training` pieces that lie evenly over it are used, where it is longer than a yardstick learns from. The
    bits are divided by `bytes_counted`, where given, instead of by the length of `held_out`: the same divisor as
    for the model. `limit` lowers the bytes that each learns from. Raises DataError when the held-out text
    is empty.
    """
    if not held_out:
        raise DataError("the held-out text is empty", expected="at least one byte")
    divisor = bytes_counted or len(held_out)
    counted, packed = (
        spread(training, size if limit is None else min(size, limit)) for size in (NGRAM_BYTES, XZ_BYTES)
    )
    progress.start("yardsticks", 3)
    ngram = ByteNgram(counted, max(0, min(LONGEST, len(counted) - 1))).bits(held_out)
    progress.advance(1)
    with ThreadPoolExecutor(max_workers=2) as threads:  # lzma lets go of the interpreter's lock
        before, after = threads.map(_xz_bits, (packed, packed + held_out))
    found = [
        Yardstick("xz -9", _xz_bits(held_out) / divisor, 0),
        Yardstick("xz -9 after the training text", (after - before) / divisor, len(packed)),
        Yardstick(f"n-gram model of bytes, up to {LONGEST} before each", ngram / divisor, len(counted)),
    ]
    progress.finish(", ".join(f"{y.name} {y.bits_per_byte:.3f}" for y in found))
    return found


def spread(text: bytes, size: int) -> bytes:
    """All of `text`, or about `size` bytes of it in pieces that lie evenly over it."""
    if len(text) <= size:
        return text
    count = max(1, size // _PIECE_BYTES)
    piece = size // count
    starts = [len(text) * number // count for number in range(count)]
    return b"".join(text[start : start + piece] for start in starts)


def _xz_bits(text: bytes) -> int:
    return 8 * len(lzma.compress(text, format=lzma.FORMAT_XZ, preset=9))
