"""Read TensorFlow's checkpoint format without TensorFlow.

`NAME.index` is a sorted table of LevelDB's format: blocks of prefix-compressed keys, each with a masked CRC-32C.
The last 48 bytes point to an index of the blocks. The values are protocol buffers: a header under the empty key,
then each tensor's type, shape, shard, offset, size and checksum. The numbers are in `NAME.data-SSSSS-of-NNNNN`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import google_crc32c
import numpy as np
import numpy.typing as npt

from headwater.errors import DataError, FolderError
from headwater.reading import read_bytes

_MAGIC = 0xDB4775248B80FB57
_FOOTER, _TRAILER = 48, 5
_FLOAT = 1  # the protocol's number of the type float32


class Entry(NamedTuple):
    """Location of one tensor."""

    type: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    checksum: int


class TensorBundle:
    """The tensors of one checkpoint: `entries` by name, and `read`."""

    def __init__(self, prefix: Path) -> None:
        """prefix: the path without ".index". Raises FolderError if the index is missing or damaged."""
        self.prefix = prefix
        self._index = prefix.with_name(prefix.name + ".index")
        table = dict(self._read_table())
        header = _fields(table.pop(b"", b""), self._index)
        self.shards = _number(header, 1)
        if not self.shards or _number(header, 2):
            raise _damaged(self._index, "it is not an index of a little-endian checkpoint")
        self.entries = {key.decode("utf-8", "replace"): self._entry(value) for key, value in table.items()}

    def read(self, name: str) -> npt.NDArray[np.float32]:
        """Return one tensor, its checksum verified; raise FolderError or DataError naming it."""
        entry = self.entries[name]
        if entry.type != _FLOAT:
            raise DataError(f"{name} in {self._index} is not a tensor of float32", expected="that of the release")
        path = self.prefix.with_name(f"{self.prefix.name}.data-{entry.shard:05d}-of-{self.shards:05d}")
        if not path.is_file():
            raise FolderError(f"{path} is missing", repair="Copy the whole release")
        whole = entry.offset + entry.size <= path.stat().st_size  # before memory is allocated
        if not whole or entry.size != 4 * math.prod(entry.shape):
            raise _damaged(path, f"{name} is truncated")
        with path.open("rb") as handle:
            handle.seek(entry.offset)
            content = handle.read(entry.size)
        if not is_intact(content, entry.checksum):
            raise _damaged(path, f"the checksum of {name} differs")
        return np.frombuffer(content, "<f4").reshape(entry.shape)

    def _entry(self, value: bytes) -> Entry:
        fields = _fields(value, self._index)
        if 7 in fields:
            raise DataError(f"{self._index} has a tensor in slices", expected="whole tensors, as in the release")
        shape = []
        for message in fields.get(2, []):
            for dimension in _fields(message, self._index).get(2, []):
                shape.append(_number(_fields(dimension, self._index), 1))
        numbers = [_number(fields, number) for number in (1, 3, 4, 5, 6)]
        return Entry(numbers[0], tuple(shape), *numbers[1:])

    def _read_table(self) -> Iterator[tuple[bytes, bytes]]:
        content = read_bytes(self._index)
        if len(content) < _FOOTER or struct.unpack("<Q", content[-8:])[0] != _MAGIC:
            raise _damaged(self._index, "its end is not that of an index")
        try:
            (_, _, *index), _ = _varints(content, len(content) - _FOOTER, 4)  # the first two are an unused block's
            read = 0
            for _, handle in _block_entries(self._block(content, *index)):
                (offset, size), _ = _varints(handle, 0, 2)
                read += size
                if read > len(content):
                    raise IndexError  # an endless loop over the same block
                yield from _block_entries(self._block(content, offset, size))
        except (IndexError, struct.error):
            raise _damaged(self._index, "its table cannot be read") from None

    def _block(self, content: bytes, offset: int, size: int) -> bytes:
        block, trailer = content[offset : offset + size], content[offset + size : offset + size + _TRAILER]
        if len(trailer) < _TRAILER:
            raise _damaged(self._index, "a block is truncated")
        if not is_intact(block + trailer[:1], struct.unpack("<I", trailer[1:])[0]):
            raise _damaged(self._index, "the checksum of a block differs")
        if trailer[0]:
            raise _damaged(self._index, "a block is compressed, which TensorFlow never does")
        return block


def is_intact(data: bytes, masked: int) -> bool:
    """Return whether data has a CRC-32C; `masked` is LevelDB's form: rotated by 15 bits, a constant added."""
    rotated = (masked - 0xA282EAD8) & 0xFFFFFFFF
    return bool(google_crc32c.value(data) == (rotated >> 17 | rotated << 15) & 0xFFFFFFFF)


def _block_entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a block; a key shares a prefix with the previous one."""
    restarts = struct.unpack("<I", block[-4:])[0]
    end = len(block) - 4 - 4 * restarts
    key, position = b"", 0
    while position < end:
        (shared, fresh, size), position = _varints(block, position, 3)
        key = key[:shared] + block[position : position + fresh]
        position += fresh
        yield key, block[position : position + size]
        position += size


def _varints(data: bytes, position: int, count: int) -> tuple[list[int], int]:
    """Return numbers of 7 bits per byte, lowest first, and the position after them."""
    numbers: list[int] = []
    value = shift = 0
    while len(numbers) < count:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(value)
            value = shift = 0
        elif shift > 63:
            raise IndexError
    return numbers, position


def _fields(message: Any, path: Path) -> dict[int, list[Any]]:
    """Return the fields of a protocol buffer: number -> values, integers or bytes."""
    if not isinstance(message, bytes):
        raise _damaged(path, "an entry is a number where it should be a message")
    fields: dict[int, list[Any]] = {}
    position = 0
    try:
        while position < len(message):
            (tag,), position = _varints(message, position, 1)
            value: Any
            if tag & 7 == 0:
                (value,), position = _varints(message, position, 1)
            else:
                size = {1: 8, 5: 4}.get(tag & 7)
                fixed = size is not None
                if size is None:
                    (size,), position = _varints(message, position, 1)
                value = message[position : position + size]
                position += size
                if fixed:
                    value = int.from_bytes(value, "little")
            fields.setdefault(tag >> 3, []).append(value)
    except IndexError:
        raise _damaged(path, "an entry cannot be read") from None
    return fields


def _number(fields: dict[int, list[Any]], number: int) -> int:
    value = fields.get(number, [0])[-1]
    return value if isinstance(value, int) else 0


def _damaged(path: Path, how: str) -> FolderError:
    return FolderError(f"{path} is cut short or damaged: {how}", repair="Copy or download it again")
