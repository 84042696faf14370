"""Check that every id of a token file belongs to its vocabulary."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from headwater.errors import DataError

_BLOCK = 1 << 24  # ids at a time


def check_ids(ids: np.ndarray, vocabulary: int, path: Path, first: int = 0) -> None:
    """Raise DataError naming file, position and id of the first id that is not below `vocabulary`.

    ids: (tokens,) unsigned integers, as mapped from `path`, `first` the position of the first; each block is read
    once. Ids whose type cannot hold such an id are not read.
    """
    if np.iinfo(ids.dtype).max < vocabulary:
        return
    for start in range(0, len(ids), _BLOCK):
        block = ids[start : start + _BLOCK]
        if int(block.max()) >= vocabulary:
            place = int(np.argmax(block >= vocabulary))
            raise DataError(
                f"{path} has id {int(block[place]):,} at position {first + start + place:,}",
                expected=f"ids below its vocabulary size, {vocabulary:,}",
                repair="Pack the corpus again, or give the tokenizer that made these ids",
            )
