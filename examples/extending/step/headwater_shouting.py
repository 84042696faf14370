"""Remove texts in capitals."""

from __future__ import annotations

from headwater.corpus import Document, Step


class Shouting(Step):
    """Removes documents with a larger share of upper-case letters than `most`; rule: `capitals`."""

    name = "shouting"

    def __init__(self, most: float = 0.5) -> None:  # our own value: headlines are below it
        self.most = most

    def apply(self, document: Document) -> Document | str:
        """See Step."""
        letters = [character for character in document.text if character.isalpha()]
        return "capitals" if sum(map(str.isupper, letters)) > self.most * len(letters) else document
