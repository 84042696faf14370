"""Remove texts in capitals: more than half of their letters are upper case."""

from __future__ import annotations

from headwater.corpus import Document, Step

# Our own value: texts with headlines and tables are below it, whole texts in capitals far above.
MOST = 0.5


class Shouting(Step):
    """Remove documents in capitals, under the rule `capitals`."""

    name = "shouting"

    def apply(self, document: Document) -> Document | str:
        """See Step."""
        letters = [character for character in document.text if character.isalpha()]
        capitals = sum(character.isupper() for character in letters)
        return "capitals" if letters and capitals / len(letters) > MOST else document
