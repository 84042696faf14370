"""Yardsticks for a language model's bits per byte: xz and an n-gram model.

`xz -9` on the held-out text alone; `xz -9` after the training text, which is the size of both texts together less
that of the training text (its dictionary of 64 MiB is larger than the XZ_BYTES used here); and a byte n-gram model
counted on up to NGRAM_BYTES of the training text. All encode exactly the bytes that the model is scored on. The
end of a document is the byte 0xFF, which does not occur in UTF-8.

The n-gram model has interpolated Kneser–Ney smoothing with the three discounts of Chen and Goodman (1998, section
3): a discount is subtracted from the count of each n-gram, and the next shorter context distributes the discounted
mass by the number of different bytes before each n-gram. The shortest level is interpolated with 1/256 for every
byte, so each distribution is positive and sums to one. An n-gram of up to eight bytes fits a uint64, its first
byte highest. Sorting the packed windows of the text once orders the n-grams of every length, so that equal ones
are neighbours and can be counted. Counts of one length are looked up before the next are made, so that only one
length is in memory.
"""

from __future__ import annotations

import lzma
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headwater.errors import DataError
from headwater.storage import SILENT, Progress

Keys = NDArray[np.uint64]
Floats = NDArray[np.float64]

END_OF_TEXT = b"\xff"
LONGEST = 7  # context bytes; with the byte predicted, eight, which fill a uint64
BLOCK = 128 * 1024**2  # bytes of held-out text at a time
_SEARCHED = 1 << 20  # windows that are searched together
_BYTE = np.uint64(8)
# The most training text for each. Counting takes about 12 bytes of memory per byte; xz takes about a second per
# megabyte, twice.
NGRAM_BYTES = 256 * 1024**2
XZ_BYTES = 16 * 1024**2


@dataclass(frozen=True)
class Yardstick:
    """The held-out bits per byte of one yardstick, and the bytes of training text that it used."""

    name: str
    bits_per_byte: float
    training_bytes: int


def yardsticks(
    counted: bytes, packed: bytes, held_out: bytes, divisor: int, progress: Progress = SILENT
) -> list[Yardstick]:
    """Return held-out bits per byte of xz alone, of xz after the training text, and of a byte n-gram model.

    counted, packed: training text for the n-gram model and for xz. divisor: the bytes of the held-out text, as for
    the model; a tokenizer may lose some of them. Raises DataError if the held-out text is empty.
    """
    if not held_out:
        raise DataError("the held-out text is empty", expected="at least one byte")
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


def _xz_bits(texts: Sequence[bytes]) -> int:
    """Return the bits of the texts compressed as one, which is not kept in memory."""
    compressor = lzma.LZMACompressor(format=lzma.FORMAT_XZ, preset=9)
    size = 0
    for text in texts:
        size += len(compressor.compress(text))
    return 8 * (size + len(compressor.flush()))


def byte_probabilities(text: bytes, windows: Keys, context: int = LONGEST) -> Floats:
    """Return P(last byte | up to `context` bytes before it), counted on `text`, of each window of `windows_of`.

    (n,) uint64 -> (n,) float64. The peak memory is about 12 bytes per byte of text and 24 per window. Raises
    DataError if the text is too short for a window.
    """
    if len(text) <= context:
        raise DataError(
            f"the training text has {len(text)} bytes", expected=f"more than {context} for an n-gram model"
        )
    # The probability is `known` + `left` times that of the next shorter context.
    known, left = np.zeros(len(windows)), np.ones(len(windows))
    followers = windows_of(text, context)[context:]  # only full windows
    followers.sort()
    grams, counts = _count(followers)
    for length in range(context + 1, 0, -1):
        if length <= context:
            # Each n-gram of `length` bytes, once for every different byte before it.
            followers = _last(grams, length)
            followers.sort()
            grams = _count(grams >> _BYTE)[0]
            seen, counts = _count(followers)
        else:
            seen = grams
        del followers
        table = _Table(seen, counts)
        for start in range(0, len(windows), _SEARCHED):
            part = slice(start, start + _SEARCHED)
            keys = _last(windows[part], length)
            order = np.argsort(keys)  # sorted searches use the CPU cache
            own, shared = table.look_up(keys[order])
            known[part][order] += left[part][order] * own
            left[part][order] *= shared
        del table
    return known + left / 256


