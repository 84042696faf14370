"""Read a corpus for a report: what was read, what each rule removed, and what is left.

The counts come from the corpus's `funnel.json` and from a function that measures a corpus, which the caller
passes: this layer cannot import the package `corpus`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from headwater.reading import read_json
from headwater.report.plots import Series, line_chart

_FUNNEL = "funnel.json"
Measure = Callable[[Path], dict[str, Any]]


class CorpusBar(NamedTuple):
    """How many documents a step left, a rule removed, or a language has; of a rule with some texts."""

    name: str
    documents: int
    megabytes: float | None = None
    examples: Sequence[tuple[str, str]] = ()  # (source, beginning of the text)


@dataclass(frozen=True)
class Corpus:
    """One corpus in the report."""

    name: str
    facts: Sequence[tuple[str, str]]
    stages: Sequence[CorpusBar] = ()
    rules: Sequence[CorpusBar] = ()
    clusters: Mapping[str, int] | None = None
    languages: Sequence[CorpusBar] = ()
    lengths: Sequence[CorpusBar] = ()
    hosts: Sequence[CorpusBar] = ()
    vocabulary: str = ""
    notes: Sequence[str] = ()


def read_corpus(path: Path, measured: dict[str, Any]) -> Corpus:
    """Return one corpus in the report; `measured` is what a Measure returned for it."""
    funnel = read_json(path / _FUNNEL) if (path / _FUNNEL).is_file() else {}
    counts = measured["counts"]
    lengths = measured["characters_per_document"]
    facts = [("documents", f"{measured['documents']:,}"), ("text", f"{measured['bytes'] / 1e6:,.1f} MB")]
    if lengths:
        facts += [("median", f"{lengths['p50']:,} characters"), ("longest", f"{lengths['maximum']:,}")]
    words = measured["vocabulary"]
    if words:
        facts.append(("distinct words", f"{words[-1][1]:,} of {words[-1][0]:,}"))
    return Corpus(
        name=path.name,
        facts=facts,
        stages=_stages(funnel) if funnel else (),
        rules=_rules(funnel) if funnel else (),
        clusters=funnel.get("clusters"),
        languages=[CorpusBar(name, count) for name, count in counts.get("language", {}).get("top", [])],
        lengths=[CorpusBar(f"from {least:,}", count) for least, count in measured["lengths"]],
        hosts=[CorpusBar(name, count) for name, count in counts.get("host", {}).get("top", [])],
        vocabulary=line_chart([Series("distinct words", words)], "words read", "distinct words")
        if len(words) > 1
        else "",
        notes=funnel.get("notes", ()),
    )


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
