"""GPT-2, section 3.3: how many of LAMBADA's last words are in their context at all.

Earlier systems were restricted to words of the context (Hoang et al. 2018), which excludes the others. No model is
needed to count them: what is in the context bounds the accuracy of every restricted model. A word is compared in
lower case. The set exists as distributed, with spaces between tokens, and as OpenAI's own file.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from headwater_papers.claims import CLAIMS, judge_count
from headwater_papers.experiment import Experiment, Findings, Row
from headwater_papers.laboratory import Laboratory
from headwater_papers.paper_tables import number
from headwater_papers.scale import Scale
from headwater_papers.setup import describe

# The first that is available decides the claim.
FILES = {
    "OpenAI's file": "eval-zeroshot/lambada/lambada_test_openai.jsonl",
    "test part as distributed": "eval-zeroshot/lambada/lambada_test_plain_text.txt",
    "development part as distributed": "eval-zeroshot/lambada/lambada_development_plain_text.txt",
}
PUBLISHED = number("gpt2-further-text | LAMBADA: % of the last words that are not in the context | value")
CLOSE = 2.0  # percentage points
_WORD = re.compile(r"\w+(?:['’]\w+)*")


def share_outside(passages: list[str]) -> float:
    """Return the percentage of passages whose last word is not among the words before it."""
    outside = 0
    for passage in passages:
        context, _, last = passage.strip().rpartition(" ")
        outside += last.lower() not in {word.lower() for word in _WORD.findall(context)}
    return 100 * outside / len(passages)


def read_passages(path: Path) -> list[str]:
    """Return the passages of a file: JSON Lines with `text`, or one passage a line."""
    lines = path.read_text(encoding="utf-8").splitlines()
    read = [json.loads(line)["text"] if path.suffix == ".jsonl" else line for line in lines]
    return [passage for passage in read if passage.strip()]


def pieces(scale: Scale) -> set[tuple[str, str]]:
    """List the work: counting."""
    return {("counting", "LAMBADA")}


def run(laboratory: Laboratory) -> Findings:
    """Count in every file that is available."""
    there = {name: laboratory.data / file for name, file in FILES.items() if (laboratory.data / file).exists()}

    def measure() -> dict[str, Any]:
        passages = {name: read_passages(path) for name, path in there.items()}
        return {name: {"share": share_outside(texts), "count": len(texts)} for name, texts in passages.items()}

    shares = laboratory.measured(
        "lambada-words", "words.json", measure, kind="counting", name="LAMBADA", config={}, inputs=there
    )
    rows = []
    for name, one in shares.items():
        note = f"{one['count']:,} passages"
        rows.append(
            Row(name, "% of the last words that are not in the context", [one["share"]], PUBLISHED, note=note)
        )
        rows.append(Row(name, "largest accuracy of a model restricted to the context, %", [100 - one["share"]]))
    first = next(iter(shares.values()))["share"]
    return Findings(
        rows=rows,
        findings=[
            judge_count(CLAIMS["gpt2_lambada.outside"], CLOSE - abs(first - PUBLISHED), here=f"{first:.1f} %")
        ],
        setup=describe(laboratory, []),
        notes=["A word is a run of letters and digits, with apostrophes inside it, in lower case."],
    )


def _lacks(scale: Scale, data: Path) -> list[str]:
    there = any((data / file).exists() for file in FILES.values())
    return [] if there else [f"LAMBADA ({' or '.join(FILES.values())})"]


LAMBADA = Experiment(
    name="gpt2_lambada",
    title="Last words of LAMBADA that are not in their context",
    paper="GPT-2",
    section="3.3",
    claim="A restriction to words of the context excludes about a fifth of LAMBADA's answers.",
    models=(),
    pieces=pieces,
    run=run,
    lacks=_lacks,
    paper_tables=("gpt2-further-text",),
)
