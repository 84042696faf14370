"""Exact duplicates: of documents whose normalised texts are equal, the first in the corpus's order stays.

Normalised: Unicode NFC, white space runs as one space, none at the ends, case folded (so that two copies of a
page that differ in line breaks or capitals are one document). GPT-2 (section 2.1) speaks of de-duplication
without saying how; this is the part of it that needs no threshold.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# All white space but a single space, which stands already; splitting into words would cost ten times the text.
_SPACES = re.compile(r"\s{2,}|[^\S ]")
FINGERPRINT_BYTES = 16  # of SHA-256: a chance meeting among a thousand million documents is below 1e-20


def normalise(text: str) -> str:
    """The form of a text in which copies are equal."""
    return _SPACES.sub(" ", unicodedata.normalize("NFC", text).casefold()).strip()


def text_fingerprint(text: str) -> bytes:
    """FINGERPRINT_BYTES bytes, equal for texts that are equal when normalised."""
    return hashlib.sha256(normalise(text).encode("utf-8", "surrogatepass")).digest()[:FINGERPRINT_BYTES]


def find_copies(fingerprints: Sequence[Path]) -> npt.NDArray[np.bool_]:
    """Which documents, numbered through all files of fingerprints in order, an earlier one is equal to."""
    import numpy as np

    from headwater.storage.arrays import in_range, ranges, row_counts

    lengths = row_counts(list(fingerprints))
    starts = np.cumsum([0, *lengths]).tolist()
    copies = np.zeros(starts[-1], bool)
    for low, high in ranges(len(copies)):
        values: list[npt.NDArray[np.uint64]] = []
        places: list[npt.NDArray[np.uint32]] = []
        for path, start in zip(fingerprints, starts[:-1], strict=True):
            first, rows = in_range(path, 0, start, low, high)
            second = np.load(path, mmap_mode="r", allow_pickle=False)[:, 1][rows - np.uint32(start)]
            values.append(np.stack([first, second.astype(np.uint64)], axis=1))
            places.append(rows)
        found, numbers = np.concatenate(values), np.concatenate(places)
        order = np.lexsort((found[:, 1], found[:, 0]))  # stable: the first of equals comes first
        same = (found[order[1:]] == found[order[:-1]]).all(axis=1)
        copies[numbers[order[1:][same]]] = True
    return copies
