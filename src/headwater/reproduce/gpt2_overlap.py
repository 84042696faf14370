"""GPT-2, section 4: how much of a test set stands in the training text (table 6), and what that is worth.

8-grams of lower-cased words in a Bloom filter. A count needs no seeds: where a finding here rests on counts alone,
its verdict is the inequality itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headwater.config import Config
from headwater.corpus.dedup.overlap import TrainingGrams, texts_of, training_grams
from headwater.datasets.paper_tables import TABLES
from headwater.evaluate.protocols import Figure
from headwater.evaluate.results import read_examples
from headwater.evaluate.tasks.lambada import perplexity_figure
from headwater.reproduce.experiment import Experiment, Finding, Findings, Row, files_missing, judge
from headwater.reproduce.figures import grouped_bars
from headwater.reproduce.gpt2_ladder import PREFIX, rungs, text_of, trainings
from headwater.reproduce.gpt2_zero_shot import table_3
from headwater.reproduce.laboratory import Laboratory
from headwater.reproduce.scale import Scale
from headwater.reproduce.setup import describe
from headwater.reproduce.statistics import FAILS, HOLDS, OPEN, Estimate, Measured, Verdict, differences
from headwater.storage.files import read_json, write_json
from headwater.storage.stage import Stage

# Test file, and the set's own training file.
SETS: dict[str, tuple[str, str | None]] = {
    "PTB": ("eval-zeroshot/ptb/ptb.test.txt", "eval-zeroshot/ptb/ptb.train.txt"),
    "WikiText-2": ("eval-zeroshot/wikitext2/wiki.test.tokens", "train-text/wikitext2_train.tokens"),
    "enwik8": ("eval-zeroshot/enwik8/enwik8.test.5mb", None),
    "text8": ("eval-zeroshot/text8/text8.test.5mb", None),
    "WikiText-103": ("eval-zeroshot/wikitext103/wiki.test.tokens", "eval-zeroshot/wikitext103/wiki.train.tokens"),
    "1BW": ("eval-zeroshot/1bw/news.en.heldout-00000-of-00050", "eval-zeroshot/1bw/training"),
    "LAMBADA": ("eval-zeroshot/lambada/lambada_test_openai.jsonl", None),
}
_LAMBADA_MEAN = 1.2  # GPT-2, section 4: mean overlap of LAMBADA's passages
PROTOCOL = "lambada.openai.whole-word"


class OverlapSettings(Config):
    """None of its own: LAMBADA's passages are those of table 3, of `gpt2_zero_shot`."""


def pieces(scale: Scale) -> set[tuple[str, str]]:
    """The table, and the largest model scored once a seed."""
    largest = rungs(scale)[-1]
    found = {("pre-training", name) for name in trainings(scale, [largest])} | {("overlap", "table 6")}
    return found | {("scores", f"table 3, {name}") for name in trainings(scale, [largest])}


def run(laboratory: Laboratory) -> Findings:
    """Measure the table, and score the largest model with and without what overlaps."""
    largest = rungs(laboratory.scale)[-1]
    text = text_of(laboratory.scale)
    counted = _table(laboratory, text)
    table, passages = counted["sets"], counted["passages"]
    scored = [_without(laboratory, largest, seed, passages) for seed in laboratory.scale.seeds]
    with_all = Measured((one[0].value for one in scored), (one[0].stderr for one in scored))
    without = Measured((one[1].value for one in scored), (one[1].stderr for one in scored))
    gains = differences(without.map(math.log), with_all.map(math.log))
    asked, count = scored[0][2:]
    rows = []
    for name, one in table.items():
        own, webtext = _paper(name)
        rows.append(Row(name, "% of 8-grams also in the training text", [one["train"]], webtext))
        if one["own"] is not None:
            rows.append(Row(name, "% of 8-grams also in its own training part", [one["own"]], own))
    rows += [
        Row(f"LAMBADA, {largest}", "perplexity, all passages", with_all, 8.6, asked),
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
        findings=[_own_is_more(table), _overlap_explains_little(gains, count, asked)],
        setup=describe(laboratory, [largest]),
        notes=[
            "8-grams of lower-cased words of letters and digits, as often as they stand in the test text, in a "
            "Bloom filter whose rate of false positives is below 1e-8, as in the paper. The held-out books are "
            "whole books of the same collection. enwik8 here is its last five million bytes alone. Sets of "
            f"table 6 that are not in the data folder: {', '.join(_absent(laboratory)) or 'none'}.",
        ],
        figures={"table-6-overlap": lambda figure: _draw(figure, table)},
    )


