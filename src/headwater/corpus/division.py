"""Split a corpus into training and held-out text.

A fraction of the text is held out: whole documents, chosen by the hash of their ids, so their order does not
matter. A document larger than a twentieth of the held-out part (one of sixty novels, or the only file) is cut, and
its tail is held out: as a whole it would make the size of that part a matter of chance. With few documents of
similar size every document is cut, with thousands none is. If the hashes of all ids lead to one part, as in a
corpus that is itself such a part, they are hashed again with a word.

GPT-2's paper does not say how WebText was split (section 2.1 only mentions a test part).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from headwater.corpus.folder import CorpusSize, Document, document_ids, measure, rank, read_documents
from headwater.errors import UsageError

Part = Literal["train", "validation"]
# A document above this share of the held-out bytes is cut instead of being held out or kept whole.
LARGEST_SHARE = 1 / 20
_SALT = ("again",)  # hashed with the ids if they alone would lead to one part
# How many characters before the exact place a cut may be at the end of a paragraph, a line, a word.
_BORDERS = (("\n\n", 2000), ("\n", 400), (" ", 80))


def split(corpus: Path, fraction: float) -> Iterator[tuple[Part, Document]]:
    """Stream the documents of `corpus` in order, each with its part.

    A cut document comes twice with the same id: its head ("train") and its tail ("validation"). Raises UsageError
    unless 0 < fraction <= 0.5.
    """
    check_fraction(fraction)
    size = measure(corpus)
    is_cut = size.largest > _largest(size, fraction)
    sides = {_is_held_out(identity, fraction) for identity in (() if is_cut else document_ids(corpus))}
    salt = _SALT if len(sides) == 1 else ()
    for document in read_documents(corpus):
        yield from split_document(document, fraction, size, salt)


def check_fraction(fraction: float) -> None:
    """Raise UsageError unless 0 < fraction <= 0.5."""
    if not 0 < fraction <= 0.5:
        raise UsageError(f"the held-out fraction is {fraction:g}", expected="a number above 0, at most 0.5")


def split_document(
    document: Document, fraction: float, size: CorpusSize, salt: Sequence[str] = ()
) -> list[tuple[Part, Document]]:
    """Return the part or parts of one document of a corpus of this size; `salt` is hashed with its id."""
    if len(document.text.encode("utf-8")) > _largest(size, fraction):
        cut = _place_of_cut(document.text, fraction)
        halves: list[tuple[Part, str]] = [
            ("train", document.text[:cut]),
            ("validation", document.text[cut:]),
        ]
        return [(part, replace(document, text=text)) for part, text in halves if text]
    return [("validation" if _is_held_out(document.id, fraction, salt) else "train", document)]


def _largest(size: CorpusSize, fraction: float) -> float:
    """Return the bytes of the largest document that is not cut."""
    return LARGEST_SHARE * fraction * size.bytes


def _is_held_out(identity: str, fraction: float, salt: Sequence[str] = ()) -> bool:
    return rank(identity, *salt) / 2**64 < fraction


def _place_of_cut(text: str, fraction: float) -> int:
    """Return the index of the first held-out character: after a border near the exact place, if there is one."""
    exact = round(len(text) * (1 - fraction))
    reach = round(len(text) * fraction / 4)
    for border, limit in _BORDERS:
        border_start = text.rfind(border, max(0, exact - min(limit, reach)), exact)
        if border_start >= 0:
            return border_start + len(border)
    return exact
