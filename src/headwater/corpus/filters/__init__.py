"""Steps that change or remove single documents, a module each, and their interface.

A step returns a document, changed or not, or the rule that removes it. Steps keep no state between documents, so
that the result does not depend on the number of workers; duplicates, which need all documents, are not steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from headwater.corpus.folder import Document


class Step(ABC):
    """One decision about one document at a time."""

    name: str

    @abstractmethod
    def apply(self, document: Document) -> Document | str:
        """Return the document, changed or not, or the rule that removes it."""
