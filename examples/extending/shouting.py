"""Texts in capitals go: more than half of their letters are upper case."""

from __future__ import annotations

from headwater.corpus.folder import Document
from headwater.corpus.steps import Step

# Ours: headlines and tables stay below it, whole texts in capitals are far above.
MOST = 0.5


class Shouting(Step):
    """Removes documents in capitals; rule: `capitals`."""

    name = "shouting"

    def apply(self, document: Document) -> Document | str:
        """See Step."""
        letters = [character for character in document.text if character.isalpha()]
        capitals = sum(character.isupper() for character in letters)
        return "capitals" if letters and capitals / len(letters) > MOST else document
