"""Exact duplicates: of documents whose normalised texts are equal, the first in the corpus's order stays.

Normalised: Unicode NFC, white space runs as one space, none at the ends, case folded (so that two copies of a
page that differ in line breaks or capitals are one document). GPT-2 (section 2.1) speaks of de-duplication
without saying how; this is the part of it that needs no threshold.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator

from headwater.corpus.folder import Document

# All white space but a single space, which stands already; splitting into words would cost ten times the text.
_SPACES = re.compile(r"\s{2,}|[^\S ]")
FINGERPRINT_BYTES = 16  # of SHA-256: a chance meeting among a thousand million documents is below 1e-20


def normalise(text: str) -> str:
    """The form of a text in which copies are equal."""
    return _SPACES.sub(" ", unicodedata.normalize("NFC", text).casefold()).strip()


def text_fingerprint(text: str) -> bytes:
    """FINGERPRINT_BYTES bytes, equal for texts that are equal when normalised."""
    return hashlib.sha256(normalise(text).encode("utf-8", "surrogatepass")).digest()[:FINGERPRINT_BYTES]


class ExactDuplicates:
    """A step: passes the first document of each normalised text on; `removed` counts the others.

    Memory grows by about 100 bytes a document kept.
    """

    def __init__(self) -> None:
        self.removed = 0
        self._seen: set[bytes] = set()

    def __call__(self, documents: Iterable[Document]) -> Iterator[Document]:
        """Stream `documents` without repetitions."""
        for document in documents:
            fingerprint = text_fingerprint(document.text)
            if fingerprint in self._seen:
                self.removed += 1
                continue
            self._seen.add(fingerprint)
            yield document
