"""GPT-2, section 4 and appendix A (figure 5): do samples repeat the training text more than real text does?

The model continues pieces of held-out text, the 40 likeliest tokens drawn from; of each continuation, and of the
text that really stands there, the share of 8-grams that the training text holds is measured. The figure is the
cumulative distribution of both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headwater.corpus.dedup.overlap import WORDS, TrainingGrams, training_grams
from headwater.evaluate.protocols import mean_figure
from headwater.reproduce.experiment import Experiment, Findings, Row, judge
from headwater.reproduce.figures import COLOURS
from headwater.reproduce.gpt2_ladder import (
    PREFIX,
    TOP_K,
    Continued,
    HeldOutContinuation,
    continuations,
    ends,
    label,
    trainings,
)
from headwater.reproduce.laboratory import Laboratory
from headwater.reproduce.scale import Scale
from headwater.reproduce.setup import describe
from headwater.reproduce.statistics import FAILS, HOLDS, OPEN, Measured, differences, over_seeds
from headwater.storage.files import read_json, write_json
from headwater.storage.stage import Stage

# Beside the paper's 8 words also half of it: a small model's samples hold next to no 8 words of anything.
LENGTHS = (WORDS, WORDS // 2)
WHO = ("written", "real")


def pieces(scale: Scale) -> set[tuple[str, str]]:
    """The ends of the ladder once a seed: trained, their continuations, the overlap of those."""
    kinds = ("pre-training", "continuations", "overlap")
    return {(kind, name) for name in trainings(scale, ends(scale)) for kind in kinds}


def run(laboratory: Laboratory) -> Findings:
    """Continue held-out text with both ends of the ladder, measure what repeats the training text."""
    scale = laboratory.scale
    settings = scale.settings("gpt2_memorisation", Continued)
    shown = ends(scale)
    smallest, largest = shown[0], shown[-1]
    grams: dict[int, TrainingGrams] = {}
    shares: dict[tuple[str, int, str], list[list[float]]] = {}
    for rung in shown:
        for seed in scale.seeds:
            texts = continuations(laboratory, rung, seed, settings)
            for (words, who), values in _shares(laboratory, rung, seed, texts, grams).items():
                shares.setdefault((rung, words, who), []).append(values)
    means = {key: _means(seeds) for key, seeds in shares.items()}
    none = _means([[float(value == 0) for value in seed] for seed in shares[largest, WORDS, "written"]])
    rows = []
    for rung in shown:
        for words in LENGTHS:
            rows.append(
                Row(label(laboratory, rung), f"% of {words}-grams, samples", means[rung, words, "written"])
            )
    for words in LENGTHS:
        rows.append(Row("held-out text itself", f"% of {words}-grams, real", means[largest, words, "real"]))
    rows.append(Row(label(laboratory, largest), "share of samples without one", none, 0.3, settings.count))
    gap = differences(means[largest, LENGTHS[1], "real"], means[largest, LENGTHS[1], "written"])
    return Findings(
        rows=rows,
        findings=[
            judge(
                f"Samples repeat training text less often than real text does (runs of {LENGTHS[1]} words).",
                "samples mostly below 1 %, held-out text 2.6 % (median)",
                gap,
                here="; ".join(
                    f"{words} words: {over_seeds(means[largest, words, 'written']).value:.3f} % of "
                    f"samples, {over_seeds(means[largest, words, 'real']).value:.3f} % of real text"
                    for words in LENGTHS
                ),
                sentences={
                    HOLDS: "The model writes fewer of the training text's runs of words than other authors do.",
                    FAILS: "Samples hold more of the training text's runs of words than other authors' text does.",
                    OPEN: "The two are not told apart.",
                },
            ),
            judge(
                "More than 30 % of samples hold no run of eight words of the training text.",
                "> 30 %",
                none.map(lambda value: value - 0.3),
                here=f"{over_seeds(none).text(1, 100)} %",
                sentences={
                    HOLDS: "What was read once at most is not known by heart.",
                    FAILS: "Fewer than that are free of it.",
                    OPEN: "The share is near 30 %.",
                },
            ),
            judge(
                "The larger model repeats more of the training text than the smaller one (runs of four words).",
                "not in the paper, which shows its largest alone",
                differences(means[largest, LENGTHS[1], "written"], means[smallest, LENGTHS[1], "written"]),
                unit=" points",
                digits=2,
                sentences={
                    HOLDS: "It has learned more of the phrases that novels share.",
                    FAILS: "The smaller one does: it writes the commonest words only, and those stand everywhere.",
                    OPEN: "The two are not told apart.",
                },
            ),
        ],
        setup=[
            *describe(laboratory, shown),
            (
                "samples",
                f"{settings.count} a seed, {settings.length} tokens behind {settings.context} of held-out text, "
                f"spread evenly over it; drawn from the {TOP_K} likeliest",
            ),
        ],
        notes=[
            "The paper's contexts are of its test text, its samples of the same length as the real continuation."
        ],
        figures={"figure-5-overlap-of-samples": lambda figure: _draw(figure, shares, shown)},
    )


def _means(seeds: Sequence[Sequence[float]]) -> Measured:
    """Return the mean over texts, one a seed, with its error over the texts."""
    figures = [mean_figure("", values) for values in seeds]
    return Measured((figure.value for figure in figures), (figure.stderr for figure in figures))


def _shares(
    laboratory: Laboratory,
    rung: str,
    seed: int,
    texts: Sequence[HeldOutContinuation],
    grams: dict[int, TrainingGrams],
) -> dict[tuple[int, str], list[float]]:
    """(words, who) -> % of n-grams in the training text, one value a continuation; `grams` keeps the filters."""
    train, _ = laboratory.corpus(laboratory.scale.models[rung].text)
    model = laboratory.model(rung, seed)
    config = {"words": list(LENGTHS), "count": len(texts), "length": len(texts[0].written)}
    inputs = {"model": model, "train": train}
    out = laboratory.place(f"overlap-{rung}-{seed}", config | {"texts": [list(text) for text in texts]}, inputs)
    stage = Stage(out, kind="overlap", config=config, inputs=inputs)
    with laboratory.piece("overlap", f"{rung}, seed {seed}", out):
        if not stage.is_complete():
            found = {}
            for words in LENGTHS:
                if words not in grams:
                    grams[words] = training_grams(train, words)
                for who in WHO:
                    counted = grams[words].shares(getattr(text, who) for text in texts)
                    found[f"{words} {who}"] = [100 * there / count if count else 0.0 for there, count in counted]
            with stage.write() as work:
                write_json(work / "overlap.json", found)
    read: dict[str, list[float]] = read_json(out / "overlap.json")
    return {(words, who): read[f"{words} {who}"] for words in LENGTHS for who in WHO}


def _draw(
    figure: Any, shares: Mapping[tuple[str, int, str], Sequence[Sequence[float]]], shown: Sequence[str]
) -> None:
    panels = figure.subplots(1, len(LENGTHS), sharey=True)
    for axes, words in zip(panels, LENGTHS, strict=True):
        drawn = {rung: shares[rung, words, "written"] for rung in shown} | {
            "real": shares[shown[-1], words, "real"]
        }
        for number, (name, seeds) in enumerate(drawn.items()):
            values = np.sort(np.concatenate([np.asarray(seed) for seed in seeds]))
            heights = np.arange(1, len(values) + 1) / len(values)
            style = "--" if name == "real" else "-"
            axes.step(values, heights, style, where="post", color=COLOURS[number], label=name)
        axes.set(xlabel=f"% of {words}-grams in the training text", ylim=(0, 1.02))
    panels[0].set_ylabel("share of texts with at most so many")
    panels[-1].legend(fontsize="small")


MEMORISATION = Experiment(
    name="gpt2_memorisation",
    title="Overlap of samples with the training text",
    paper="GPT-2",
    section="4 and appendix A (figure 5)",
    claim="Samples repeat the training text less often than held-out text does.",
    models=(PREFIX,),
    settings=Continued,
    pieces=pieces,
    run=run,
)
