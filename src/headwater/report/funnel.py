"""Read a corpus for a report: what was read, what each rule removed, and what is left.

The counts come from the corpus's `funnel.json`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from headwater.reading import read_json

FUNNEL_FILE = "funnel.json"


class CorpusBar(NamedTuple):
    """How many documents a step left or a rule removed; of a rule with some texts."""

    name: str
    documents: int
    megabytes: float | None = None
    examples: Sequence[tuple[str, str]] = ()  # (source, beginning of the text)


@dataclass(frozen=True)
class Corpus:
    """One corpus in the report."""

    name: str
    stages: Sequence[CorpusBar]
    rules: Sequence[CorpusBar]
    clusters: Mapping[str, int] | None
    notes: Sequence[str]


def read_corpus(path: Path) -> Corpus:
    """Return one corpus in the report."""
    funnel = read_json(path / FUNNEL_FILE)
    return Corpus(path.name, _stages(funnel), _rules(funnel), funnel.get("clusters"), funnel.get("notes", ()))


def _stages(funnel: dict[str, Any]) -> list[CorpusBar]:
    """Return documents and bytes after each step."""
    documents, size = funnel["read"]["documents"], funnel["read"]["bytes"]
    left = [("read", documents, size)]
    for step, rules in funnel["removed"].items():
        documents -= sum(rule["documents"] for rule in rules.values())
        size -= sum(rule["bytes"] for rule in rules.values())
        left.append((f"after {step}", documents, size))
    left.append(("after duplicates", funnel["kept"]["documents"], funnel["kept"]["bytes"]))
    return [CorpusBar(name, count, bytes_ / 1e6) for name, count, bytes_ in left]


def _rules(funnel: dict[str, Any]) -> list[CorpusBar]:
    rules = [
        CorpusBar(f"{step}: {name}", removed["documents"], removed["bytes"] / 1e6, _examples(removed["examples"]))
        for step, rules in funnel["removed"].items()
        for name, removed in sorted(rules.items(), key=lambda entry: -entry[1]["documents"])
    ]
    return rules + [
        CorpusBar(f"duplicates: {kind}", count, None, _examples(funnel["examples"].get(kind, [])))
        for kind, count in funnel["duplicates"].items()
        if count
    ]


def _examples(examples: Sequence[dict[str, str]]) -> list[tuple[str, str]]:
    return [(example["url"] or example["source"], example["text"]) for example in examples]
