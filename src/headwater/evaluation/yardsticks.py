"""Yardsticks for a language model's bits per byte: xz and an n-gram model.

`xz -9` on the held-out text alone; `xz -9` after the training text, which is the size of both texts together less
that of the training text (its dictionary of 64 MiB is larger than the XZ_BYTES used here); and a byte n-gram model
counted on up to NGRAM_BYTES of the training text. All encode exactly the bytes that the model is scored on. The
end of a document is the byte 0xFF, which does not occur in UTF-8.
"""

from __future__ import annotations

import lzma
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from headwater.errors import DataError
from headwater.evaluation.ngram import LONGEST, byte_probabilities, windows_of
from headwater.storage import SILENT, Progress

END_OF_TEXT = b"\xff"
# The most training text for each. Counting takes about 12 bytes of memory a byte; xz takes about a second a
# megabyte, twice.
NGRAM_BYTES = 256 * 1024**2
XZ_BYTES = 16 * 1024**2
_PIECE_BYTES = 64 * 1024


@dataclass(frozen=True)
class Yardstick:
    """The held-out bits per byte of one yardstick, and the bytes of training text that it used."""

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
    """Return held-out bits per byte of xz alone, of xz after the training text, and of a byte n-gram model.

    Of a long `training` text, evenly spaced pieces are used. bytes_counted: the divisor of the bits, by default
    the length of `held_out`; it is the same for the model. limit: the most bytes of training text. Raises
    DataError if the held-out text is empty.
    """
    if not held_out:
        raise DataError("the held-out text is empty", expected="at least one byte")
    divisor = bytes_counted or len(held_out)
    counted, packed = (
        spread(training, size if limit is None else min(size, limit)) for size in (NGRAM_BYTES, XZ_BYTES)
    )
    progress.start("yardsticks", 3)
    context = max(0, min(LONGEST, len(counted) - 1))
    ngram = -float(np.log2(byte_probabilities(counted, windows_of(held_out, context), context)).sum())
    progress.advance(1)
    with ThreadPoolExecutor(max_workers=2) as threads:  # lzma releases the GIL
        before, after = threads.map(_xz_bits, (packed, packed + held_out))
    measured = [
        Yardstick("xz -9", _xz_bits(held_out) / divisor, 0),
        Yardstick("xz -9 after the training text", (after - before) / divisor, len(packed)),
        Yardstick(f"n-gram model of bytes, up to {LONGEST} before each", ngram / divisor, len(counted)),
    ]
    progress.finish(", ".join(f"{y.name} {y.bits_per_byte:.3f}" for y in measured))
    return measured


def spread(text: bytes, size: int) -> bytes:
    """Return `text`, or about `size` bytes of it in evenly spaced pieces."""
    if len(text) <= size:
        return text
    count = max(1, size // _PIECE_BYTES)
    piece = size // count
    starts = [len(text) * number // count for number in range(count)]
    return b"".join(text[start : start + piece] for start in starts)


def _xz_bits(text: bytes) -> int:
    return 8 * len(lzma.compress(text, format=lzma.FORMAT_XZ, preset=9))
