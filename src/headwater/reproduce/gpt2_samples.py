"""GPT-2, appendix A (tables 7 to 11): the smallest and the largest model side by side, on prompts nobody picked.

The paper shows samples to be read; here they stand on the page as well. What can be counted is counted: how many
of the words written are words of the training text, and how much of a sample repeats itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from headwater.corpus.dedup.overlap import split_words, texts_of
from headwater.evaluate.protocols import Figure, mean_figure, ratio_error
from headwater.reproduce.experiment import Experiment, Findings, Row, judge
from headwater.reproduce.figures import grouped_bars
from headwater.reproduce.gpt2_ladder import (
    PREFIX,
    TOP_K,
    Continued,
    HeldOutContinuation,
    continuations,
    ends,
    label,
    text_of,
    trainings,
)
from headwater.reproduce.laboratory import Laboratory, evenly_placed
from headwater.reproduce.scale import Scale
from headwater.reproduce.setup import describe
from headwater.reproduce.statistics import FAILS, HOLDS, OPEN, Measured, differences, over_seeds, percent

_KNOWN_FROM = 3  # a word counts as one where the training text has it so often: fewer are slips of the scanner
_RUN = 3


class SampleSettings(Continued):
    """The texts are those of `gpt2_memorisation` where the numbers are equal; shown: how many are on the page."""

    shown: int = Field(default=4, ge=1)


def pieces(scale: Scale) -> set[tuple[str, str]]:
    """The ends of the ladder once a seed: trained, and their continuations."""
    names = trainings(scale, ends(scale))
    return {(kind, name) for name in names for kind in ("pre-training", "continuations")}


def run(laboratory: Laboratory) -> Findings:
    """Continue the same held-out pieces with both ends of the ladder."""
    scale = laboratory.scale
    settings = scale.settings("gpt2_samples", SampleSettings)
    shown = ends(scale)
    smallest, largest = shown[0], shown[-1]
    texts = {rung: [continuations(laboratory, rung, seed, settings) for seed in scale.seeds] for rung in shown}
    known = _known_words(laboratory.corpus(text_of(scale))[0])
    measured: dict[str, dict[str, Measured]] = {}
    for rung, seeds in texts.items():
        measured[rung] = {
            "words": _over_seeds(_share_known([one.written for one in seed], known) for seed in seeds),
            "repeats": _over_seeds(_share_repeated([one.written for one in seed]) for seed in seeds),
        }
    real = [one.real for one in texts[largest][0]]
    measured["held-out text itself"] = {
        "words": _over_seeds([_share_known(real, known)]),
        "repeats": _over_seeds([_share_repeated(real)]),
    }
    titles = {rung: label(laboratory, rung) if rung in texts else rung for rung in measured}
    rows = [Row(titles[name], "words that are words", figures["words"]) for name, figures in measured.items()]
    rows += [
        Row(titles[name], f"runs of {_RUN} words that came before", figures["repeats"])
        for name, figures in measured.items()
    ]
    return Findings(
        rows=rows,
        findings=[
            judge(
                "The largest model writes words where the smallest writes strings that are none.",
                "tables 7 to 11: to be read",
                differences(measured[largest]["words"], measured[smallest]["words"]),
                here=" → ".join(percent(measured[rung]["words"]) for rung in texts) + " of the words",
                sentences={
                    HOLDS: "Spelling comes with size; sense, at this size, does not: read the samples below.",
                    FAILS: "The smallest writes more words: it keeps to the shortest and commonest.",
                    OPEN: "Both write as many words.",
                },
            ),
            judge(
                "The largest model repeats itself less.",
                "not measured",
                differences(measured[smallest]["repeats"], measured[largest]["repeats"]),
                here=" → ".join(percent(measured[rung]["repeats"]) for rung in texts)
                + f" of runs of {_RUN} words",
                sentences={
                    HOLDS: "It has more to say.",
                    FAILS: "It repeats itself more: it has learned phrases, and comes back to them.",
                    OPEN: "No difference shows.",
                },
            ),
        ],
        setup=[
            *describe(laboratory, shown),
            (
                "samples",
                f"{settings.length} tokens behind {settings.context}, drawn from the {TOP_K} likeliest; they "
                "lie evenly over the held-out books, and those shown are evenly among them: none is picked",
            ),
        ],
        notes=_shown(texts[smallest][0], texts[largest][0], titles[smallest], titles[largest], settings.shown),
        figures={"appendix-a-words": lambda figure: _draw(figure, measured)},
    )


def _known_words(corpus: Path) -> frozenset[Any]:
    """The words that the training text has at least `_KNOWN_FROM` times."""
    counts: Counter[Any] = Counter()
    for text in texts_of(corpus):
        counts.update(split_words(text))
    return frozenset(word for word, count in counts.items() if count >= _KNOWN_FROM)


def _over_seeds(figures: Iterable[Figure]) -> Measured:
    found = list(figures)
    return Measured((figure.value for figure in found), (figure.stderr for figure in found))


def _share_known(texts: Sequence[str], known: frozenset[Any]) -> Figure:
    """Return the share of words that are known; the last of each text may be cut and does not count."""
    words = [split_words(text)[:-1] for text in texts]
    there, counts = (
        [float(sum(word in known for word in text)) for text in words],
        [float(len(text)) for text in words],
    )
    return Figure(
        "", sum(there) / max(1.0, sum(counts)), ratio_error(there, counts) if sum(counts) else None, len(texts)
    )


def _share_repeated(texts: Sequence[str]) -> Figure:
    """Return the share of runs of words that came before in the same text."""
    shares = []
    for text in texts:
        runs = list(_runs(split_words(text)))
        shares.append(1 - len(set(runs)) / len(runs) if runs else 0.0)
    return mean_figure("", shares)


def _runs(words: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    return zip(*(words[offset:] for offset in range(_RUN)), strict=False)


def _shown(
    smaller: Sequence[HeldOutContinuation],
    larger: Sequence[HeldOutContinuation],
    small: str,
    large: str,
    count: int,
) -> list[str]:
    """Samples to be read, side by side, evenly among all."""
    places = evenly_placed(len(smaller), count)
    return [
        f"Sample {place + 1} of {len(smaller)}. Context: *{_line(smaller[place].context)}* … "
        f"**{small}:** {_line(smaller[place].written)} … **{large}:** {_line(larger[place].written)} … "
        f"**The book:** {_line(smaller[place].real)}"
        for place in map(int, places)
    ]


def _line(text: str) -> str:
    """A text on one line of Markdown, with nothing in it that Markdown takes for a mark."""
    return "".join(f"\\{letter}" if letter in "*_`#[]<>|\\" else letter for letter in " ".join(text.split()))


def _draw(figure: Any, measured: dict[str, dict[str, Measured]]) -> None:
    names = {"words": "words that are words", "repeats": f"repeated runs of {_RUN}"}
    bars = {title: [over_seeds(of[key]) for of in measured.values()] for key, title in names.items()}
    grouped_bars(figure, list(measured), bars, "share")


SAMPLES = Experiment(
    name="gpt2_samples",
    title="Samples side by side",
    paper="GPT-2",
    section="appendix A (tables 7 to 11)",
    claim="Completions of the largest model read better than those of the smallest.",
    models=(PREFIX,),
    settings=SampleSettings,
    pieces=pieces,
    run=run,
)
