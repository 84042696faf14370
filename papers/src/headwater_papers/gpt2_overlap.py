"""GPT-2, section 4: how much of a test set occurs in the training text (table 6), and its effect on the score.

8-grams of lower-cased words are counted. A count does not depend on the seed, so a claim about counts is judged by
the inequality alone. All of LAMBADA's passages are scored, because few of them overlap. Winograd's schemas and
CoQA's documents, by domain, are only counted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headwater.corpus import texts_of, training_grams
from headwater.evaluation import VERSION, Figure, all_tasks, run_task
from headwater.inference import load
from headwater.reading import parse_json, read_text
from headwater_papers.claims import CLAIMS, Finding, judge, judge_count
from headwater_papers.experiment import Experiment, Findings, Row, files_missing
from headwater_papers.figures import grouped_bars
from headwater_papers.gpt2_ladder import PREFIX, rungs, text_of
from headwater_papers.items import Floats, ItemValues
from headwater_papers.laboratory import Laboratory
from headwater_papers.paper_tables import TABLES, number
from headwater_papers.scale import Scale, trainings
from headwater_papers.setup import describe
from headwater_papers.statistics import Estimate, Measured

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
_TEXT = "gpt2-overlap-text | {} | value"
_LAMBADA_MEAN = number(_TEXT.format("LAMBADA: mean overlap of a passage, %"))
_HALF = 50  # percent of the 8-grams of a document that is in the training text
_NEWS = "cnn"  # the domain of news among CoQA's sources
_MUCH = number("gpt2-overlap-text | LAMBADA: perplexity is better where the overlap is more than, % | value")
PROTOCOL = "lambada.openai.whole-word.stop-words"  # whose records also have the log-probability of the word
WINOGRAD, COQA = "eval-zeroshot/wsc/wsc273.txt", "eval-zeroshot/coqa/coqa-dev-v1.0.json"


def pieces(scale: Scale) -> set[tuple[str, str]]:
    """List the work: the table, and the largest model and its scores once a seed."""
    names = trainings(scale, [rungs(scale)[-1]])
    return {(kind, name) for kind in ("pre-training", "overlap") for name in names} | {("overlap", "table 6")}


def run(laboratory: Laboratory) -> Findings:
    """Measure the table, and score the largest model with and without the overlapping passages."""
    largest = rungs(laboratory.scale)[-1]
    text = text_of(laboratory.scale)
    counted = _table(laboratory, text)
    table, percent = counted["sets"], np.array(counted["passages"])
    parts = {
        "all passages": percent >= 0,
        "without those that overlap": percent == 0,
        f"overlap above {_MUCH:g} %": percent > _MUCH,
    }
    perplexity, accuracy = ({name: Measured() for name in parts} for _ in range(2))
    changes = Measured()
    for seed in laboratory.scale.seeds:
        scored = _answers(laboratory, largest, seed)
        places = np.array([int(number) - 1 for number in scored])
        values, right = np.array(list(scored.values())).T
        for name, members in parts.items():
            if (there := members[places]).any():
                figure, share = (
                    Figure.mean("perplexity", (-values[there]).tolist()),
                    Figure.share("", right[there].tolist()),
                )
                perplexity[name].add(figure.value, figure.stderr)
                accuracy[name].add(share.value, share.stderr)
        by_passage = ItemValues(tuple(scored), change_by_passage(values, percent[places] == 0)[None])
        changes.add(float(by_passage.values.mean()), None, {"passages": by_passage})
    asked, count = len(percent), int((percent > 0).sum())
    absent = files_missing({name: one[0] for name, one in SETS.items()}, laboratory.data)
    rows = []
    for name, one in table.items():
        own, webtext = _paper(name)
        rows.append(Row(name, "% of 8-grams also in the training text", [one["train"]], webtext))
        if one["own"] is not None:
            rows.append(Row(name, "% of 8-grams also in its own training part", [one["own"]], own))
    for measure, measured, scale in (("perplexity", perplexity, 1), ("accuracy", accuracy, 100)):
        for name, values in measured.items():
            if values:
                row = TABLES["gpt2-overlap-text"].rows.get(f"LAMBADA: {measure}, {name}")
                paper = None if row is None else float(row[0]) / scale
                rows.append(
                    Row(f"LAMBADA, {largest}", f"{measure}, {name}", values, paper, int(parts[name].sum()))
                )
    rows += _counts(counted)
    return Findings(
        rows=rows,
        findings=[_own_is_more(table), judge_without(changes, count, asked)],
        setup=describe(laboratory, [largest]),
        notes=[
            "Every 8-gram of lower-cased words of letters and digits in the test text is counted, exactly, where "
            "the paper used a Bloom filter. The held-out books are whole "
            "books of the same collection. enwik8 is only its last five million bytes. Sets of table 6 that are "
            f"not in the data folder: {', '.join(absent) or 'none'}.",
        ],
        figures={"table-6-overlap": lambda figure: _draw(figure, table)},
    )


def _paper(name: str) -> tuple[float | None, float | None]:
    """Return table 6 for a set: % of its 8-grams in its own training part, and in WebText."""
    table = TABLES["gpt2-table-6"]
    if name not in table.columns:
        return None, _LAMBADA_MEAN if name == "LAMBADA" else None
    return table.value("its own training part", name), table.value("WebText", name)


def _table(laboratory: Laboratory, text: str) -> dict[str, Any]:
    """Return {"sets": by name {"train", "own" or None, "grams"}, "passages", "Winograd", "CoQA"}.

    "passages" has the percentage of the 8-grams of each of LAMBADA's passages that are in the training text,
    "Winograd" that of each schema, and "CoQA" those of the documents of each domain.
    """
    train, held_out = laboratory.corpus(text)
    there = {name: one for name, one in SETS.items() if (laboratory.data / one[0]).exists()}
    tests = {name: laboratory.data / one[0] for name, one in there.items()} | {"held-out books": held_out}
    own = {name: laboratory.data / one[1] for name, one in there.items() if one[1] is not None}
    own = {name: path for name, path in own.items() if path.exists()}
    inputs = {"train": train} | {f"test {name}": path for name, path in tests.items()}
    inputs |= {f"own {name}": path for name, path in own.items()}
    counted = {"Winograd": laboratory.data / WINOGRAD, "CoQA": laboratory.data / COQA}
    counted = {name: path for name, path in counted.items() if path.exists()}
    inputs |= counted

    def measure() -> dict[str, Any]:
        schemas = schemata(counted["Winograd"]) if "Winograd" in counted else []
        by_domain = documents(counted.get("CoQA"))
        training = training_grams(train, chain(*map(texts_of, tests.values()), schemas, *by_domain.values()))
        sets = {}
        for name, path in tests.items():
            percent, total = training.percent(texts_of(path))
            own_percent = None
            if name in own:
                own_percent = training_grams(own[name], texts_of(path)).percent(texts_of(path))[0]
            sets[name] = {"own": own_percent, "train": percent, "grams": total}

        def percents(texts: Iterable[str]) -> list[float]:
            return [100 * there / max(1, count) for there, count in training.shares(texts)]

        return {
            "sets": sets,
            "passages": percents(texts_of(tests["LAMBADA"])),
            "Winograd": percents(schemas),
            "CoQA": {name: percents(texts) for name, texts in by_domain.items()},
        }

    config = {"passages": "percent"}
    return laboratory.measured(
        "overlap", "overlap.json", measure, kind="overlap", name="table 6", config=config, inputs=inputs
    )


def schemata(path: Path) -> list[str]:
    """Return the sentences of wsc273.txt with the right candidate in the place of the pronoun."""
    blocks = (block.split("\n") for block in re.split(r"\n\s*\n", read_text(path).strip()))
    return [lines[0].replace("[MASK]", lines[3].strip()) for lines in blocks]


def documents(path: Path | None) -> dict[str, list[str]]:
    """Return the documents of CoQA by domain; none without its file."""
    by_domain: dict[str, list[str]] = {}
    for story in parse_json(read_text(path))["data"] if path else []:
        by_domain.setdefault(story["source"], []).append(story["story"])
    return by_domain


def _counts(counted: dict[str, Any]) -> list[Row]:
    """Return how many schemata and documents overlap."""
    rows = []
    if schemas := counted["Winograd"]:
        measure = "schemata that share 8-grams"
        paper = number(_TEXT.format(f"Winograd: {measure}"))
        rows.append(Row("Winograd", measure, [sum(map(bool, schemas))], paper, note=f"of {len(schemas)}"))
    of_news = number(_TEXT.format("CoQA: documents of news in WebText, %"))
    for domain, percents in counted["CoQA"].items():
        share = 100 * sum(percent > _HALF for percent in percents) / len(percents)
        measure = f"% of documents with over {_HALF} % of their 8-grams in the training text"
        published = of_news if domain == _NEWS else None
        rows.append(Row(f"CoQA, {domain}", measure, [share], published, note=f"{len(percents)} documents"))
    return rows


def change_by_passage(values: Floats, clean: npt.NDArray[np.bool_]) -> Floats:
    """Return jackknife pseudo-values of log(perplexity of the clean passages / perplexity of all).

    values: log-probabilities of the passages, shape (n,); clean: which passages do not overlap. The mean of the
    result is that logarithm; 0 if fewer than two passages are clean.
    """
    n, m = len(values), int(clean.sum())
    if m < 2:
        return np.zeros(n)
    whole = values.mean() - values[clean].mean()
    without_one = (values.sum() - values) / (n - 1) - (values[clean].sum() - clean * values) / (m - clean)
    return n * whole - (n - 1) * without_one


def _answers(laboratory: Laboratory, rung: str, seed: int) -> dict[str, list[float]]:
    """Return the log-probability of each passage's last word, and whether it is predicted, by its number."""
    model, name = laboratory.model(rung, seed), f"{rung}, seed {seed}"
    test = laboratory.data / SETS["LAMBADA"][0]

    def measure() -> dict[str, list[float]]:
        lm = load(model, device=laboratory.device)
        outcome = run_task(all_tasks()[PROTOCOL], {"test": test}, lm, progress=laboratory.progress)
        return {one["id"]: [one["log_probability"], one["accuracy"]] for one in outcome.records}

    return laboratory.measured(
        f"overlap-{rung}-{seed}",
        "answers.json",
        measure,
        kind="overlap",
        name=name,
        config={"protocol": PROTOCOL, "protocols": VERSION},
        inputs={"model": model, "test": test},
    )


