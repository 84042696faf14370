"""Counts by name, each with its first examples: what a reader, a step or a crawl left out, and why."""

from __future__ import annotations

from collections import Counter
from typing import Any

EXAMPLES = 10
NAMES = 1000  # that are counted one by one; a hostile source could name any number


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
