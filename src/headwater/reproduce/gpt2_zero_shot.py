"""GPT-2, sections 3.1 to 3.3 and 4: zero-shot scores over four sizes (table 3), and train against test (figure 4).

The paper trains four sizes on one text and scores them on sets that none was trained on; all scores grow with
size, and so does perplexity on training and test text alike, from which it concludes that all of them underfit.
Here figure 4 has three texts: windows that the run read, windows of the same books that it never came to, and
books that were held out whole. The first two differ by memory alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from headwater.config import Config
from headwater.evaluate.published import published
from headwater.evaluate.results import Results
from headwater.pretrain.recipe import PretrainConfig
from headwater.pretrain.tokens.sampler import TokenStream
from headwater.reproduce.experiment import Experiment, Finding, Findings, Row, files_missing, judge, judge_steps
from headwater.reproduce.figures import bands
from headwater.reproduce.gpt2_ladder import (
    PREFIX,
    counterpart,
    curve_over_sizes,
    label,
    panels_over_sizes,
    reference_lines,
    rungs,
    trainings,
    windows_read,
    windows_unread,
)
from headwater.reproduce.laboratory import Laboratory, evenly_placed
from headwater.reproduce.scale import Scale
from headwater.reproduce.scores import Column, ScoreTable
from headwater.reproduce.setup import describe, parameters
from headwater.reproduce.statistics import FAILS, HOLDS, OPEN, Measured, differences, mean_of_sets, over_seeds

# Table 3's columns: protocol, metric, short name.
COLUMNS: Mapping[Column, str] = {
    ("lambada.openai.whole-word", "perplexity"): "LAMBADA perplexity",
    ("lambada.openai.whole-word.stop-words", "accuracy"): "LAMBADA accuracy",
    ("cbt.common-nouns.detokenized", "accuracy"): "CBT common nouns",
    ("cbt.named-entities.detokenized", "accuracy"): "CBT named entities",
    ("wikitext-2.detokenized", "perplexity"): "WikiText-2 perplexity",
    ("ptb.detokenized", "perplexity"): "PTB perplexity",
    ("enwik8.bytes", "bits per byte"): "enwik8 bits a byte",
    ("text8.characters", "bits per character"): "text8 bits a character",
    ("wikitext-103.detokenized", "perplexity"): "WikiText-103 perplexity",
    ("1bw.detokenized", "perplexity"): "1BW perplexity",
}
NEEDED = {
    "LAMBADA": "eval-zeroshot/lambada/lambada_test_openai.jsonl",
    "WikiText-2": "eval-zeroshot/wikitext2/wiki.test.tokens",
}
PARTS = ("read", "unread", "held-out")
_TITLES = {"read": "text that it read", "unread": "same books, not read", "held-out": "books held out"}
_TIGHT = 0.05  # nats a token


class ZeroShotSettings(Config):
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
    scale = laboratory.scale
    settings = scale.settings("gpt2_zero_shot", ZeroShotSettings)
    ladder = rungs(scale)
    scores = ScoreTable(COLUMNS)
    losses: dict[str, dict[str, Measured]] = {part: {} for part in PARTS}
    bits: dict[str, Measured] = {}
    for rung in ladder:
        for seed in scale.seeds:
            scores.add(laboratory, rung, *table_3(laboratory, rung, seed))
            for part, figures in _losses(laboratory, rung, seed, settings.windows).items():
                losses[part].setdefault(rung, Measured()).add(figures["loss"], figures["loss error"])
                if part == "held-out":
                    rate = figures["bits per byte"] / figures["loss"]
                    bits.setdefault(rung, Measured()).add(figures["bits per byte"], figures["loss error"] * rate)
    labels = {rung: label(laboratory, rung) for rung in ladder}
    rows = [
        Row(
            labels[rung],
            COLUMNS[column],
            values,
            published(*column).get(counterpart(scale, rung)),
            scores.counts[column],
            note=f"paper: {counterpart(scale, rung)}",
        )
        for column, of in scores.values.items()
        for rung, values in of.items()
    ]
    rows += [Row(labels[rung], "bits a byte, books held out", values) for rung, values in bits.items()]
    rows += [
        Row(labels[rung], f"perplexity a token, {_TITLES[part]}", values.map(math.exp))
        for part in PARTS
        for rung, values in losses[part].items()
    ]
    sizes = {rung: parameters(laboratory, rung) for rung in ladder}
    return Findings(
        rows=rows,
        findings=[_sizes(bits), *_columns(scores), *_underfitting(losses, ladder)],
        setup=[
            *describe(laboratory, ladder),
            (
                "scores",
                f"the first {settings.limit or 'all'} examples of each set; of running texts, windows of "
                "the model's context, each moved by half of it",
            ),
        ],
        notes=[
            "The paper's column stands beside the rung of the same place, for orientation: its smallest model has "
            "124 million parameters and read some ten thousand times more text.",
            "Perplexity of WikiText-2 and PTB is a word of the set, whatever the model's tokens, as in the paper.",
            *scores.notes(),
        ],
        figures={
            "figure-1-zero-shot-over-size": lambda figure: panels_over_sizes(
                figure,
                {COLUMNS[column]: of for column, of in scores.values.items()},
                sizes,
                "",
                rows=2,
                references=reference_lines({"CBT common nouns": 100, "CBT named entities": 100}),
            ),
            "figure-4-train-and-test": lambda figure: _draw_parts(figure, losses, sizes),
        },
    )


def table_3(laboratory: Laboratory, rung: str, seed: int) -> tuple[Results, Path]:
    """The scores of one model on table 3's sets, and the folder that has every example of them."""
    limit = laboratory.scale.settings("gpt2_zero_shot", ZeroShotSettings).limit
    tasks = list(dict.fromkeys(protocol for protocol, _ in COLUMNS))
    name = f"table 3, {rung}, seed {seed}"
    return laboratory.evaluate(name, laboratory.model(rung, seed), tasks, limit=limit)