def _own_is_more(table: dict[str, dict[str, Any]]) -> Finding:
    pairs = {name: one for name, one in table.items() if one["own"] is not None}
    least = min((one["own"] - one["train"] for one in pairs.values()), default=None)
    here = "; ".join(f"{name} {one['own']:.2f} % and {one['train']:.2f} %" for name, one in pairs.items())
    here = here or "no set with its own training part is available"
    return judge_count(CLAIMS["gpt2_overlap.own"], least, here=here)


def judge_without(changes: Measured, count: int, asked: int) -> Finding:
    """Judge how much the perplexity changes without the `count` passages of `asked` that overlap.

    changes: the mean of `change_by_passage`, one value a seed.
    """
    claim = CLAIMS["gpt2_overlap.without"]
    if not count:
        here = f"none of the {asked:,} scored passages shares an 8-gram with the training text"
        sentence = "No passage can be left out: the training text is too small to contain any part of the set."
        return replace(judge_count(claim, None, here=here), sentence=sentence)
    if asked - count < 2:
        here = f"{count:,} of the {asked:,} scored passages share an 8-gram with the training text"
        sentence = "Too few passages are left to compare with: the training text contains a part of almost all."
        return replace(judge_count(claim, None, here=here), sentence=sentence)
    mean = sum(changes) / len(changes)
    here = f"a factor of {math.exp(mean):.4f}, {count} passages left out"
    return judge(claim, changes.linear(-math.copysign(1.0, mean), 0.02), here=here)  # 0.02 - |change|


def _draw(figure: Any, table: dict[str, dict[str, Any]]) -> None:
    titles = {"own": "in its own training part", "train": "in the model's training text"}
    here = {title: [_estimate(one[key]) for one in table.values()] for key, title in titles.items()}
    paper = {title: [_paper(name)[place] for name in table] for place, title in enumerate(titles.values())}
    grouped_bars(figure, list(table), here, "% of 8-grams (paper: black line)", published=paper)


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
    pieces=pieces,
    run=run,
    lacks=lambda scale, data: files_missing({"LAMBADA": SETS["LAMBADA"][0]}, data),
    paper_tables=("gpt2-table-6", "gpt2-overlap-text"),
)
