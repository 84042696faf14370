"""A Bloom filter over arrays of 64-bit hashes (Bloom 1970).

A filter of m bits that sets k bits an item has a false positive with probability (share of bits set)^k. The
minimum memory for a bound p needs k = log2(1/p) bits an item, 27 for 1e-8. Slightly more memory and fewer bits
halve the memory accesses, which take most of the time. So m is MEMORY times the minimum, and k is the smallest
number that keeps the bound.

`native/bloom.c` sets and reads the same bits several times as fast: each bit of a gigabyte is a cache miss.
"""

from __future__ import annotations

import ctypes
import math
from functools import cache

import numpy as np
from numpy.typing import NDArray

from headwater import native
from headwater.corpus.arrays import scramble

Hashes = NDArray[np.uint64]

MEMORY = 1.1
_BLOCK = 512  # bits; a bit is addressed by block and offset, so that filters may exceed 2^32 bits
# With fewer blocks the bits of two items coincide too often: double hashing has at most places² patterns.
_FEWEST_BLOCKS = 8192
_TOGETHER = 1 << 15  # items whose cache lines fit into a core's cache
_STEP = np.uint64(0xD6E8FEB86659FD93)
_POINTER, _COUNT = ctypes.c_void_p, ctypes.c_int64


@cache
def library() -> ctypes.CDLL | None:
    """Return the compiled functions of `native/bloom.c`, or None if they were not built."""
    loaded = native.extension("portable")
    if loaded is not None:
        loaded.headwater_bloom_add.restype = loaded.headwater_bloom_contains.restype = _COUNT
        loaded.headwater_bloom_add.argtypes = [_POINTER] * 2 + [_COUNT] * 3
        loaded.headwater_bloom_contains.argtypes = [_POINTER] * 2 + [_COUNT] * 3 + [_POINTER]
    return loaded


class BloomFilter:
    """Filter for `capacity` items with a false-positive probability of at most `bound`."""

    def __init__(self, capacity: int, bound: float) -> None:
        least = math.log(1 / bound) / math.log(2) ** 2  # bits an item
        self.bound = bound
        self._blocks = max(_FEWEST_BLOCKS, math.ceil(max(1, capacity) * least * MEMORY / _BLOCK))
        an_item = self._blocks * _BLOCK / max(1, capacity)
        self.bits_an_item = next(k for k in range(1, 65) if (1 - math.exp(-k / an_item)) ** k <= bound)
        self._bytes = np.zeros(self._blocks * _BLOCK // 8, dtype=np.uint8)

    @property
    def memory(self) -> int:
        """Size in bytes."""
        return self._bytes.nbytes

    def add(self, hashes: Hashes) -> None:
        """Add items by their hashes, (n,) uint64, evenly distributed."""
        fast = library()
        if fast is not None:
            native.check(fast.headwater_bloom_add(*self._arguments(hashes)))
            return
        for start in range(0, len(hashes), _TOGETHER):
            for offsets, mask in self._places(hashes[start : start + _TOGETHER]):
                self._set(offsets, mask)

    def contains(self, hashes: Hashes) -> NDArray[np.bool_]:
        """Return whether each item was added, (n,) bool; True for others with probability `bound` at most."""
        contained = np.ones(len(hashes), dtype=np.bool_)
        fast = library()
        if fast is not None:
            native.check(fast.headwater_bloom_contains(*self._arguments(hashes), contained.ctypes.data))
            return contained
        for start in range(0, len(hashes), _TOGETHER):
            part = slice(start, start + _TOGETHER)
            for offsets, mask in self._places(hashes[part]):
                contained[part] &= (self._bytes[offsets] & mask) != 0
        return contained

    def false_positive_rate(self) -> float:
        """Return the probability of a false positive, computed from the bits that are set."""
        set_bits = sum(
            int(np.bitwise_count(self._bytes[start : start + (1 << 24)]).sum(dtype=np.int64))
            for start in range(0, len(self._bytes), 1 << 24)
        )
        return float((set_bits / (8 * len(self._bytes))) ** self.bits_an_item)

    def _arguments(self, hashes: Hashes) -> tuple[int, int, int, int, int]:
        """Return the arguments that both functions of `native/bloom.c` take."""
        if hashes.dtype != np.uint64 or hashes.ndim != 1 or not hashes.flags.c_contiguous:
            raise ValueError(f"hashes are {hashes.dtype} of shape {hashes.shape}, expected one row of uint64")
        return self._bytes.ctypes.data, hashes.ctypes.data, len(hashes), self._blocks, self.bits_an_item

    def _places(self, hashes: Hashes) -> list[tuple[NDArray[np.int64], NDArray[np.uint8]]]:
        """Return (bytes, masks) for each of the items' bits (double hashing: Kirsch and Mitzenmacher 2008)."""
        value = hashes.copy()
        step = scramble(hashes ^ _STEP) | np.uint64(1)
        bits = []
        for _ in range(self.bits_an_item):
            block = ((value >> np.uint64(32)) * np.uint64(self._blocks)) >> np.uint64(32)
            inside = value & np.uint64(_BLOCK - 1)
            offsets = (block * np.uint64(_BLOCK // 8) + (inside >> np.uint64(3))).astype(np.int64)
            bits.append((offsets, np.uint8(1) << (inside & np.uint64(7)).astype(np.uint8)))
            value += step
        return bits

    def _set(self, offsets: NDArray[np.int64], mask: NDArray[np.uint8]) -> None:
        # If two items share a byte, only the later assignment takes effect: repeat the others.
        while len(offsets):
            self._bytes[offsets] = self._bytes.take(offsets) | mask
            lost = (self._bytes.take(offsets) & mask) == 0
            offsets, mask = offsets[lost], mask[lost]
