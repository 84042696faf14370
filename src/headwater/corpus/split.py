"""Which part of a corpus is held out.

Held out is a fraction of the text, whole documents by the hash of their ids, so that neither their order
nor their neighbours matter. A document that alone would be more than a twentieth of the held-out part (a
novel among sixty, or the only file) would make that part a matter of luck; such a document is cut and its
own tail is held out. With few documents of like size every document is cut, with thousands none is.

GPT-2's paper does not say how WebText was split (GPT-2, section 2.1: only that a test part exists).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

from headwater.corpus.folder import CorpusSize, Document, measure, read_documents
from headwater.errors import UsageError

Part = Literal["train", "validation"]
# A document above this share of the held-out bytes is cut instead of being held out or kept whole.
LARGEST_SHARE = 1 / 20
# How far before the exact place, in characters, a cut looks for the end of a paragraph, a line, a word.
_BORDERS = (("\n\n", 2000), ("\n", 400), (" ", 80))


def split(corpus: Path, fraction: float) -> Iterator[tuple[Part, Document]]:
    """Stream the documents of `corpus` in order, each with the part it belongs to.

    A cut document comes twice, head ("train") and tail ("validation"), with the same id; the two texts joined
    are the document. Raises UsageError when `fraction` is not above 0 and at most 0.5.
    """
    check_fraction(fraction)
    size = measure(corpus)
    for document in read_documents(corpus):
        yield from split_document(document, fraction, size)


def check_fraction(fraction: float) -> None:
    """Raises UsageError unless `fraction` can be a held-out part."""
    if not 0 < fraction <= 0.5:
        raise UsageError(f"the held-out fraction is {fraction:g}", expected="a number above 0, at most 0.5")


def split_document(document: Document, fraction: float, size: CorpusSize) -> list[tuple[Part, Document]]:
    """The part or parts of one document of a corpus of this size."""
    if len(document.text.encode("utf-8")) > LARGEST_SHARE * fraction * size.bytes:
        cut = _place_of_cut(document.text, fraction)
        halves: list[tuple[Part, str]] = [
            ("train", document.text[:cut]),
            ("validation", document.text[cut:]),
        ]
        return [(part, replace(document, text=text)) for part, text in halves if text]
    return [("validation" if _position(document.id) < fraction else "train", document)]


def _position(identity: str) -> float:
    """Where in [0, 1) an id falls, evenly over ids."""
    return int.from_bytes(hashlib.sha256(identity.encode()).digest()[:8], "big") / 2**64


def _place_of_cut(text: str, fraction: float) -> int:
    """Index of the first character held out: at a border near the exact place where there is one."""
    exact = round(len(text) * (1 - fraction))
    reach = round(len(text) * fraction / 4)
    for border, limit in _BORDERS:
        found = text.rfind(border, max(0, exact - min(limit, reach)), exact)
        if found >= 0:
            return found + len(border)
    return exact
