"""GPT-2, section 4: how much of a test set stands in the training text (table 6), and what that is worth.

8-grams of lower-cased words in a Bloom filter. A count needs no seeds: where a finding here rests on counts alone,
its verdict is the inequality itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from headwater.config import Config
from headwater.corpus.overlap import measure_overlap
from headwater.evaluate import evaluate
from headwater.provenance import Stage
from headwater.reproduce.experiment import Experiment, Finding, Findings, Row, judge
from headwater.reproduce.figures import grouped_bars
from headwater.reproduce.gpt2_ladder import rungs, text_of, training
from headwater.reproduce.laboratory import Laboratory
from headwater.reproduce.scale import Scale
from headwater.reproduce.setup import describe_model, describe_text
from headwater.reproduce.statistics import FAILS, HOLDS, OPEN, Estimate, Verdict
from headwater.storage import read_json, write_json

# Test file, the set's own training file, and the paper's two percentages (own training part, WebText).
SETS: dict[str, tuple[str, str | None, float | None, float | None]] = {
    "PTB": ("eval-zeroshot/ptb/ptb.test.txt", "eval-zeroshot/ptb/ptb.train.txt", 2.67, 0.88),
    "WikiText-2": ("eval-zeroshot/wikitext2/wiki.test.tokens", "train-text/wikitext2_train.tokens", 0.66, 1.63),
    "enwik8": ("eval-zeroshot/enwik8/enwik8.test.5mb", None, 7.50, 6.31),
    "LAMBADA": ("eval-zeroshot/lambada/lambada_test_openai.jsonl", None, None, 1.2),
}
PROTOCOL = "lambada.openai.whole-word"


class Settings(Config):
    """limit: passages of LAMBADA that are scored with and without those that overlap."""

    limit: int | None = Field(default=None, ge=1)


def pieces(scale: Scale) -> set[tuple[str, str]]:
    """The table, and the largest model scored once a seed."""
    largest = rungs(scale)[-1]
    scores = {("scores", f"overlap, {largest}, seed {seed}") for seed in scale.seeds}
    return training(scale, [largest]) | scores | {("overlap", "table 6")}


def run(laboratory: Laboratory) -> Findings:
    """Measure the table, and score the largest model with and without what overlaps."""
    settings = laboratory.settings("gpt2_overlap", Settings)
    largest = rungs(laboratory.scale)[-1]
    text = text_of(laboratory.scale)
    table = _table(laboratory, text)
    gains, with_all, without = [], [], []
    count = 0
    for seed in laboratory.scale.seeds:
        shared = _without(laboratory, largest, seed, settings.limit)
        with_all.append(shared["value"])
        without.append(shared["without"])
        count = int(shared["examples"])
        gains.append(math.log(shared["without"]) - math.log(shared["value"]))
    rows = []
    for name, one in table.items():
        _, _, own, webtext = SETS.get(name, ("", None, None, None))
        rows.append(Row(name, "% of 8-grams also in the training text", [one["train"]], webtext))
        if one["own"] is not None:
            rows.append(Row(name, "% of 8-grams also in its own training part", [one["own"]], own))
    rows += [
        Row(f"LAMBADA, {largest}", "perplexity, all passages", with_all, 8.6),
        Row(
            f"LAMBADA, {largest}",
            "perplexity, without passages that overlap",
            without,
            8.7,
            note=f"{count} left out",
        ),
    ]
    return Findings(
        rows=rows,
        findings=[_own_is_more(table), _overlap_explains_little(gains, count)],
        setup=[*describe_text(laboratory, text), describe_model(laboratory, largest)],
        notes=[
            "8-grams of lower-cased words of letters and digits, as often as they stand in the test text, in a "
            "Bloom filter whose rate of false positives is below 1e-8, as in the paper. The held-out books are "
            "whole books of the same collection. enwik8 here is its last five million bytes alone; its own "
            "training part and those of the other sets of table 6 are not at hand.",
        ],
        figures={"table-6-overlap": lambda figure: _draw(figure, table)},
    )


def _table(laboratory: Laboratory, text: str) -> dict[str, dict[str, Any]]:
    """Percentages by set: {"train", "own" or None, "grams"}; the held-out books beside the sets that are there."""
    train, held_out = laboratory.corpus(text)
    there = {name: one for name, one in SETS.items() if (laboratory.data / one[0]).exists()}
    tests = {name: laboratory.data / one[0] for name, one in there.items()} | {"held-out books": held_out}
    own = {name: laboratory.data / one[1] for name, one in there.items() if one[1] is not None}
    own = {name: path for name, path in own.items() if path.exists()}
    inputs = {"train": train} | {f"test {name}": path for name, path in tests.items()}
    out = laboratory.place("overlap", {}, inputs | {f"own {name}": path for name, path in own.items()})
    stage = Stage(out, kind="overlap", config={}, inputs=inputs)
    with laboratory.piece("overlap", "table 6", out):
        if not stage.is_complete():
            found: dict[str, dict[str, Any]] = {}
            for names in (list(own), [name for name in tests if name not in own]):
                paths: Sequence[Path] = [own[name] for name in names if name in own]
                rows = measure_overlap(train, [tests[n] for n in names], paths, progress=laboratory.progress)[
                    "rows"
                ]
                for name, row in zip(names, rows, strict=True):
                    found[name] = {key: row[key] for key in ("train", "own", "grams")}
            with stage.write() as work:
                write_json(work / "overlap.json", {name: found[name] for name in tests})
    table: dict[str, dict[str, Any]] = read_json(out / "overlap.json")
    return table


def _without(laboratory: Laboratory, rung: str, seed: int, limit: int | None) -> dict[str, float]:
    """LAMBADA's perplexity with all passages, without those that share an 8-gram, and how many these are."""
    model = laboratory.model(rung, seed)
    train, _ = laboratory.corpus(laboratory.scale.models[rung].text)
    name = f"overlap, {rung}, seed {seed}"
    out = laboratory.place(f"scores-overlap-{rung}-{seed}", {"limit": limit}, {"model": model, "overlap": train})
    with laboratory.piece("scores", name, out):
        results = evaluate(
            model, [PROTOCOL], laboratory.data, out, overlap=train, limit=limit, progress=laboratory.progress
        )
    (perplexity,) = (result for result in results.results if result.metric == "perplexity")
    shared = perplexity.details["overlap"]
    return {
        "value": perplexity.value,
        "without": shared.get("value without", perplexity.value),
        "examples": shared["examples"],
    }


