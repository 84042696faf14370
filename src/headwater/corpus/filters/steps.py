"""The interface of steps, and counts of what they remove.

A step returns a document, changed or not, or the rule that removes it. Steps keep no state between documents, so
that the result does not depend on the number of workers; duplicates, which need all documents, are not steps.
`Funnel` counts documents and bytes by step and rule, and keeps the first EXAMPLES of each rule.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from headwater.corpus.folder import Document
from headwater.corpus.tally import EXAMPLES

_EXAMPLE_CHARACTERS = 300


class Step(ABC):
    """One decision about one document at a time."""

    name: str

    @abstractmethod
    def apply(self, document: Document) -> Document | str:
        """Return the document, changed or not, or the rule that removes it."""


@dataclass
class Removal:
    """Counts of documents and their UTF-8 bytes of text, with examples for a rule that removed them."""

    documents: int = 0
    bytes: int = 0
    examples: list[dict[str, str]] = field(default_factory=list)

    @property
    def size(self) -> dict[str, int]:
        """The counts alone."""
        return {"documents": self.documents, "bytes": self.bytes}

    def count(self, document: Document, *, example: bool = False) -> None:
        """Count one document; keep its beginning as an example if there are few."""
        self.documents += 1
        self.bytes += len(document.text.encode("utf-8", "replace"))
        if example and len(self.examples) < EXAMPLES:
            start = document.text[:_EXAMPLE_CHARACTERS]
            self.examples.append({"source": document.source, "url": document.url, "text": start})

    def add(self, other: Removal) -> None:
        """Add the counts of another part of the corpus, which comes after this one."""
        self.documents += other.documents
        self.bytes += other.bytes
        self.examples = [*self.examples, *other.examples][:EXAMPLES]


@dataclass
class Funnel:
    """Counts in the order of the steps."""

    read: Removal = field(default_factory=Removal)
    kept: Removal = field(default_factory=Removal)
    removed: dict[str, dict[str, Removal]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def remove(self, step: str, rule: str, document: Document) -> None:
        """Count a document that a rule removed."""
        self.removed.setdefault(step, {}).setdefault(rule, Removal()).count(document, example=True)

    def add(self, other: Funnel) -> None:
        """Add the counts of another part of the corpus, which comes after this one."""
        self.read.add(other.read)
        self.kept.add(other.kept)
        for step, rules in other.removed.items():
            for rule, removal in rules.items():
                self.removed.setdefault(step, {}).setdefault(rule, Removal()).add(removal)
        self.notes += other.notes

    def joined(self, other: Funnel) -> Funnel:
        """Return the sum of both as a new funnel."""
        both = Funnel()
        both.add(self)
        both.add(other)
        return both

    def figures(self) -> dict[str, int]:
        """Return figures for a display: documents and bytes read and kept, and the three strictest rules."""
        return {
            "of": self.read.documents,
            "MB read": self.read.bytes // 10**6,
            "MB kept": self.kept.bytes // 10**6,
            **{f"− {rule}": count for rule, count in self.strictest()},
        }

    def strictest(self) -> list[tuple[str, int]]:
        """Return the three rules that removed most, as "step: rule", and the documents that each removed."""
        removed = [(r.documents, f"{step}: {n}") for step, rules in self.removed.items() for n, r in rules.items()]
        return [(rule, count) for count, rule in sorted(removed, reverse=True)[:3]]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values: read and kept {documents, bytes}, removed {step: {rule: {…, examples}}}, notes."""
        removed = {
            s: {r: vars(removal) for r, removal in sorted(rules.items())} for s, rules in self.removed.items()
        }
        return {"read": self.read.size, "kept": self.kept.size, "removed": removed, "notes": self.notes}

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Funnel:
        """Return the funnel that `to_dict` described."""
        removed = {
            s: {r: Removal(**removal) for r, removal in rules.items()} for s, rules in value["removed"].items()
        }
        return cls(Removal(**value["read"]), Removal(**value["kept"]), removed, list(value["notes"]))


def run_steps(documents: Iterable[Document], steps: Iterable[Step], funnel: Funnel) -> Iterator[Document]:
    """Stream the documents that no step removes."""
    steps = list(steps)
    for step in steps:
        funnel.removed.setdefault(step.name, {})  # keeps the order of the steps
    for document in documents:
        funnel.read.count(document)
        for step in steps:
            outcome = step.apply(document)
            if isinstance(outcome, str):
                funnel.remove(step.name, outcome, document)
                break
            document = outcome
        else:
            funnel.kept.count(document)
            yield document
