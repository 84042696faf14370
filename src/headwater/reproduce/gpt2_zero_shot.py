"""GPT-2, sections 3.1 to 3.3 and 4: zero-shot scores over four sizes (table 3), and train against test (figure 4).

The paper trains four sizes on one text and scores them on sets that none was trained on; all scores grow with
size, and so does perplexity on training and test text alike, from which it concludes that all of them underfit.
Here figure 4 has three texts: windows that the run read, windows of the same books that it never came to, and
books that were held out whole. The first two differ by memory alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from headwater.config import Config
from headwater.evaluate.published import published
from headwater.evaluate.results import Results
from headwater.pretrain import PretrainConfig
from headwater.reproduce.experiment import Experiment, Finding, Findings, Row, judge
from headwater.reproduce.figures import bands
from headwater.reproduce.gpt2_ladder import (
    counterpart,
    describe_ladder,
    fewer_seeds,
    full_rungs,
    judge_steps,
    label,
    loss_on,
    mark_others,
    parameters,
    rungs,
    seed_curves,
    seeds_of,
    skipped_because,
    trainings,
    value_of,
    windows_read,
    windows_unread,
)
from headwater.reproduce.laboratory import Laboratory
from headwater.reproduce.scale import Scale
from headwater.reproduce.statistics import FAILS, HOLDS, OPEN, differences
from headwater.tokens.sampler import TokenStream

# Table 3's columns: protocol, metric, short name, and how a score grows, so that more is better.
_Grow = Callable[[float], float]
COLUMNS: Mapping[tuple[str, str], tuple[str, _Grow]] = {
    ("lambada.openai.whole-word", "perplexity"): ("LAMBADA perplexity", lambda value: -math.log(value)),
    ("lambada.openai.whole-word.stop-words", "accuracy"): ("LAMBADA accuracy", lambda value: value),
    ("cbt.common-nouns.detokenized", "accuracy"): ("CBT common nouns", lambda value: value),
    ("cbt.named-entities.detokenized", "accuracy"): ("CBT named entities", lambda value: value),
    ("wikitext-2.detokenized", "perplexity"): ("WikiText-2 perplexity", lambda value: -math.log(value)),
    ("ptb.detokenized", "perplexity"): ("PTB perplexity", lambda value: -math.log(value)),
    ("enwik8.bytes", "bits per byte"): ("enwik8 bits a byte", lambda value: -value),
}
PARTS = ("read", "unread", "held-out")
_TITLES = {"read": "text that it read", "unread": "same books, not read", "held-out": "books held out"}
_TIGHT = 0.05  # nats a token


class Settings(Config):
    """limit: examples of each set; windows: of each part of the text for figure 4."""

    limit: int | None = Field(default=None, ge=1)
    windows: int = Field(default=200, ge=1)


def pieces(scale: Scale) -> set[tuple[str, str]]:
    """Every rung once a seed: trained, scored, and its loss on the three parts."""
    names = trainings(scale, rungs(scale))
    found = {("pre-training", name) for name in names} | {("scores", f"table 3, {name}") for name in names}
    return found | {("perplexity", f"{name}, {part}") for name in names for part in PARTS}


def run(laboratory: Laboratory) -> Findings:
    """Train the ladder, score every rung, measure its loss on the three parts."""
    settings = laboratory.settings("gpt2_zero_shot", Settings)
    scale = laboratory.scale
    ladder = rungs(scale)
    scores: dict[tuple[str, str], dict[str, list[float]]] = {}
    counts: dict[tuple[str, str], int] = {}
    losses: dict[str, dict[str, list[float]]] = {part: {} for part in PARTS}
    bits: dict[str, list[float]] = {}
    left_out: dict[str, str] = {}
    full = full_rungs(scale)
    for rung in ladder:
        for seed in seeds_of(scale, rung):
            results, _ = table_3(laboratory, rung, seed)
            left_out |= skipped_because(laboratory, results)
            for column in COLUMNS:
                found = value_of(results, *column)
                if found is not None:
                    scores.setdefault(column, {}).setdefault(rung, []).append(found[0])
                    counts[column] = found[1]
            for part, figures in _losses(laboratory, rung, seed, settings.windows).items():
                losses[part].setdefault(rung, []).append(figures["loss"])
                if part == "held-out":
                    bits.setdefault(rung, []).append(figures["bits per byte"])
    labels = {rung: label(laboratory, rung) for rung in ladder}
    rows = [
        Row(
            labels[rung],
            COLUMNS[column][0],
            values,
            published(*column).get(counterpart(scale, rung)),
            counts[column],
            note=f"paper: {counterpart(scale, rung)}",
        )
        for column, of in scores.items()
        for rung, values in of.items()
    ]
    rows += [Row(labels[rung], "bits a byte, books held out", values) for rung, values in bits.items()]
    rows += [
        Row(labels[rung], f"perplexity a token, {_TITLES[part]}", [math.exp(value) for value in values])
        for part in PARTS
        for rung, values in losses[part].items()
    ]
    sizes = {rung: parameters(laboratory, rung) for rung in ladder}
    return Findings(
        rows=rows,
        findings=[*_sizes(bits, full, ladder), *_columns(scores, full), *_underfitting(losses, full)],
        setup=[
            *describe_ladder(laboratory, ladder),
            (
                "scores",
                f"the first {settings.limit or 'all'} examples of each set; of running texts, windows of "
                "the model's context, each moved by half of it",
            ),
        ],
        notes=[
            *fewer_seeds(scale),
            "The paper's column stands beside the rung of the same place, for orientation: its smallest model has "
            "124 million parameters and read some ten thousand times more text.",
            "Perplexity of WikiText-2 and PTB is a word of the set, whatever the model's tokens, as in the paper.",
            *(f"{protocol} is left out: {reason}" for protocol, reason in left_out.items()),
        ],
        figures={
            "figure-1-zero-shot-over-size": lambda figure: _draw_scores(figure, scores, sizes, full),
            "figure-4-train-and-test": lambda figure: _draw_parts(figure, losses, sizes, full),
        },
    )


def table_3(laboratory: Laboratory, rung: str, seed: int) -> tuple[Results, Path]:
    """The scores of one model on table 3's sets, and the folder that has every example of them."""
    limit = laboratory.settings("gpt2_zero_shot", Settings).limit
    tasks = list(dict.fromkeys(protocol for protocol, _ in COLUMNS))
    name = f"table 3, {rung}, seed {seed}"
    results = laboratory.evaluate(name, laboratory.model(rung, seed), tasks, limit=limit)
    prefix = f"scores-table-3-{rung}-seed-{seed}-"
    return results, next(path for name, path in laboratory.used.items() if name.startswith(prefix))


