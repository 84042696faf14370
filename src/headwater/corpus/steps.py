"""The interface of steps, and counts, with examples, of what a build or a crawl leaves out, and why.

A step returns a document, changed or not, or the rule that removes it. Steps keep no state between documents, so
that the result does not depend on the number of workers; duplicates, which need all documents, are not steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from headwater.corpus.folder import Document
from headwater.errors import DataError

EXAMPLES = 10
NAMES = 1000  # that are counted one by one; a hostile source could name any number
_EXAMPLE_CHARACTERS = 300


class Step(ABC):
    """One decision about one document at a time."""

    name: str

    @abstractmethod
    def apply(self, document: Document) -> Document | str:
        """Return the document, changed or not, or the rule that removes it."""


class Tally:
    """Counts by name, with the first EXAMPLES of each; names beyond NAMES are counted as "other"."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.examples: dict[str, list[str]] = {}

    def add(self, name: str, example: str = "", count: int = 1) -> None:
        """Count `count` more; keep the example if there are few."""
        if name not in self.counts and len(self.counts) >= NAMES:
            name = "other"
        self.counts[name] += count
        examples = self.examples.setdefault(name, [])
        if example and len(examples) < EXAMPLES:
            examples.append(example)

    def merge(self, described: dict[str, Any]) -> None:
        """Add what `to_dict` of another part of the work returned, which comes after this one."""
        for name, entry in described.items():
            self.add(name, count=entry["count"])
            for example in entry["examples"]:
                self.add(name, example, 0)

    def to_dict(self) -> dict[str, Any]:
        """Return {name: {count, examples}}."""
        return {name: {"count": count, "examples": self.examples[name]} for name, count in self.counts.items()}


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
    """What a task, or all tasks of a build, read, kept and left out.

    removed: by step and rule, in the order of the steps; notes: for the user; aside: pages and files without
    usable text; encodings: pages of each; left_out: rows, records and markup that no document has; labels: of the
    documents, in their order; composed: documents that had another Unicode form; replaced: documents with U+FFFD.
    """

    read: Removal = field(default_factory=Removal)
    kept: Removal = field(default_factory=Removal)
    removed: dict[str, dict[str, Removal]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    aside: list[dict[str, str]] = field(default_factory=list)
    encodings: Counter[str] = field(default_factory=Counter)
    left_out: Tally = field(default_factory=Tally)
    labels: dict[str, None] = field(default_factory=dict)
    composed: int = 0
    replaced: int = 0

    def remove(self, step: str, rule: str, document: Document) -> None:
        """Count a document that a rule removed."""
        self.removed.setdefault(step, {}).setdefault(rule, Removal()).count(document, example=True)

    def set_aside(self, name: str, error: DataError, documents: int = 0) -> None:
        """Record that a file could not be read, or not after so many documents."""
        reason = error.seen if not documents else f"used up to document {documents:,}: {error.seen}"
        self.aside.append({"source": name, "page": "", "reason": reason})
        self.notes.append(f"Left out{f' after document {documents:,}' if documents else ''}: {error}")

    def add(self, other: Funnel) -> None:
        """Add the counts of another part of the corpus, which comes after this one."""
        self.read.add(other.read)
        self.kept.add(other.kept)
        for step, rules in other.removed.items():
            for rule, removal in rules.items():
                self.removed.setdefault(step, {}).setdefault(rule, Removal()).add(removal)
        self.notes += other.notes
        self.aside += other.aside
        self.encodings.update(other.encodings)
        self.left_out.merge(other.left_out.to_dict())
        self.labels |= other.labels
        self.composed += other.composed
        self.replaced += other.replaced

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
        """Return plain values: read and kept {documents, bytes}, removed {step: {rule: {…, examples}}}, others."""
        removed = {s: {r: vars(one) for r, one in sorted(rules.items())} for s, rules in self.removed.items()}
        described = {"read": self.read.size, "kept": self.kept.size, "removed": removed}
        return {**vars(self), **described, "left_out": self.left_out.to_dict(), "labels": list(self.labels)}

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Funnel:
        """Return the funnel that `to_dict` described."""
        removed = {
            s: {r: Removal(**removal) for r, removal in rules.items()} for s, rules in value["removed"].items()
        }
        left_out = Tally()
        left_out.merge(value["left_out"])
        objects = {
            **{"read": Removal(**value["read"]), "kept": Removal(**value["kept"]), "removed": removed},
            **{"encodings": Counter(value["encodings"]), "left_out": left_out},
            "labels": dict.fromkeys(value["labels"]),
        }
        return cls(**{**value, **objects})


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
