"""GPT-1, section 5 (figure 2, right) in Korean: the sentiment of a review by the word after *very*.

The paper appends the token *very* to a sentence of SST-2 and lets the model choose between *positive* and
*negative*. Here the sentences are reviews of films with ratings (1 to 4, and 9 or 10 of 10), the word is 매우,
and the model exists: it is the same for every seed, so intervals are over the reviews alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from headwater.config import Config
from headwater.inference import load
from headwater.reading import read_json
from headwater_papers.claims import CLAIMS, judge
from headwater_papers.experiment import Experiment, Findings, Row, files_missing
from headwater_papers.figures import grouped_bars
from headwater_papers.items import ItemValues
from headwater_papers.laboratory import Laboratory, evenly_placed
from headwater_papers.scale import Scale
from headwater_papers.setup import describe
from headwater_papers.statistics import Measured, differences, over_seeds

_MODEL = "korean"
_FOLDER = "nsmc/labelled"
VERY, NOTHING = " 매우", ""
# Negative and positive, as continuations. The first pair was chosen among seven on 600 reviews of other films.
PAIRS = {
    "최악, 최고 (the worst, the best)": (" 최악", " 최고"),
    "실망, 감동 (disappointment, being moved)": (" 실망", " 감동"),
    "재미없다, 재밌다 (is dull, is fun)": (" 재미없다", " 재밌다"),
    "나쁘다, 좋다 (is bad, is good)": (" 나쁘다", " 좋다"),
    "부정, 긍정 (negative, positive)": (" 부정", " 긍정"),
}
_CHOSEN = next(iter(PAIRS))
# Every pair after 매우, and the chosen one also without it.
_ASKED = [(pair, VERY) for pair in PAIRS] + [(_CHOSEN, NOTHING)]
_LENGTHS = range(5, 141)  # characters, so that every review fits the context
_NEGATIVE, _POSITIVE = range(1, 5), range(9, 11)
CHANCE = 0.5


class KoreanSettings(Config):
    """The number of labelled reviews, half of them positive."""

    reviews: int = Field(default=1_000, ge=4)


def read_reviews(folder: Path, count: int) -> list[tuple[str, int]]:
    """Return `count` reviews with their labels, evenly spaced over the films; half of them positive (1)."""
    found: tuple[list[str], list[str]] = ([], [])
    for path in sorted(folder.glob("*.json")):
        for row in read_json(path):
            text, rating = " ".join(row["review"].split()), int(row["rating"])
            if len(text) in _LENGTHS and rating in (*_NEGATIVE, *_POSITIVE):
                found[rating in _POSITIVE].append(text)
    return [
        (texts[int(place)], label)
        for label, texts in enumerate(found)
        for place in evenly_placed(len(texts), count // 2)
    ]


def pieces(scale: Scale) -> set[tuple[str, str]]:
    """List the work: the reviews, with each pair of words."""
    return {("very", scale.models[_MODEL].model)}


def run(laboratory: Laboratory) -> Findings:
    """Score the reviews with each pair of words."""
    count = laboratory.scale.settings("gpt1_korean", KoreanSettings).reviews
    margins, labels = _margins(laboratory, count)
    seeds = len(laboratory.scale.seeds)
    right = {key: _right(margin > 0, labels, seeds) for key, margin in margins.items()}
    balanced = {key: _right(margin > np.median(margin), labels, seeds) for key, margin in margins.items()}
    said = {key: float((margin > 0).mean()) for key, margin in margins.items()}
    words = {key: f"{key[0]}{'' if key[1] else ', without 매우'}" for key in margins}
    very, plain = right[_CHOSEN, VERY], right[_CHOSEN, NOTHING]
    balanced_gain = differences(balanced[_CHOSEN, VERY], balanced[_CHOSEN, NOTHING])
    return Findings(
        rows=[
            *(
                Row(words[key], "accuracy", values, None, count, f"says positive of {100 * said[key]:.0f} %")
                for key, values in right.items()
            ),
            *(
                Row(words[key], "accuracy, the median as the threshold", values, None, count)
                for key, values in balanced.items()
            ),
        ],
        findings=[
            judge(CLAIMS["gpt1_korean.above"], very.linear(1, -CHANCE), here=f"{over_seeds(very).text(1, 100)} %"),
            judge(CLAIMS["gpt1_korean.very"], differences(very, plain)),
        ],
        setup=[
            *describe(laboratory, [_MODEL]),
            (
                "labelled",
                f"{count:,} reviews of films, half of them positive (9 or 10 of 10), half negative (1 to 4)",
            ),
        ],
        notes=[
            "With the median as the threshold, which makes half of the answers positive, 매우 adds "
            f"{over_seeds(balanced_gain).text(1, 100)} points: it helps mostly by balancing the two words.",
            "The model has read the text of these reviews, without their ratings.",
            "Nothing is trained: the model is the same for every seed, and an interval is over the reviews.",
            "The words 매우, 최고 and 최악 were chosen on 600 reviews of other films.",
        ],
        figures={
            "accuracy-by-words": lambda figure: grouped_bars(
                figure,
                [pair.partition("(")[2].rstrip(")") for pair in PAIRS],  # its font has no Hangul
                {
                    "accuracy": [over_seeds(right[pair, VERY]) for pair in PAIRS],
                    "with the median as the threshold": [over_seeds(balanced[pair, VERY]) for pair in PAIRS],
                },
                "accuracy after “very”; a guess gets 0.5",
            )
        },
    )


def _margins(laboratory: Laboratory, count: int) -> tuple[dict[tuple[str, str], Any], Sequence[int]]:
    """Return by (pair, word before it) how much more probable the positive word is, and the labels."""
    folder, model = laboratory.data / _FOLDER, laboratory.model(_MODEL, laboratory.scale.seeds[0])

    def measure() -> dict[str, Any]:
        reviews = read_reviews(folder, count)
        lm = load(model, precision="fp32", device=laboratory.device)
        margins = []
        for pair, before in _ASKED:
            negative, positive = (
                [score for score, _ in lm.score([(text + before, word) for text, _ in reviews])]
                for word in PAIRS[pair]
            )
            margins.append([more - less for more, less in zip(positive, negative, strict=True)])
        return {"labels": [label for _, label in reviews], "margins": margins}

    read = laboratory.measured(
        "very-in-korean",
        "margins.json",
        measure,
        kind="very",
        name=laboratory.scale.models[_MODEL].model,
        config={"reviews": count, "asked": [[before, *PAIRS[pair]] for pair, before in _ASKED]},
        inputs={"model": model, "reviews": folder},
    )
    return dict(zip(_ASKED, map(np.array, read["margins"]), strict=True)), read["labels"]


def _right(positive: Any, labels: Sequence[int], seeds: int) -> Measured:
    """Return the accuracy with its error over the reviews, once a seed."""
    right = (positive == np.array(labels, bool)).astype(float)
    items = {"reviews": ItemValues(tuple(map(str, range(len(right)))), np.tile(right, (seeds, 1)))}
    error = float(right.std(ddof=1) / np.sqrt(len(right)))
    return Measured([float(right.mean())] * seeds, [error] * seeds, items)


KOREAN = Experiment(
    name="gpt1_korean",
    title="The heuristic *very* in Korean (figure 2, right)",
    paper="GPT-1",
    section="5",
    claim="The more probable word after *very* tells the sentiment of a sentence.",
    models=(_MODEL,),
    any_base=True,
    settings=KoreanSettings,
    pieces=pieces,
    run=run,
    lacks=lambda scale, data: files_missing({"labelled reviews of NSMC": _FOLDER}, data),
    paper_tables=("gpt1-figure-2-right",),
)