def _own_is_more(table: dict[str, dict[str, Any]]) -> Finding:
    pairs = {name: one for name, one in table.items() if one["own"] is not None}
    gaps = [one["own"] - one["train"] for one in pairs.values()]
    here = "; ".join(f"{name} {one['own']:.2f} % and {one['train']:.2f} %" for name, one in pairs.items())
    verdict: Verdict = OPEN if not gaps else HOLDS if min(gaps) > 0 else FAILS
    return Finding(
        "A test set shares more 8-grams with its own training part than with the model's training text.",
        "5.9 % and 3.2 % on average over six sets (not so for WikiText-2 and text8)",
        here or "no set with its own training part is at hand",
        verdict,
        "A count without chance. The paper's text is a sample of the web, which quotes what Wikipedia quotes; "
        "here it is novels, which share little with news or encyclopedias.",
        Estimate(min(gaps) if gaps else 0.0, None, None),
    )


def _overlap_explains_little(gains: Sequence[float], count: int) -> Finding:
    return judge(
        "Leaving out every passage that overlaps changes LAMBADA's perplexity by less than 2 %.",
        "8.6 becomes 8.7",
        [0.02 - abs(gain) for gain in gains],
        here=f"a factor of {math.exp(sum(gains) / len(gains)):.4f}, {count} passages left out",
        sentences={
            HOLDS: "As in the paper, what the model has read before does not explain its score.",
            FAILS: "The passages that overlap are easier or harder by more than that.",
            OPEN: "The change is near 2 %, and the seeds do not decide on which side.",
        },
    )


def _draw(figure: Any, table: dict[str, dict[str, Any]]) -> None:
    names = list(table)
    here = {
        "in its own training part": [_estimate(table[name]["own"]) for name in names],
        "in the model's training text": [_estimate(table[name]["train"]) for name in names],
    }
    paper = {
        "in its own training part": [SETS.get(name, ("", None, None, None))[2] for name in names],
        "in the model's training text": [SETS.get(name, ("", None, None, None))[3] for name in names],
    }
    grouped_bars(figure, names, here, "% of 8-grams (paper: black line)", published=paper)


def _estimate(value: float | None) -> Estimate | None:
    return None if value is None else Estimate(value, None, None)


OVERLAP = Experiment(
    name="gpt2_overlap",
    title="Overlap of test sets with the training text",
    paper="GPT-2",
    section="4 (table 6)",
    claim="Test sets share few 8-grams with the training text, fewer than with their own training parts, and what "
    "they share explains little of the scores.",
    needs={"LAMBADA": ["eval-zeroshot/lambada/lambada_test_openai.jsonl"]},
    settings=Settings,
    pieces=pieces,
    run=run,
)
