"""Remove short documents."""

from __future__ import annotations

from headwater.corpus.filters import Step
from headwater.corpus.folder import Document


class Long(Step):
    """Removes documents with fewer than `minimum` characters; rule: `short`."""

    name = "length"

    def __init__(self, minimum: int) -> None:
        self.minimum = minimum

    def apply(self, document: Document) -> Document | str:
        """See Step."""
        return "short" if len(document.text) < self.minimum else document