def bits_of(text: bytes, held_out: bytes, context: int = LONGEST) -> float:
    """Return −log2 P(held_out), counted on `text`; a long text is counted again for each `BLOCK` bytes.

    The peak memory is that of `byte_probabilities` for `BLOCK` windows, whatever the length of `held_out`.
    """
    bits = 0.0
    for start in range(0, len(held_out), BLOCK):
        before = min(context, start)
        windows = windows_of(held_out[start - before : start + BLOCK], context)[before:]
        bits -= float(np.log2(byte_probabilities(text, windows, context)).sum())
    return bits


def windows_of(text: bytes, context: int) -> Keys:
    """Return each byte of `text` with the `context` bytes before it, packed, the earliest highest: (n,) uint64.

    Bytes before the beginning are zero.
    """
    symbols = np.frombuffer(text, dtype=np.uint8)
    windows = np.zeros(len(symbols), dtype=np.uint64)
    for distance in range(min(context, len(symbols) - 1), -1, -1):
        windows <<= _BYTE
        windows[distance:] |= symbols[: len(symbols) - distance]
    return windows


def _last(keys: Keys, length: int) -> Keys:
    """Return the last `length` bytes of each key."""
    return keys & np.uint64((1 << (8 * length)) - 1)


def _count(ordered: Keys) -> tuple[Keys, NDArray[np.int32]]:
    """Return the distinct values of a sorted array and their counts."""
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    return ordered[starts], np.diff(starts, append=len(ordered)).astype(np.int32)


class _Table:
    """Counts of sorted n-grams of one length, by context."""

    def __init__(self, grams: Keys, counts: NDArray[np.int32]) -> None:
        of_context = grams >> _BYTE
        starts = np.flatnonzero(np.concatenate(([True], of_context[1:] != of_context[:-1])))
        self.grams, self.counts, self.contexts = grams, counts, of_context[starts]
        self.discounts = _discounts(counts)
        self.totals = np.add.reduceat(counts, starts, dtype=np.int64)
        self.discounted = np.add.reduceat(self.discounts[np.minimum(counts, 3)], starts)

    def look_up(self, keys: Keys) -> tuple[Floats, Floats]:
        """Return the two terms of equation 8 of Chen and Goodman (1998) for sorted keys.

        These are the discounted share of the n-gram, and the factor of the next shorter context's probability: 0
        and 1 if the context is unseen.
        """
        indices, counted = _find(self.grams, keys)
        count = np.where(counted, self.counts[indices], 0)
        indices, known = _find(self.contexts, keys >> _BYTE)
        own = (count - self.discounts[np.minimum(count, 3)]) / self.totals[indices]
        return np.where(known, own, 0.0), np.where(known, self.discounted[indices] / self.totals[indices], 1.0)


def _discounts(counts: NDArray[np.int32]) -> Floats:
    """Return 0 and Chen and Goodman's D1, D2, D3+, from the numbers of n-grams that occur once to four times."""
    seen = np.bincount(np.minimum(counts, 5), minlength=6)[1:5].astype(float)
    if not seen.all():  # the estimate is not defined for very small or regular texts
        return np.array([0.0, 0.5, 0.5, 0.5])
    rate = seen[0] / (seen[0] + 2 * seen[1])
    estimates = [times - (times + 1) * rate * seen[times] / seen[times - 1] for times in (1, 2, 3)]
    # Above zero, so that unseen bytes get some probability, and below the whole count.
    return np.array([0.0, *(float(np.clip(e, 0.05, times - 0.05)) for times, e in enumerate(estimates, 1))])


def _find(table: Keys, keys: Keys) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return the position of each key in a sorted table, and whether the table has it."""
    index = np.minimum(np.searchsorted(table, keys), len(table) - 1)
    return index, table[index] == keys