def _paper(name: str) -> tuple[float | None, float | None]:
    """Table 6 for a set: % of its 8-grams in its own training part, and in WebText."""
    table = TABLES["gpt2-table-6"]
    if name not in table.columns:
        return None, _LAMBADA_MEAN if name == "LAMBADA" else None
    return table.value("its own training part", name), table.value("WebText", name)


def _table(laboratory: Laboratory, text: str) -> dict[str, Any]:
    """{"sets": by name {"train", "own" or None, "grams"}, "passages": whether each of LAMBADA shares an 8-gram}.

    The held-out books stand beside the sets that are at hand.
    """
    train, held_out = laboratory.corpus(text)
    there = {name: one for name, one in SETS.items() if (laboratory.data / one[0]).exists()}
    tests = {name: laboratory.data / one[0] for name, one in there.items()} | {"held-out books": held_out}
    own = {name: laboratory.data / one[1] for name, one in there.items() if one[1] is not None}
    own = {name: path for name, path in own.items() if path.exists()}
    inputs = {"train": train} | {f"test {name}": path for name, path in tests.items()}
    inputs |= {f"own {name}": path for name, path in own.items()}
    out = laboratory.place("overlap", {}, inputs)
    stage = Stage(out, kind="overlap", config={}, inputs=inputs)
    with laboratory.piece("overlap", "table 6", out):
        if not stage.is_complete():
            training = training_grams(train)
            sets = {
                name: {"own": None, **_percent("train", training, path)}
                | (_percent("own", training_grams(own[name]), path) if name in own else {})
                for name, path in tests.items()
            }
            passages = [there > 0 for there, _ in training.shares(texts_of(tests["LAMBADA"]))]
            with stage.write() as work:
                write_json(work / "overlap.json", {"sets": sets, "passages": passages})
    table: dict[str, Any] = read_json(out / "overlap.json")
    return table


def _absent(laboratory: Laboratory) -> list[str]:
    return [name for name, (path, _) in SETS.items() if not (laboratory.data / path).exists()]


def _percent(key: str, grams: TrainingGrams, test: Path) -> dict[str, Any]:
    shares = grams.shares(texts_of(test))
    total = sum(count for _, count in shares)
    return {key: 100 * sum(there for there, _ in shares) / max(1, total), "grams": total}


def _without(
    laboratory: Laboratory, rung: str, seed: int, passages: Sequence[bool]
) -> tuple[Figure, Figure, int, int]:
    """LAMBADA's perplexity with all passages, without those that overlap; how many there are, how many overlap."""
    folder = table_3(laboratory, rung, seed)[1]
    found = [(passages[int(one["id"]) - 1], one["log_probability"]) for one in read_examples(folder, PROTOCOL)]
    clean = [value for overlaps, value in found if not overlaps] or [value for _, value in found]
    perplexity = [perplexity_figure(values) for values in ([value for _, value in found], clean)]
    return perplexity[0], perplexity[1], len(found), sum(overlaps for overlaps, _ in found)


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


def _overlap_explains_little(gains: Measured, count: int, asked: int) -> Finding:
    claim = "Leaving out every passage that overlaps changes LAMBADA's perplexity by less than 2 %."
    if not count:
        here = f"none of the {asked:,} passages asked shares an 8-gram with the training text"
        sentence = "There is nothing to leave out: the text is too small to hold what the set holds."
        return Finding(claim, "8.6 becomes 8.7", here, OPEN, sentence, Estimate(0.0, None, None))
    return judge(
        claim,
        "8.6 becomes 8.7",
        gains.map(lambda gain: 0.02 - abs(gain)),
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
        "in its own training part": [_paper(name)[0] for name in names],
        "in the model's training text": [_paper(name)[1] for name in names],
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
    models=(PREFIX,),
    settings=OverlapSettings,
    pieces=pieces,
    run=run,
    lacks=lambda scale, data: files_missing({"LAMBADA": SETS["LAMBADA"][0]}, data),
    beside=("gpt2-table-6",),
)
