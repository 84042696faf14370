"""What a language model's bits per byte are measured against: two compressors that everybody has met.

`xz -9` alone on the held-out text; `xz -9` that has seen the training text, which is the size of both together
less the size of the training text (its dictionary reaches back 64 MiB, further than the TRAINING_BYTES given to
it here); and a byte n-gram model counted on the training text. All of them pay for exactly the bytes that
the model is scored on, its ends of documents included, which stand as the byte 0xFF, never part of UTF-8.
"""

from __future__ import annotations

import lzma
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from headwater.errors import DataError
from headwater.evaluate.ngram import LONGEST, ByteNgram
from headwater.progress import SILENT, Progress

END_OF_TEXT = b"\xff"
# Yardsticks learn from this much of the training text, the end of it: all of a small corpus, a bounded share of
# a large one. Counting takes about 30 bytes of memory a byte, xz about a second of time a megabyte, twice.
TRAINING_BYTES = 16 * 1024**2


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
    training_bytes: int = TRAINING_BYTES,
    progress: Progress = SILENT,
) -> list[Yardstick]:
    """Held-out bits per byte of xz alone, of xz after the training text, and of a byte n-gram model.

    Of `training` the last `training_bytes` are used. The bits are divided by `bytes_counted`, where given,
    instead of by the length of `held_out`: the same divisor as for the model. Raises DataError when the
    held-out text is empty.
    """
    if not held_out:
        raise DataError("the held-out text is empty", expected="at least one byte")
    divisor = bytes_counted or len(held_out)
    training = training[-training_bytes:]
    progress.start("yardsticks", 3)
    ngram = ByteNgram(training, max(0, min(LONGEST, len(training) - 1))).bits(held_out)
    progress.advance(1)
    with ThreadPoolExecutor(max_workers=2) as threads:  # lzma lets go of the interpreter's lock
        before, after = threads.map(_xz_bits, (training, training + held_out))
    found = [
        Yardstick("xz -9", _xz_bits(held_out) / divisor, 0),
        Yardstick("xz -9 after the training text", (after - before) / divisor, len(training)),
        Yardstick(f"n-gram model of bytes, up to {LONGEST} before each", ngram / divisor, len(training)),
    ]
    progress.finish(", ".join(f"{y.name} {y.bits_per_byte:.3f}" for y in found))
    return found


def _xz_bits(text: bytes) -> int:
    return 8 * len(lzma.compress(text, format=lzma.FORMAT_XZ, preset=9))
