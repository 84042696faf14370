"""Yardsticks for a language model's bits per byte: xz and an n-gram model.

`xz -9` on the held-out text alone; `xz -9` after the training text, which is the size of both texts together less
that of the training text (its dictionary of 64 MiB is larger than the XZ_BYTES used here); and a byte n-gram model
counted on up to NGRAM_BYTES of the training text. All encode exactly the bytes that the model is scored on. The
end of a document is the byte 0xFF, which does not occur in UTF-8.
"""

from __future__ import annotations

import hashlib
import lzma
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from headwater.errors import DataError, FolderError, StorageError
from headwater.evaluation.ngram import LONGEST, bits_of
from headwater.reading import read_json
from headwater.storage import SILENT, Progress, cache_folder, write_json

END_OF_TEXT = b"\xff"
# The most training text for each. Counting takes about 12 bytes of memory per byte; xz takes about a second per
# megabyte, twice.
NGRAM_BYTES = 256 * 1024**2
XZ_BYTES = 16 * 1024**2
_PIECE_BYTES = 64 * 1024
_VERSION = 1  # of the yardsticks that are kept


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
    the length of `held_out`; it is the same for the model. limit: the most bytes of training text. The result is
    kept in the cache folder by a hash of the texts. Raises DataError if the held-out text is empty.
    """
    if not held_out:
        raise DataError("the held-out text is empty", expected="at least one byte")
    divisor = bytes_counted or len(held_out)
    counted, packed = (
        spread(training, size if limit is None else min(size, limit)) for size in (NGRAM_BYTES, XZ_BYTES)
    )
    kept = _cache_path(counted, packed, held_out, divisor)
    with suppress(FolderError, DataError, TypeError):
        return [Yardstick(**entry) for entry in read_json(kept)]
    measured = _measure(counted, packed, held_out, divisor, progress)
    with suppress(OSError, StorageError):  # a full disk or a folder that cannot be written
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_json(kept, [asdict(yardstick) for yardstick in measured])
    return measured


def _cache_path(*parts: bytes | int) -> Path:
    """Return the file of the yardsticks of texts and a divisor."""
    digests = [hashlib.sha256(p).hexdigest() if isinstance(p, bytes) else str(p) for p in parts]
    name = hashlib.sha256("\n".join([str(_VERSION), *digests]).encode()).hexdigest()[:32]
    return cache_folder() / "yardsticks" / f"{name}.json"


def _measure(counted: bytes, packed: bytes, held_out: bytes, divisor: int, progress: Progress) -> list[Yardstick]:
    progress.start("yardsticks", 3)
    context = max(0, min(LONGEST, len(counted) - 1))
    ngram = bits_of(counted, held_out, context)
    progress.advance(1)
    with ThreadPoolExecutor(max_workers=2) as threads:  # lzma releases the GIL
        before, after = threads.map(_xz_bits, ([packed], [packed, held_out]))
    measured = [
        Yardstick("xz -9", _xz_bits([held_out]) / divisor, 0),
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


def _xz_bits(texts: Sequence[bytes]) -> int:
    """Return the bits of the texts compressed as one, which is not kept in memory."""
    compressor = lzma.LZMACompressor(format=lzma.FORMAT_XZ, preset=9)
    size = 0
    for text in texts:
        for start in range(0, len(text), _PIECE_BYTES):
            size += len(compressor.compress(text[start : start + _PIECE_BYTES]))
    return 8 * (size + len(compressor.flush()))
