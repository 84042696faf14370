"""GPT-2, section 4 and appendix A (figure 5): do samples repeat the training text more than real text does?

The model continues pieces of held-out text, drawing from the 40 most probable tokens. For each continuation and
for the real one, the share of 8-grams that also occur in the training text is measured. The figure shows the
cumulative distribution of both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headwater.corpus import training_grams
from headwater.evaluation import Figure
from headwater_papers.claims import CLAIMS, judge
from headwater_papers.experiment import Experiment, Findings, Row
from headwater_papers.figures import COLOURS
from headwater_papers.gpt2_ladder import (
    PREFIX,
    TOP_K,
    Continued,
    HeldOutContinuation,
    continuations,
    ends,
    label,
    text_of,
)
from headwater_papers.laboratory import Laboratory
from headwater_papers.paper_tables import number
from headwater_papers.scale import Scale, trainings
from headwater_papers.setup import describe
from headwater_papers.statistics import Measured, differences, over_seeds

# The paper's 8 words, and 4: the samples of a small model have almost no run of 8 words of any text.
WORDS = int(number("gpt2-figure-5 | words of a run | value"))
SHORT = WORDS // 2
LENGTHS = (WORDS, SHORT)
NONE = number("gpt2-figure-5 | samples without any, more than, % | value") / 100
WHO = ("written", "real")


def pieces(scale: Scale) -> set[tuple[str, str]]:
    """List the work: the smallest and largest model once a seed: training, continuations, and their overlap."""
    kinds = ("pre-training", "continuations", "overlap")
    return {(kind, name) for name in trainings(scale, ends(scale)) for kind in kinds}


def run(laboratory: Laboratory) -> Findings:
    """Continue held-out text with the smallest and largest model, and measure the overlap."""
    scale = laboratory.scale
    settings = scale.settings("gpt2_memorisation", Continued)
    shown = ends(scale)
    smallest, largest = shown[0], shown[-1]
    train, _ = laboratory.corpus(text_of(scale))
    shares: dict[tuple[str, int, str], list[list[float]]] = {}
    for rung in shown:
        for seed in scale.seeds:
            texts = continuations(laboratory, rung, seed, settings)
            for (words, who), values in _shares(laboratory, rung, seed, texts, train).items():
                shares.setdefault((rung, words, who), []).append(values)
    means = {key: _means(seeds) for key, seeds in shares.items()}
    written = shares[largest, WORDS, "written"]
    none = share_without(written)
    rows = [
        Row(
            label(laboratory, rung),
            f"% of {words}-grams in the training text, samples",
            means[rung, words, "written"],
        )
        for rung in shown
        for words in LENGTHS
    ]
    rows += [
        Row("held-out text itself", f"% of {words}-grams in the training text", means[largest, words, "real"])
        for words in LENGTHS
    ]
    rows.append(
        Row(
            label(laboratory, largest),
            f"share of samples without {WORDS}-grams of the training text",
            none,
            NONE,
            len(written[0]),
        )
    )
    smallest_written, largest_written, real = (
        means[rung, SHORT, who] for rung, who in ((smallest, "written"), (largest, "written"), (largest, "real"))
    )
    return Findings(
        rows=rows,
        findings=[
            judge(
                CLAIMS["gpt2_memorisation.less"],
                differences(real, largest_written),
                here="; ".join(
                    f"{words} words: {over_seeds(means[largest, words, 'written']).value:.3f} % of "
                    f"samples, {over_seeds(means[largest, words, 'real']).value:.3f} % of real text"
                    for words in LENGTHS
                ),
            ),
            judge(
                CLAIMS["gpt2_memorisation.none"],
                none.linear(1, -NONE),
                here=f"{over_seeds(none).text(1, 100)} %",
            ),
            judge(CLAIMS["gpt2_memorisation.larger"], differences(largest_written, smallest_written)),
        ],
        setup=[
            *describe(laboratory, shown),
            (
                "samples",
                f"{settings.count} a seed, {settings.length} tokens after {settings.context} of held-out text, "
                f"evenly spaced in it; drawn from the {TOP_K} most probable tokens",
            ),
        ],
        notes=["The paper's contexts are from its test text; its samples are as long as the real continuation."],
        figures={"figure-5-overlap-of-samples": lambda figure: _draw(figure, shares, shown)},
    )


def share_without(seeds: Sequence[Sequence[float]]) -> Measured:
    """Return the share of texts without overlap: one value a seed, with its standard error over the texts."""
    return Measured.of(Figure.share("", [float(value == 0) for value in values]) for values in seeds)


def _means(seeds: Sequence[Sequence[float]]) -> Measured:
    """Return the mean over texts: one value a seed, with its standard error over the texts."""
    return Measured.of(Figure.mean("", values) for values in seeds)


def _shares(
    laboratory: Laboratory,
    rung: str,
    seed: int,
    texts: Sequence[HeldOutContinuation],
    train: Path,
) -> dict[tuple[int, str], list[float]]:
    """Return, by (words, who), the percentage of each text's n-grams that occur in the corpus `train`."""

    def measure() -> dict[str, list[float]]:
        percents = {}
        for words in LENGTHS:
            training = training_grams(train, (getattr(text, who) for text in texts for who in WHO), words)
            for who in WHO:
                counted = training.shares(getattr(text, who) for text in texts)
                percents[f"{words} {who}"] = [100 * there / count if count else 0.0 for there, count in counted]
        return percents

    read: dict[str, list[float]] = laboratory.measured(
        f"overlap-{rung}-{seed}",
        "overlap.json",
        measure,
        kind="overlap",
        name=f"{rung}, seed {seed}",
        config={"words": list(LENGTHS), "count": len(texts), "length": len(texts[0].written)},
        inputs={"model": laboratory.model(rung, seed), "train": train},
        also={"texts": [list(text) for text in texts]},
    )
    return {(words, who): read[f"{words} {who}"] for words in LENGTHS for who in WHO}


def _draw(
    figure: Any, shares: Mapping[tuple[str, int, str], Sequence[Sequence[float]]], shown: Sequence[str]
) -> None:
    panels = figure.subplots(1, len(LENGTHS), sharey=True)
    for axes, words in zip(panels, LENGTHS, strict=True):
        drawn = {rung: shares[rung, words, "written"] for rung in shown} | {
            "real": shares[shown[-1], words, "real"]
        }
        for place, (name, seeds) in enumerate(drawn.items()):
            values = np.sort(np.concatenate([np.asarray(seed) for seed in seeds]))
            heights = np.arange(1, len(values) + 1) / len(values)
            style = "--" if name == "real" else "-"
            axes.step(values, heights, style, where="post", color=COLOURS[place], label=name)
        axes.set(xlabel=f"% of {words}-grams in the training text", ylim=(0, 1.02))
    panels[0].set_ylabel("share of texts with at most this many")
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
    paper_tables=("gpt2-figure-5",),
)
