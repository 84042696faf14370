"""Exact duplicates: of documents with equal normalised texts, the first in the corpus is kept.

Normalised: Unicode NFC, case folded, white space as single spaces and stripped, so that copies of a page which
differ in line breaks or capitals are equal. GPT-2 (section 2.1) mentions de-duplication without a method; this
part needs no threshold.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headwater.corpus.arrays import partitions, row_counts

# All white space except single spaces; splitting into words would need ten times the text's memory.
_SPACES = re.compile(r"\s{2,}|[^\S ]")
FINGERPRINT_BYTES = 16  # of SHA-256: among 1e9 documents the probability of a collision is below 1e-20


def normalise(text: str) -> str:
    """Return the form of a text in which copies are equal."""
    return _SPACES.sub(" ", unicodedata.normalize("NFC", text).casefold()).strip()


def text_fingerprint(text: str) -> bytes:
    """Return FINGERPRINT_BYTES bytes that are equal for texts whose normalised forms are equal."""
    return hashlib.sha256(normalise(text).encode("utf-8", "surrogatepass")).digest()[:FINGERPRINT_BYTES]


def find_copies(fingerprints: Sequence[Path]) -> npt.NDArray[np.bool_]:
    """Return which documents equal an earlier one: (documents,) bool, numbered through all files."""
    copies = np.zeros(sum(row_counts(fingerprints)), bool)
    for group, numbers in partitions(fingerprints, 0, 1):
        order = np.lexsort((group[:, 1], group[:, 0]))  # stable: the first of equals comes first
        same = (group[order[1:]] == group[order[:-1]]).all(axis=1)
        copies[numbers[order[1:][same]]] = True
    return copies
