"""Steps that change or remove single documents, a module each, and their interface.

`recipes` lists the steps of each recipe. A step of one's own is one more element of `build_corpus(steps=…)`, or an
entry point of the group `headwater.corpus_steps`, which the key `steps` names.

A step returns a document, changed or not, or the rule that removes it. Steps keep no state between documents, so
that the result does not depend on the number of workers; duplicates, which need all documents, are not steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from headwater.corpus.folder import Document


class Step(ABC):
    """One decision about one document at a time; its public attributes are recorded in the corpus as settings."""

    name: str

    @abstractmethod
    def apply(self, document: Document) -> Document | str:
        """Return the document, changed or not, or the rule that removes it."""

    def described(self) -> dict[str, Any]:
        """Return the name of the step and its settings, for the corpus's provenance."""
        return {"name": self.name} | {key: value for key, value in vars(self).items() if not key.startswith("_")}
