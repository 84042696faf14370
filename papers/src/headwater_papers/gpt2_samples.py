"""GPT-2, appendix A (tables 7 to 11): samples of the smallest and the largest model, on evenly spaced prompts.

The paper prints samples, and so does the page. In addition, two shares are measured: the words of a sample that
are words of the training text, and how much of a sample repeats itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from headwater.corpus import split_words, texts_of
from headwater.evaluation import Figure
from headwater_papers.claims import CLAIMS, judge
from headwater_papers.experiment import Experiment, Findings, Row
from headwater_papers.figures import grouped_bars
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
from headwater_papers.laboratory import Laboratory, evenly_placed
from headwater_papers.scale import Scale, trainings
from headwater_papers.setup import describe
from headwater_papers.statistics import Measured, differences, over_seeds, percent

_KNOWN_FROM = 3  # a string is a word if the training text has it this often; rarer ones may be scanning errors
_RUN = 3
_MEASURES = {
    "words": "share of words that are in the training text",
    "repeats": f"share of runs of {_RUN} words that are repeated",
}


class SampleSettings(Continued):
    """shown: the number of samples on the page.

    With the count, context and length of `gpt2_memorisation`, the continuations are the same, and made once.
    """

    shown: int = Field(default=4, ge=1)


def pieces(scale: Scale) -> set[tuple[str, str]]:
    """List the work: the smallest and largest model once a seed: training and continuations."""
    names = trainings(scale, ends(scale))
    return {(kind, name) for name in names for kind in ("pre-training", "continuations")}


def run(laboratory: Laboratory) -> Findings:
    """Continue the same held-out pieces with the smallest and the largest model."""
    scale = laboratory.scale
    settings = scale.settings("gpt2_samples", SampleSettings)
    shown = ends(scale)
    smallest, largest = shown[0], shown[-1]
    texts = {rung: [continuations(laboratory, rung, seed, settings) for seed in scale.seeds] for rung in shown}
    known = _known_words(laboratory.corpus(text_of(scale))[0])
    written = {rung: [[one.written for one in seed] for seed in seeds] for rung, seeds in texts.items()}
    written["held-out text itself"] = [[one.real for one in texts[largest][0]]]
    measured = {
        name: {
            "words": Measured.of(_share_known(seed, known) for seed in seeds),
            "repeats": Measured.of(_share_repeated(seed) for seed in seeds),
        }
        for name, seeds in written.items()
    }
    titles = {rung: label(laboratory, rung) if rung in texts else rung for rung in measured}
    return Findings(
        rows=[
            Row(titles[name], title, figures[measure])
            for measure, title in _MEASURES.items()
            for name, figures in measured.items()
        ],
        findings=[
            judge(
                CLAIMS["gpt2_samples.words"],
                differences(measured[largest]["words"], measured[smallest]["words"]),
                here=" → ".join(percent(measured[rung]["words"]) for rung in texts) + " of the words",
            ),
            judge(
                CLAIMS["gpt2_samples.repeats"],
                differences(measured[smallest]["repeats"], measured[largest]["repeats"]),
                here=" → ".join(percent(measured[rung]["repeats"]) for rung in texts)
                + f" of runs of {_RUN} words",
            ),
        ],
        setup=[
            *describe(laboratory, shown),
            (
                "samples",
                f"{settings.length} tokens after {settings.context}, drawn from the {TOP_K} most probable tokens, "
                "evenly spaced in the held-out books; those shown are evenly spaced among them, not picked",
            ),
        ],
        notes=_shown(texts[smallest][0], texts[largest][0], titles[smallest], titles[largest], settings.shown),
        figures={"appendix-a-words": lambda figure: _draw(figure, measured)},
    )


def _known_words(corpus: Path) -> frozenset[Any]:
    """Return the words that occur at least `_KNOWN_FROM` times in the training text."""
    counts: Counter[Any] = Counter()
    for text in texts_of(corpus):
        counts.update(split_words(text))
    return frozenset(word for word, count in counts.items() if count >= _KNOWN_FROM)


def _share_known(texts: Sequence[str], known: frozenset[Any]) -> Figure:
    """Return the share of known words, without the last of each text, which may be cut."""
    words = [split_words(text)[:-1] for text in texts]
    there = [float(sum(word in known for word in text)) for text in words]
    counts = [float(len(text)) for text in words]
    return Figure.ratio("", there, counts) if sum(counts) else Figure("", 0.0, None, len(texts))


def _share_repeated(texts: Sequence[str]) -> Figure:
    """Return the share of runs of words that occurred earlier in the same text."""
    shares = []
    for text in texts:
        runs = list(_runs(split_words(text)))
        shares.append(1 - len(set(runs)) / len(runs) if runs else 0.0)
    return Figure.mean("", shares)


def _runs(words: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    return zip(*(words[offset:] for offset in range(_RUN)), strict=False)


def _shown(
    smaller: Sequence[HeldOutContinuation],
    larger: Sequence[HeldOutContinuation],
    small: str,
    large: str,
    count: int,
) -> list[str]:
    """Return evenly spaced samples of both models as lines of Markdown."""
    places = evenly_placed(len(smaller), count)
    return [
        f"Sample {place + 1} of {len(smaller)}. Context: *{as_line(smaller[place].context)}* … "
        f"**{small}:** {as_line(smaller[place].written)} … **{large}:** {as_line(larger[place].written)} … "
        f"**The book:** {as_line(smaller[place].real)}"
        for place in map(int, places)
    ]


def as_line(text: str) -> str:
    """Return a text on one line, with Markdown's marks escaped."""
    return "".join(f"\\{letter}" if letter in "*_`#[]<>|\\" else letter for letter in " ".join(text.split()))


def _draw(figure: Any, measured: dict[str, dict[str, Measured]]) -> None:
    names = {"words": "words in the training text", "repeats": f"repeated runs of {_RUN} words"}
    bars = {title: [over_seeds(of[key]) for of in measured.values()] for key, title in names.items()}
    grouped_bars(figure, list(measured), bars, "share")


SAMPLES = Experiment(
    name="gpt2_samples",
    title="Samples side by side",
    paper="GPT-2",
    section="8 (appendix A, tables 7 to 11)",
    claim="Completions of the largest model read better than those of the smallest.",
    models=(PREFIX,),
    settings=SampleSettings,
    pieces=pieces,
    run=run,
    paper_tables=("gpt2-appendix",),
)
