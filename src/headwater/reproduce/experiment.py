"""What an experiment is, and what it finds: rows of numbers with their intervals, and a verdict on each claim.

An experiment is a description and one function, `run`, that asks the laboratory for models and scores. It
writes nothing itself: the laboratory keeps what was made, the page says what came out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.reproduce.statistics import Estimate, Verdict, decide, over_seeds

if TYPE_CHECKING:
    from headwater.config import Config
    from headwater.reproduce.laboratory import Laboratory
    from headwater.reproduce.scale import Scale

# A drawing: it is given an empty matplotlib Figure.
Draw = Callable[[Any], None]


@dataclass(frozen=True)
class Row:
    """One number: what was measured in which setting, one value a seed, and the paper's value where it prints one.

    examples: how many examples each value is a mean over, where it is one. note: where it differs from the paper's
    protocol.
    """

    setting: str
    measure: str
    values: Sequence[float]
    published: float | None = None
    examples: int | None = None
    note: str = ""

    @property
    def estimate(self) -> Estimate:
        """Mean and interval over seeds."""
        return over_seeds(self.values)

    def to_dict(self) -> dict[str, Any]:
        """As in results.json."""
        value, low, high = self.estimate
        plain = {"setting": self.setting, "measure": self.measure, "value": value, "low": low, "high": high}
        return plain | {
            "values": list(self.values),
            "seeds": len(self.values),
            "published": self.published,
            "examples": self.examples,
            "note": self.note,
        }


@dataclass(frozen=True)
class Finding:
    """One claim of the paper, its number there, the number here, and what the rule makes of it.

    sentence: what a reader should take away, in one honest sentence.
    """

    claim: str
    paper: str
    here: str
    verdict: Verdict
    sentence: str
    difference: Estimate

    def to_dict(self) -> dict[str, Any]:
        """As in results.json."""
        plain = asdict(self)
        plain["difference"] = dict(zip(("value", "low", "high"), self.difference, strict=True))
        return plain


def judge(
    claim: str,
    paper: str,
    above_zero: Sequence[float],
    *,
    here: str = "",
    digits: int = 3,
    scale: float = 1.0,
    unit: str = "",
    sentences: Mapping[Verdict, str] | None = None,
    sentence: str = "",
) -> Finding:
    """The finding on a claim that says `above_zero`, one value a seed, is above zero.

    `here` defaults to the difference with its interval; `sentences` gives one for each verdict, or `sentence` one
    for all of them. Both may name {here}.
    """
    verdict, estimate = decide(above_zero)
    difference = f"{estimate.text(digits, scale)}{unit}"
    text = (sentences or {}).get(verdict, sentence)
    return Finding(claim, paper, here or difference, verdict, text.format(here=difference), estimate)


@dataclass(frozen=True)
class Findings:
    """Everything an experiment found. setup: what was done here, as (name, value) lines; figures by file name."""

    rows: Sequence[Row]
    findings: Sequence[Finding]
    setup: Sequence[tuple[str, str]]
    notes: Sequence[str] = ()
    figures: Mapping[str, Draw] = field(default_factory=dict)


@dataclass(frozen=True)
class Experiment:
    """One experiment of a paper. section: where it stands there; claim: what it says, in one sentence.

    needs: what it cannot do without besides training texts, by what it is called, as paths below the data folder
    (any one of several will do); texts: the training texts of the scale that it uses. settings: the class of its
    own table in the scale. pieces: the work that it asks for, so that the time left can be told; work that another
    experiment asks for too has the same name there.
    """

    name: str
    title: str
    paper: str
    section: str
    claim: str
    needs: Mapping[str, Sequence[str]]
    settings: type[Config]
    pieces: Callable[[Scale], set[tuple[str, str]]]
    run: Callable[[Laboratory], Findings]
    texts: Sequence[str] = ()

    def missing(self, scale: Scale, data: Path) -> list[str]:
        """What it needs and `data` does not have, each as `SNLI (finetune/snli/dev.tsv)`."""
        texts = [f"a text {text!r} in the scale" for text in self.texts if text not in scale.texts]
        texts += [
            f"the text {text} ({source})"
            for text in self.texts
            if text in scale.texts
            for source in scale.texts[text].sources
            if not (data / source).exists()
        ]
        return texts + [
            f"{name} ({' or '.join(paths)})"
            for name, paths in self.needs.items()
            if not any((data / path).exists() for path in paths)
        ]
