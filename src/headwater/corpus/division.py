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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from headwater.corpus.folder import Document, rank, read_shard, shard_paths
from headwater.errors import UsageError
from headwater.reading import ParquetTable

Part = Literal["train", "validation"]
# A document above this share of the held-out bytes is cut instead of being held out or kept whole.
LARGEST_SHARE = 1 / 20
_SALT = ("again",)  # hashed with the ids if they alone would lead to one part
# How many characters before the exact place a cut may be at the end of a paragraph, a line, a word.
_BORDERS = (("\n\n", 2000), ("\n", 400), (" ", 80))


@dataclass(frozen=True, slots=True)
class Division:
    """How a corpus is split: the fraction that is held out, and what is known of its documents.

    bytes: of all texts. largest: of the largest document. sides: whether the hashes of ids hold some out and
    keep some. Raises UsageError unless 0 < fraction <= 0.5.
    """

    fraction: float
    bytes: int = 0
    largest: int = 0
    sides: tuple[bool, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 0.5:
            raise UsageError(
                f"the held-out fraction is {self.fraction:g}", expected="a number above 0, at most 0.5"
            )

    def with_file(self, path: Path) -> Division:
        """Return the division with the documents of a file added; their texts are not decoded."""
        import pyarrow.compute

        whole = self
        with ParquetTable(path) as file:
            for batch in file.batches(1024, ["id", "text"]):
                lengths = pyarrow.compute.binary_length(batch.column(1))
                total, largest = pyarrow.compute.sum(lengths).as_py(), pyarrow.compute.max(lengths).as_py()
                held = {_is_held_out(identity, self.fraction) for identity in batch.column(0).to_pylist()}
                whole = whole.joined(Division(self.fraction, total or 0, largest or 0, tuple(held)))
        return whole

    def joined(self, other: Division) -> Division:
        """Return the division of the documents of both."""
        sides = tuple(sorted({*self.sides, *other.sides}))
        return Division(self.fraction, self.bytes + other.bytes, max(self.largest, other.largest), sides)

    def parts(self, document: Document) -> list[tuple[Part, Document]]:
        """Return the part or parts of a document, when all are known."""
        limit = LARGEST_SHARE * self.fraction * self.bytes  # a larger document is cut
        if self.largest > limit and len(document.text.encode("utf-8")) > limit:
            cut = _place_of_cut(document.text, self.fraction)
            halves: list[tuple[Part, str]] = [
                ("train", document.text[:cut]),
                ("validation", document.text[cut:]),
            ]
            return [(part, replace(document, text=text)) for part, text in halves if text]
        salt = _SALT if self.largest <= limit and len(self.sides) == 1 else ()
        return [("validation" if _is_held_out(document.id, self.fraction, salt) else "train", document)]


def split(corpus: Path, fraction: float) -> Iterator[tuple[Part, Document]]:
    """Stream the documents of `corpus` in order, each with its part.

    A cut document comes twice with the same id: its head ("train") and its tail ("validation"). Raises UsageError
    unless 0 < fraction <= 0.5.
    """
    division = Division(fraction)
    paths = shard_paths(corpus)
    for path in paths:
        division = division.with_file(path)
    for path in paths:
        for document in read_shard(path):
            yield from division.parts(document)


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
