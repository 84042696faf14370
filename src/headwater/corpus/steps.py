"""The interface of steps, and counts, with examples, of what a build or a crawl leaves out, and why.

A step returns a document, changed or not, or the rule that removes it. Steps keep no state between documents, so
that the result does not depend on the number of workers; duplicates, which need all documents, are not steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
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


class Tally(dict[str, dict[str, Any]]):
    """Counts by name, {name: {count: number, "examples": […]}}, with the first EXAMPLES of each.

    Names beyond NAMES are counted as "other".
    """

    def add(self, name: str, example: Any = "", **counts: int) -> None:
        """Add to the counts of a name, by default 1 to its `count`; keep the example if there are few."""
        merge(self, {name: {**(counts or {"count": 1}), "examples": [example] if example else []}})

    def total(self, name: str, count: str = "count") -> int:
        """Return a count of a name; 0 if nothing was added to it."""
        return int(self.get(name, {}).get(count, 0))


def merge(total: dict[str, Any], part: Mapping[str, Any]) -> None:
    """Add the counts, lists and dictionaries of another part of the work, which comes after that of `total`."""
    for name, value in part.items():
        if isinstance(total, Tally) and name not in total and len(total) >= NAMES:
            name = "other"
        if isinstance(value, dict) and value:
            merge(total.setdefault(name, {}), value)
        elif isinstance(value, list):
            listed = total.setdefault(name, [])
            listed += value[: EXAMPLES - len(listed)] if name == "examples" else value
        elif isinstance(value, int):
            total[name] = total.get(name, 0) + value
        elif value is None:
            total[name] = None


def size_of(document: Document) -> dict[str, int]:
    """Return the counts of one document: itself, and the UTF-8 bytes of its text."""
    return {"documents": 1, "bytes": len(document.text.encode("utf-8", "replace"))}


def example_of(document: Document) -> dict[str, str]:
    """Return a document as an example: where it is from, and its beginning."""
    return {"source": document.source, "url": document.url, "text": document.text[:_EXAMPLE_CHARACTERS]}


@dataclass
class Funnel:
    """What a task, or all tasks of a build, read, kept and left out, in plain values.

    removed: by step, in their order, and by rule; notes: for the user; aside: pages and files without usable text;
    encodings: pages of each; left_out: rows, records and markup that no document has; labels: of the documents, in
    their order; composed: documents that had another Unicode form; replaced: documents with U+FFFD.
    """

    read: dict[str, int] = field(default_factory=lambda: {"documents": 0, "bytes": 0})
    kept: dict[str, int] = field(default_factory=lambda: {"documents": 0, "bytes": 0})
    removed: dict[str, Tally] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    aside: list[dict[str, str]] = field(default_factory=list)
    encodings: dict[str, int] = field(default_factory=dict)
    left_out: Tally = field(default_factory=Tally)
    labels: dict[str, None] = field(default_factory=dict)
    composed: int = 0
    replaced: int = 0

    def set_aside(self, name: str, error: DataError, documents: int = 0) -> None:
        """Record that a file could not be read, or not after so many documents."""
        reason = error.seen if not documents else f"used up to document {documents:,}: {error.seen}"
        self.aside.append({"source": name, "page": "", "reason": reason})
        self.notes.append(f"Left out{f' after document {documents:,}' if documents else ''}: {error}")

    def add(self, other: Funnel) -> None:
        """Add the counts of another part of the corpus, which comes after this one."""
        merge(vars(self), vars(other))

    def joined(self, other: Funnel) -> Funnel:
        """Return the sum of both as a new funnel."""
        both = Funnel()
        both.add(self)
        both.add(other)
        return both

    def figures(self) -> dict[str, int]:
        """Return figures for a display: documents and bytes read and kept, and the three strictest rules."""
        return {
            "of": self.read["documents"],
            "MB read": self.read["bytes"] // 10**6,
            "MB kept": self.kept["bytes"] // 10**6,
            **{f"− {rule}": count for rule, count in self.strictest()},
        }

    def strictest(self) -> list[tuple[str, int]]:
        """Return the three rules that removed most, as "step: rule", and the documents that each removed."""
        removed = [
            (removal["documents"], f"{step}: {rule}")
            for step, rules in self.removed.items()
            for rule, removal in rules.items()
        ]
        return [(rule, count) for count, rule in sorted(removed, reverse=True)[:3]]

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Funnel:
        """Return the funnel whose values these are, as read from JSON."""
        return cls(**{**value, "left_out": Tally(value["left_out"]), "labels": dict.fromkeys(value["labels"])})


def run_steps(documents: Iterable[Document], steps: Iterable[Step], funnel: Funnel) -> Iterator[Document]:
    """Stream the documents that no step removes."""
    steps = list(steps)
    for step in steps:
        funnel.removed.setdefault(step.name, Tally())  # keeps the order of the steps
    for document in documents:
        merge(funnel.read, size_of(document))
        for step in steps:
            outcome = step.apply(document)
            if isinstance(outcome, str):
                funnel.removed[step.name].add(outcome, example_of(document), **size_of(document))
                break
            document = outcome
        else:
            merge(funnel.kept, size_of(document))
            yield document