def _losses(laboratory: Laboratory, rung: str, seed: int, windows: int) -> dict[str, dict[str, float]]:
    plan = laboratory.scale.models[rung]
    recipe = PretrainConfig.build(plan.recipe, {"seed": seed})
    train, held_out = laboratory.tokens(plan.text)
    model = laboratory.model(rung, seed)
    stream = TokenStream(held_out, "validation", recipe.window)
    evenly = np.unique(np.linspace(0, stream.windows - 1, min(windows, stream.windows)).round().astype(int))
    chosen = {
        "read": (train, "train", windows_read(train, recipe, windows)),
        "unread": (train, "train", windows_unread(train, recipe, windows)),
        "held-out": (held_out, "validation", evenly),
    }
    return {
        part: loss_on(laboratory, f"{rung}, seed {seed}, {part}", model, tokens, where, places.tolist())
        for part, (tokens, where, places) in chosen.items()
    }


def _sizes(bits: Mapping[str, Sequence[float]], full: Sequence[str], ladder: Sequence[str]) -> list[Finding]:
    return [
        judge_steps(
            "Held-out bits a byte fall with size, at every step of the ladder.",
            "figure 4: falls over all four sizes",
            [[-value for value in bits[rung]] for rung in full],
            here=" → ".join(f"{Row('', '', bits[rung]).estimate.value:.3f}" for rung in ladder),
            sentences={
                HOLDS: "Each rung is better than the one below it, also at a few hundred updates.",
                FAILS: "At least one larger model is worse after the same updates: with so few it has not yet "
                "learned what it has room for.",
                OPEN: "Each mean is below the one before, but a step is within the spread of three seeds.",
            },
        )
    ]


def _columns(
    scores: Mapping[tuple[str, str], Mapping[str, Sequence[float]]], ladder: Sequence[str]
) -> list[Finding]:
    found = []
    for column, of in scores.items():
        name, grows = COLUMNS[column]
        best, worst = of[ladder[-1]], of[ladder[0]]
        gains = differences([grows(value) for value in best], [grows(value) for value in worst])
        paper = published(*column)
        values = " → ".join(f"{value:g}" for value in paper.values())
        here = " → ".join(f"{Row('', '', of[rung]).estimate.value:.4g}" for rung in ladder)
        found.append(
            judge(
                f"{name}: the largest model is better than the smallest, with no training for the set.",
                values,
                gains,
                here=here,
                sentences={
                    HOLDS: "As in the paper, size alone helps on text of another kind.",
                    FAILS: "The largest is worse here: what it learned of its own text does not carry over.",
                    OPEN: "The two ends of the ladder are not told apart on this set.",
                },
            )
        )
    return found


