"""What the steps between reading and writing have in common, and the account of what they remove.

A step takes one document and gives it on, changed or not, or names the rule that removes it. Steps keep nothing
between documents, so that any number of workers gives the same result; what needs to see all documents
(duplicates) stands apart. `Funnel` counts documents and bytes by step and rule, and keeps the first EXAMPLES of
each rule for people to look at.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from headwater.corpus.folder import Document

EXAMPLES = 10
_EXAMPLE_CHARACTERS = 300


class Step(ABC):
    """One decision about one document at a time."""

    name: str

    @abstractmethod
    def apply(self, document: Document) -> Document | str:
        """The document as it goes on, or the rule that removes it."""


@dataclass
class Removal:
    """What one rule of one step removed; `bytes` are UTF-8 bytes of text."""

    documents: int = 0
    bytes: int = 0
    examples: list[dict[str, str]] = field(default_factory=list)


@dataclass
class Funnel:
    """Counts in the order of the steps; two funnels of consecutive parts of a corpus add up."""

    read: Removal = field(default_factory=Removal)
    kept: Removal = field(default_factory=Removal)
    removed: dict[str, dict[str, Removal]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def remove(self, step: str, rule: str, document: Document) -> None:
        """Count a document that a rule removes."""
        removal = self.removed.setdefault(step, {}).setdefault(rule, Removal())
        _count(removal, document)
        if len(removal.examples) < EXAMPLES:
            start = document.text[:_EXAMPLE_CHARACTERS]
            removal.examples.append({"source": document.source, "url": document.url, "text": start})

    def add(self, other: Funnel) -> None:
        """Count what another part of the corpus counted, after this one."""
        for mine, theirs in ((self.read, other.read), (self.kept, other.kept)):
            mine.documents += theirs.documents
            mine.bytes += theirs.bytes
        for step, rules in other.removed.items():
            for rule, theirs in rules.items():
                mine = self.removed.setdefault(step, {}).setdefault(rule, Removal())
                mine.documents += theirs.documents
                mine.bytes += theirs.bytes
                mine.examples = [*mine.examples, *theirs.examples][:EXAMPLES]
        self.notes += other.notes

    def joined(self, other: Funnel) -> Funnel:
        """A third one: what both counted."""
        both = Funnel()
        both.add(self)
        both.add(other)
        return both

    def figures(self, rules: int = 3) -> dict[str, int]:
        """What a display shows: documents and bytes read and kept, and the rules that removed most."""
        counts = [(r.documents, step, name) for step, found in self.removed.items() for name, r in found.items()]
        most = [(f"− {step}: {name}", count) for count, step, name in sorted(counts, reverse=True)]
        return {
            "of": self.read.documents,
            "MB read": self.read.bytes // 10**6,
            "MB kept": self.kept.bytes // 10**6,
            **dict(most[:rules]),
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain values: read and kept {documents, bytes}, removed {step: {rule: {…, examples}}}, notes."""
        removed = {
            s: {r: vars(removal) for r, removal in sorted(rules.items())} for s, rules in self.removed.items()
        }
        sizes = {
            name: {"documents": size.documents, "bytes": size.bytes}
            for name, size in (("read", self.read), ("kept", self.kept))
        }
        return {**sizes, "removed": removed, "notes": self.notes}

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Funnel:
        """The funnel that `to_dict` wrote."""
        removed = {
            s: {r: Removal(**removal) for r, removal in rules.items()} for s, rules in value["removed"].items()
        }
        return cls(Removal(**value["read"]), Removal(**value["kept"]), removed, list(value["notes"]))


def run_steps(documents: Iterable[Document], steps: Iterable[Step], funnel: Funnel) -> Iterator[Document]:
    """Stream the documents that all steps let pass."""
    steps = list(steps)
    for step in steps:
        funnel.removed.setdefault(step.name, {})  # so that steps stand in their order
    for document in documents:
        _count(funnel.read, document)
        for step in steps:
            outcome = step.apply(document)
            if isinstance(outcome, str):
                funnel.remove(step.name, outcome, document)
                break
            document = outcome
        else:
            _count(funnel.kept, document)
            yield document


def _count(size: Removal, document: Document) -> None:
    size.documents += 1
    size.bytes += len(document.text.encode("utf-8", "replace"))
