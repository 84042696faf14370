"""CRC-32C (Castagnoli, RFC 3720), the checksum of TensorFlow's files, fast enough for gigabytes in NumPy.

A checksum register is linear over GF(2) in the data: the data is divided into lanes of equal length, which are
computed in parallel, and neighbours are joined by shifting the left register over the length of the right lane.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]

_POLYNOMIAL = 0x82F63B78  # reflected
_LANE_BYTES = 512
_LANES = 8192  # at a time: their registers fit in the cache


def crc32c(data: bytes | memoryview) -> int:
    """Return the CRC-32C of `data`."""
    register = 0xFFFFFFFF
    view = memoryview(data).cast("B")
    start = 0
    while len(view) - start >= _LANE_BYTES:
        # A power of two of lanes, so that they join in pairs.
        lanes = min(_LANES, 1 << ((len(view) - start) // _LANE_BYTES).bit_length() - 1)
        end = start + lanes * _LANE_BYTES
        register = _shift(register, lanes * _LANE_BYTES) ^ _run_lanes(view[start:end], lanes)
        start = end
    table = _byte_table()
    for byte in view[start:]:
        register = (register >> 8) ^ table[(register ^ byte) & 0xFF]
    return register ^ 0xFFFFFFFF


def unmask(masked: int) -> int:
    """Undo LevelDB's masking of a checksum, a rotation by 15 bits and an added constant."""
    rotated = (masked - 0xA282EAD8) & 0xFFFFFFFF
    return (rotated >> 17 | rotated << 15) & 0xFFFFFFFF


def _run_lanes(view: memoryview, lanes: int) -> int:
    """Return the register after the lanes of `view`, with an initial value of 0."""
    halves = np.ascontiguousarray(np.frombuffer(view, "<u2").reshape(lanes, -1).T)
    table = _half_word_table()
    registers = np.zeros(lanes, np.uint32)
    for column in halves:
        registers = table[(registers ^ column) & 0xFFFF] ^ (registers >> np.uint32(16))
    length = _LANE_BYTES
    while len(registers) > 1:
        registers = _apply(_shift_tables(length), registers[::2]) ^ registers[1::2]
        length *= 2
    return int(registers[0])


@cache
def _byte_table() -> list[int]:
    """Return each byte's register after eight steps."""
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


@cache
def _half_word_table() -> Words:
    """Return each 16-bit word's register after 16 steps."""
    table, registers = np.array(_byte_table(), np.uint32), np.arange(1 << 16, dtype=np.uint32)
    for _ in range(2):
        registers = table[registers & 0xFF] ^ (registers >> np.uint32(8))
    return registers


@cache
def _shift_tables(length: int) -> Words:
    """Return (4, 256): each byte of a register after `length` zero bytes; their XOR is the whole register."""
    if length == 1:
        table = np.array(_byte_table(), np.uint32)
        registers = np.arange(256, dtype=np.uint32) << np.arange(0, 32, 8, dtype=np.uint32)[:, None]
        return table[registers & 0xFF] ^ (registers >> np.uint32(8))
    half = _shift_tables(length // 2)
    doubled = _apply(half, half)
    return _apply(_shift_tables(1), doubled) if length % 2 else doubled


def _apply(tables: Words, registers: Words) -> Words:
    result: Words = tables[0][registers & 0xFF]
    for position in (1, 2, 3):
        result = result ^ tables[position][(registers >> np.uint32(8 * position)) & 0xFF]
    return result


def _shift(register: int, length: int) -> int:
    return int(_apply(_shift_tables(length), np.array([register], np.uint32))[0])
