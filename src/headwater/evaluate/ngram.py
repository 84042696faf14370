"""A byte n-gram model: a yardstick that predicts a byte only from the few bytes before it.

Interpolated Kneser–Ney smoothing with the three discounts of Chen and Goodman (1998, section 3): a discount is
subtracted from the count of each n-gram, and the next shorter context distributes the discounted mass by the
number of different bytes before each n-gram. The shortest level is interpolated with 1/256 for every byte, so each
distribution is positive and sums to one.

An n-gram of up to eight bytes fits a uint64, with its first byte highest. Sorting the packed windows of the text
once puts the n-grams of every length in order, so that equal ones are neighbours and can be counted.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headwater.errors import DataError

Keys = NDArray[np.uint64]

LONGEST = 7  # context bytes; with the byte predicted, eight, which fill a uint64
_BYTE = np.uint64(8)


class _Level(NamedTuple):
    """The n-grams of one length: sorted keys with their counts, and sorted contexts with their totals."""

    grams: Keys
    counts: NDArray[np.int32]
    contexts: Keys
    totals: NDArray[np.int64]  # counts of all n-grams with that context
    shared: NDArray[np.float64]  # the part of the total that discounts take off
    discounts: NDArray[np.float64]  # taken off a count of 0, 1, 2, and 3 or more


class ByteNgram:
    """P(byte | up to `context` bytes before it), counted on `text`; raises DataError if it is too short."""

    def __init__(self, text: bytes, context: int = LONGEST) -> None:
        if not 0 <= context <= LONGEST:
            raise ValueError(f"context is {context}, not 0 to {LONGEST}")
        if len(text) <= context:
            raise DataError(
                f"the training text has {len(text)} bytes", expected=f"more than {context} for an n-gram model"
            )
        self.context = context
        windows = windows_of(text, context)[context:]  # only full windows
        windows.sort()
        grams, counts = _count(windows)
        del windows
        levels = [_level(grams, counts)]
        for length in range(context, 0, -1):
            # Each n-gram of `length` bytes, once for every different byte before it.
            followers = _last(grams, length)
            followers.sort()
            levels.append(_level(*_count(followers)))
            grams = _count(grams >> _BYTE)[0]
        self._levels = levels[::-1]  # from single bytes to the longest

    def probabilities(self, windows: Keys) -> NDArray[np.float64]:
        """Return P(last byte | the bytes before it) for each window of `windows_of`: (n,) -> (n,) float64."""
        probability = np.full(len(windows), 1 / 256)
        for length, level in enumerate(self._levels, start=1):
            keys = _last(windows, length)
            order = np.argsort(keys)  # sorted searches use the CPU cache
            probability[order] = _interpolate(level, keys[order], probability[order])
        return probability

    def bits(self, text: bytes) -> float:
        """Return the total −log2 probability of all bytes of `text`; zeros are the context before its start."""
        return float(-np.log2(self.probabilities(windows_of(text, self.context))).sum())


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


def _level(grams: Keys, counts: NDArray[np.int32]) -> _Level:
    """Group n-grams by context and compute discounts."""
    of_context = grams >> _BYTE
    starts = np.flatnonzero(np.concatenate(([True], of_context[1:] != of_context[:-1])))
    discounts = _discounts(counts)
    return _Level(
        grams=grams,
        counts=counts,
        contexts=of_context[starts],
        totals=np.add.reduceat(counts, starts, dtype=np.int64),
        shared=np.add.reduceat(discounts[np.minimum(counts, 3)], starts),
        discounts=discounts,
    )


def _discounts(counts: NDArray[np.int32]) -> NDArray[np.float64]:
    """Return 0 and Chen and Goodman's D1, D2, D3+, from the numbers of n-grams that occur once to four times."""
    seen = np.bincount(np.minimum(counts, 5), minlength=6)[1:5].astype(float)
    if not seen.all():  # the estimate is not defined for very small or regular texts
        return np.array([0.0, 0.5, 0.5, 0.5])
    rate = seen[0] / (seen[0] + 2 * seen[1])
    estimates = [times - (times + 1) * rate * seen[times] / seen[times - 1] for times in (1, 2, 3)]
    # Above zero, so that unseen bytes get some probability, and below the whole count.
    return np.array([0.0, *(float(np.clip(e, 0.05, times - 0.05)) for times, e in enumerate(estimates, 1))])


def _interpolate(level: _Level, keys: Keys, shorter: NDArray[np.float64]) -> NDArray[np.float64]:
    """Apply equation 8 of Chen and Goodman (1998) to sorted keys; an unseen context returns `shorter`."""
    place, found = _find(level.grams, keys)
    counts = np.where(found, level.counts[place], 0)
    place, known = _find(level.contexts, keys >> _BYTE)
    kept = counts - level.discounts[np.minimum(counts, 3)]
    mixed = (kept + level.shared[place] * shorter) / level.totals[place]
    return np.where(known, mixed, shorter)


def _find(table: Keys, keys: Keys) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return the position of each key in a sorted table, and whether the table has it."""
    place = np.minimum(np.searchsorted(table, keys), len(table) - 1)
    return place, table[place] == keys