def _losses(laboratory: Laboratory, rung: str, seed: int, windows: int) -> dict[str, dict[str, float]]:
    plan = laboratory.scale.models[rung]
    recipe = PretrainConfig.build(plan.recipe, {"seed": seed})
    train, held_out = laboratory.tokens(plan.text)
    model = laboratory.model(rung, seed)
    stream = TokenStream(held_out, "validation", recipe.window)
    chosen = {
        "read": (train, "train", windows_read(train, recipe, windows)),
        "unread": (train, "train", windows_unread(train, recipe, windows)),
        "held-out": (held_out, "validation", evenly_placed(stream.windows, windows)),
    }
    return {
        part: laboratory.perplexity(f"{rung}, seed {seed}, {part}", model, tokens, where, places.tolist())
        for part, (tokens, where, places) in chosen.items()
    }


def _sizes(bits: Mapping[str, Measured]) -> Finding:
    return judge_steps(
        "Held-out bits a byte fall with size, at every step of the ladder.",
        "figure 4: falls over all four sizes",
        [values.map(lambda value: -value) for values in bits.values()],
        here=" → ".join(f"{over_seeds(values).value:.3f}" for values in bits.values()),
        sentences={
            HOLDS: "Each rung is better than the one below it, also at a few hundred updates.",
            FAILS: "At least one larger model is worse after the same updates: with so few it has not yet "
            "learned what it has room for.",
            OPEN: "At least one step is within the spread over seeds.",
        },
    )


def _columns(scores: ScoreTable) -> list[Finding]:
    found = []
    for column, of in scores.values.items():
        by_size, growing = list(of.values()), list(scores.better[column].values())
        paper = published(*column)
        values = " → ".join(f"{value:g}" for value in paper.values())
        here = " → ".join(f"{over_seeds(values).value:.4g}" for values in by_size)
        found.append(
            judge(
                f"{COLUMNS[column]}: the largest model is better than the smallest, with no training for the set.",
                values,
                differences(growing[-1], growing[0]),
                here=here,
                sentences={
                    HOLDS: "As in the paper, size alone helps on text of another kind.",
                    FAILS: "The largest is worse here: what it learned of its own text does not carry over.",
                    OPEN: "The two ends of the ladder are not told apart on this set.",
                },
            )
        )
    return found


def _underfitting(losses: Mapping[str, Mapping[str, Measured]], ladder: Sequence[str]) -> list[Finding]:
    gaps = [differences(losses["unread"][rung], losses["read"][rung]) for rung in ladder]
    mean = mean_of_sets(gaps)
    each = ", ".join(f"{over_seeds(gap).value:.3f}" for gap in gaps)
    strange = over_seeds(differences(losses["held-out"][ladder[-1]], losses["unread"][ladder[-1]]))
    perplexities = [math.exp(over_seeds(losses["read"][rung]).value) for rung in ladder]
    return [
        judge(
            "Training and test perplexity stay close: the models underfit.",
            "section 4: both fall together, all models still underfit",
            mean.map(lambda gap: _TIGHT - gap),
            here=f"unread less read text: {over_seeds(mean).text(3)} nats a token (by size: {each})",
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
            [losses["read"][rung].map(lambda value: -value) for rung in ladder],
            here=" → ".join(f"{value:.0f}" for value in perplexities),
            unit=" nats a token",
            sentences={
                HOLDS: "The training text is far from exhausted by the smaller models.",
                FAILS: "At least one larger model fits even its own training text worse after the same updates.",
                OPEN: "At least one step is within the spread over seeds.",
            },
        ),
    ]


def _draw_parts(figure: Any, losses: Mapping[str, Mapping[str, Measured]], sizes: Mapping[str, int]) -> None:
    curves, errors = {}, {}
    for part in PARTS:
        exact = {rung: values.map(math.exp) for rung, values in losses[part].items()}
        curves[_TITLES[part]] = curve_over_sizes(exact, sizes)
        errors[_TITLES[part]] = [values.item_error for values in exact.values()]
    bands(figure, curves, "parameters", "perplexity a token", log_x=True, log_y=True, item_errors=errors)


ZERO_SHOT = Experiment(
    name="gpt2_zero_shot",
    title="Zero-shot scores over four sizes",
    paper="GPT-2",
    section="3.1 to 3.3 and 4 (table 3, figures 1 and 4)",
    claim="Scores on sets that no model was trained on grow with size, and every size still underfits its text.",
    models=(PREFIX,),
    settings=ZeroShotSettings,
    pieces=pieces,
    run=run,
    lacks=lambda scale, data: files_missing(NEEDED, data),
    beside=("gpt2-table-3", "sizes", "gpt2-figure-references"),
)