def _underfitting(losses: Mapping[str, Mapping[str, Sequence[float]]], full: Sequence[str]) -> list[Finding]:
    gaps = [differences(losses["unread"][rung], losses["read"][rung]) for rung in full]
    mean = [sum(seed) / len(seed) for seed in zip(*gaps, strict=True)]
    each = ", ".join(f"{Row('', '', gap).estimate.value:.3f}" for gap in gaps)
    strange = Row("", "", differences(losses["held-out"][full[-1]], losses["unread"][full[-1]])).estimate
    perplexities = [math.exp(Row("", "", losses["read"][rung]).estimate.value) for rung in full]
    return [
        judge(
            "Training and test perplexity stay close: the models underfit.",
            "section 4: both fall together, all models still underfit",
            [_TIGHT - gap for gap in mean],
            here=f"unread less read text: {Row('', '', mean).estimate.text(3)} nats a token (by size: {each})",
            sentences={
                HOLDS: f"What was read once costs the same as what was not, within {_TIGHT} nats: nothing is "
                f"learned by heart. Books of other authors cost {strange.text(2)} nats more for the largest "
                "model, which is another thing than overfitting.",
                FAILS: f"Text that was read costs more than {_TIGHT} nats less than its neighbours that were not.",
                OPEN: f"The gap is near {_TIGHT} nats, and the seeds do not decide on which side.",
            },
        ),
        judge_steps(
            "Perplexity on the training text falls with size, at every step.",
            "figure 4: falls over all four sizes",
            [[-value for value in losses["read"][rung]] for rung in full],
            here=" → ".join(f"{value:.0f}" for value in perplexities),
            unit=" nats a token",
            sentences={
                HOLDS: "The training text is far from exhausted by the smaller models.",
                FAILS: "At least one larger model fits even its own training text worse after the same updates.",
                OPEN: "Each mean is below the one before, but a step is within the spread of three seeds.",
            },
        ),
    ]


def _draw_parts(
    figure: Any,
    losses: Mapping[str, Mapping[str, Sequence[float]]],
    sizes: Mapping[str, int],
    full: Sequence[str],
) -> None:
    exact = {
        _TITLES[part]: {rung: [math.exp(value) for value in values] for rung, values in losses[part].items()}
        for part in PARTS
    }
    curves = {title: seed_curves(of, sizes, full) for title, of in exact.items()}
    axes = bands(figure, curves, "parameters", "perplexity a token", log_x=True, log_y=True)
    for number, of in enumerate(exact.values()):
        mark_others(axes, of, sizes, full, number)


def _draw_scores(
    figure: Any,
    scores: Mapping[tuple[str, str], Mapping[str, Sequence[float]]],
    sizes: Mapping[str, int],
    full: Sequence[str],
) -> None:
    columns = max(1, math.ceil(len(scores) / 2))
    panels = figure.subplots(2, columns, squeeze=False).flatten()
    for axes, (column, of) in zip(panels, scores.items(), strict=False):
        name = COLUMNS[column][0]
        bands(figure, {name: seed_curves(of, sizes, full)}, "", name, log_x=True, axes=axes, legend=False)
        mark_others(axes, of, sizes, full)
        axes.tick_params(labelsize="x-small")
        axes.yaxis.label.set_size("x-small")
    for axes in panels[len(scores) :]:
        axes.set_visible(False)
    figure.supxlabel("parameters", fontsize="small")


ZERO_SHOT = Experiment(
    name="gpt2_zero_shot",
    title="Zero-shot scores over four sizes",
    paper="GPT-2",
    section="3.1 to 3.3 and 4 (table 3, figures 1 and 4)",
    claim="Scores on sets that no model was trained on grow with size, and every size still underfits its text.",
    needs={
        "LAMBADA": ["eval-zeroshot/lambada/lambada_test_openai.jsonl"],
        "WikiText-2": ["eval-zeroshot/wikitext2/wiki.test.tokens"],
    },
    settings=Settings,
    pieces=pieces,
    run=run,
)
