"""Read a corpus for a report: what was read, what each rule removed, and what is left.

The counts come from the corpus's `funnel.json` and from a function that measures a corpus, which the caller
passes: this layer cannot import the package `corpus`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater.report.plots import Series, line_chart
from headwater.storage.files import read_json
from headwater.storage.provenance import MANIFEST, read_manifest

_FUNNEL = "funnel.json"
Measure = Callable[[Path], dict[str, Any]]


@dataclass(frozen=True)
class CorpusBar:
    """One bar, for a step of the funnel, a language or a length; `share` is in per cent of the longest."""

    name: str
    documents: int
    share: float
    megabytes: float | None = None


@dataclass(frozen=True)
class Rule:
    """What one rule removed, with the beginnings of some texts."""

    name: str
    documents: int
    megabytes: float | None
    examples: Sequence[tuple[str, str]]  # (source, beginning of the text)


@dataclass(frozen=True)
class Corpus:
    """One corpus in the report."""

    name: str
    facts: Sequence[tuple[str, str]]
    stages: Sequence[CorpusBar] = ()
    rules: Sequence[Rule] = ()
    clusters: str = ""
    languages: Sequence[CorpusBar] = ()
    lengths: Sequence[CorpusBar] = ()
    domains: Sequence[tuple[str, int]] = ()
    published: Sequence[tuple[str, int, int]] = ()  # (domain, documents in WebText, documents here)
    comparison: str = ""
    vocabulary: str = ""
    notes: Sequence[str] = field(default=())


def read_corpora(folders: Sequence[Path], measure: Measure) -> list[Corpus]:
    """Read the corpora among `folders`, and directly inside those that are not Headwater's."""
    found: dict[Path, Corpus] = {}
    for folder in folders:
        inside = (
            [folder] if (folder / MANIFEST).exists() else sorted(p.parent for p in folder.glob(f"*/{MANIFEST}"))
        )
        for path in inside:
            if not path.name.startswith(".") and read_manifest(path).kind == "corpus":
                found[path] = _corpus(path, measure(path))
    return list(found.values())


def _corpus(path: Path, measured: dict[str, Any]) -> Corpus:
    funnel = read_json(path / _FUNNEL) if (path / _FUNNEL).is_file() else {}
    counts = measured["counts"]
    lengths = measured["characters_per_document"]
    facts = [("documents", f"{measured['documents']:,}"), ("text", f"{measured['bytes'] / 1e6:,.1f} MB")]
    if lengths:
        facts += [("median", f"{lengths['p50']:,} characters"), ("longest", f"{lengths['maximum']:,}")]
    words = measured["vocabulary"]
    if words:
        facts.append(("distinct words", f"{words[-1][1]:,} of {words[-1][0]:,}"))
    webtext = measured.get("webtext")
    return Corpus(
        name=path.name,
        facts=facts,
        stages=_stages(funnel) if funnel else (),
        rules=_rules(funnel) if funnel else (),
        clusters=_clusters(funnel),
        languages=_sizes(counts.get("language", {}).get("top", [])),
        lengths=_sizes([(f"from {least:,}", count) for least, count in measured["lengths"]]),
        domains=[(name, count) for name, count in counts.get("domain", {}).get("top", [])],
        published=[(name, there, here) for name, there, here in webtext["published"]] if webtext else (),
        comparison=_comparison(webtext) if webtext else "",
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
    most = max(1, left[0][1])
    return [CorpusBar(name, count, round(100 * count / most, 1), bytes_ / 1e6) for name, count, bytes_ in left]


def _rules(funnel: dict[str, Any]) -> list[Rule]:
    rules = [
        Rule(f"{step}: {name}", found["documents"], found["bytes"] / 1e6, _examples(found["examples"]))
        for step, rules in funnel["removed"].items()
        for name, found in sorted(rules.items(), key=lambda entry: -entry[1]["documents"])
    ]
    return rules + [
        Rule(f"duplicates: {kind}", count, None, _examples(funnel["examples"].get(kind, [])))
        for kind, count in funnel["duplicates"].items()
        if count
    ]


def _examples(examples: Sequence[dict[str, str]]) -> list[tuple[str, str]]:
    return [(example["url"] or example["source"], example["text"]) for example in examples]


def _clusters(funnel: dict[str, Any]) -> str:
    clusters = funnel.get("clusters")
    if not clusters or not clusters["near"]:
        return ""
    return (
        f"{clusters['near']:,} documents were kept for groups of near copies; the largest group has "
        f"{clusters['largest']:,} documents."
    )


def _comparison(webtext: dict[str, Any]) -> str:
    correlation = webtext["rank_correlation"]
    rank = f"Spearman's rank correlation over them is {correlation:.2f}" if correlation is not None else "too few"
    missing = f"; missing first: {', '.join(webtext['missing'])}" if webtext["missing"] else ""
    return f"Of WebText's thousand most common domains {webtext['shared']:,} are here ({rank}){missing}."


def _sizes(counts: Sequence[Sequence[Any]]) -> list[CorpusBar]:
    most = max((count for _, count in counts), default=1)
    return [CorpusBar(str(name), count, round(100 * count / most, 1)) for name, count in counts]
