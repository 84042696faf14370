"""What an experiment is, and what it finds: rows of numbers with their intervals, and a verdict on each claim.

An experiment is a description and one function, `run`, that asks the laboratory for models and scores. It
writes nothing itself: the laboratory keeps what was made, the page says what came out.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.reproduce.statistics import (
    FAILS,
    HOLDS,
    OPEN,
    Estimate,
    Measured,
    Verdict,
    decide,
    differences,
    holm,
    over_seeds,
    p_value,
)

if TYPE_CHECKING:
    from headwater.config import Config
    from headwater.reproduce.laboratory import Laboratory
    from headwater.reproduce.scale import Scale

# A drawing: it is given an empty matplotlib Figure.
Draw = Callable[[Any], None]


@dataclass(frozen=True)
class Row:
    """One number: what was measured in which setting, one value a seed, and the paper's value where it prints one.

    examples: how many examples each value is a mean over, where it is one; the values then carry the error over
    them. note: where it differs from the paper's protocol.
    """

    setting: str
    measure: str
    values: Sequence[float]
    published: float | None = None
    examples: int | None = None
    note: str = ""

    def __post_init__(self) -> None:
        if self.examples is not None and not isinstance(self.values, Measured):
            raise TypeError(f"{self.setting}, {self.measure}: an interval over examples needs their error")

    @property
    def estimate(self) -> Estimate:
        """Mean, and interval over seeds and items."""
        return over_seeds(self.values)

    def to_dict(self) -> dict[str, Any]:
        """As in results.json."""
        value, low, high = self.estimate
        plain = {"setting": self.setting, "measure": self.measure, "value": value, "low": low, "high": high}
        return plain | {
            "values": list(self.values),
            "item_error": self.values.item_error if isinstance(self.values, Measured) else None,
            "seeds": len(self.values),
            "published": self.published,
            "examples": self.examples,
            "note": self.note,
        }


@dataclass(frozen=True)
class Finding:
    """One claim of the paper, its number there, the number here, and its verdict by the rule.

    sentence: what a reader should take away, in one honest sentence. p: two-sided p of "there is no difference",
    None where the claim was not tested by an interval; `noise` is what a plan needs; `undecided` is the sentence
    for the verdict that the correction over the family of claims may give.
    """

    claim: str
    paper: str
    here: str
    verdict: Verdict
    sentence: str
    difference: Estimate
    p: float | None = None
    noise: Mapping[str, float] | None = None
    undecided: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As in results.json."""
        plain = asdict(self)
        del plain["undecided"]
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
    sentences: Mapping[Verdict, str],
) -> Finding:
    """The finding on a claim that says `above_zero`, one value a seed, is above zero.

    `here` defaults to the difference with its interval; `sentences` gives one for each verdict, in which {here} is
    that difference.
    """
    verdict, estimate = decide(above_zero)
    difference = f"{estimate.text(digits, scale)}{unit}"
    return Finding(
        claim,
        paper,
        here or difference,
        verdict,
        sentences[verdict].format(here=difference),
        estimate,
        p=p_value(above_zero),
        noise=noise_of(above_zero),
        undecided=sentences[OPEN].format(here=difference),
    )


def noise_of(values: Sequence[float]) -> dict[str, float]:
    """Return the noise of a difference: the deviation over seeds, the error over items, how many of both."""
    measured = values if isinstance(values, Measured) else Measured(values)
    sets = (measured.items or {}).values()
    return {
        "seed_deviation": statistics.stdev(values) if len(values) > 1 else 0.0,
        "seeds": len(values),
        "item_error": measured.item_error,
        "items": sum(len(one.ids) for one in sets),
    }


def correct_family(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings of one family, those that Holm's method does not keep as not decided.

    A claim that was not tested by an interval has no p. It keeps its verdict.
    """
    kept = holm([finding.p for finding in findings])
    return [
        finding
        if keep or finding.p is None or finding.verdict == OPEN
        else replace(finding, verdict=OPEN, sentence=f"{finding.undecided} {_CORRECTED}".strip())
        for finding, keep in zip(findings, kept, strict=True)
    ]


_CORRECTED = (
    "The interval of this claim alone excludes zero; corrected over the claims of the experiment, it does not."
)


def p_of_all(verdict: Verdict, parts: Sequence[Sequence[float]]) -> float | None:
    """Return p of a claim that holds where every part holds and does not hold where any part does not.

    That all hold has the largest p of the parts (an intersection-union test). That any fails has the smallest p
    among the parts below zero times the number of parts (Bonferroni).
    """
    each = [(sum(values), p_value(values)) for values in parts]
    if verdict == FAILS:
        below = [p for total, p in each if total < 0 and p is not None]
        return min(1.0, min(below) * len(parts)) if below else None
    known = [p for _, p in each if p is not None]
    return max(known) if known and len(known) == len(parts) else None


def judge_steps(
    claim: str,
    paper: str,
    levels: Sequence[Sequence[float]],
    *,
    here: str = "",
    digits: int = 3,
    scale: float = 1.0,
    unit: str = "",
    sentences: Mapping[Verdict, str],
) -> Finding:
    """The finding on a claim that every level is above the one before; `levels` has one list of seeds each.

    It holds where every step by itself does, does not hold where any step by itself does not, and is not decided
    where there is no step. The difference, and {here} in the sentences, is the step that is least sure.
    """
    changes = [differences(after, before) for before, after in pairwise(levels)]
    verdicts = {decide(change)[0] for change in changes} or {OPEN}
    verdict = FAILS if FAILS in verdicts else OPEN if OPEN in verdicts else HOLDS
    least = least_sure(changes)
    lowest = over_seeds(least) if least is not None else Estimate(0.0, None, None)
    difference = f"{lowest.text(digits, scale)}{unit}"
    told = "; ".join(filter(None, (here, f"least sure step {difference}")))
    return Finding(
        claim,
        paper,
        told,
        verdict,
        sentences[verdict].format(here=difference),
        lowest,
        p=p_of_all(verdict, changes),
        noise=None if least is None else noise_of(least),
        undecided=sentences[OPEN].format(here=difference),
    )


def least_sure(parts: Sequence[Measured]) -> Measured | None:
    """Return the part of a claim whose interval begins lowest."""

    def start(part: Measured) -> float:
        value, low, _ = over_seeds(part)
        return value if low is None else low

    return min(parts, key=start, default=None)


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

    models: the models of the scale that it trains, by name or by the beginning of several (`gpt2-`); their texts
    must be there. lacks: what else it cannot do without and the data folder does not have, each as
    `SNLI (finetune/snli)`. settings: the class of its own table in the scale. pieces: the work that it asks for,
    so that the time left can be told; work that another experiment asks for too has the same name there. beside:
    the papers' tables that its page shows, by their names in `published`.
    """

    name: str
    title: str
    paper: str
    section: str
    claim: str
    models: Sequence[str]
    settings: type[Config]
    pieces: Callable[[Scale], set[tuple[str, str]]]
    run: Callable[[Laboratory], Findings]
    lacks: Callable[[Scale, Path], list[str]] = lambda scale, data: []
    beside: Sequence[str] = ()

    def missing(self, scale: Scale, data: Path) -> list[str]:
        """What it needs and the scale or `data` does not have: its models and their texts first, then the rest."""
        named = {asked: [name for name in scale.models if _is_named(asked, name)] for asked in self.models}
        missing = [f"a model {asked!r} in the scale" for asked, found in named.items() if not found]
        texts = dict.fromkeys(scale.models[name].text for found in named.values() for name in found)
        missing += [f"a text {text!r} in the scale" for text in texts if text not in scale.texts]
        missing += [
            f"the text {text} ({source})"
            for text in texts
            if text in scale.texts
            for source in scale.texts[text].sources
            if not (data / source).exists()
        ]
        return missing or self.lacks(scale, data)


def _is_named(asked: str, name: str) -> bool:
    return name.startswith(asked) if asked.endswith("-") else name == asked


def files_missing(files: Mapping[str, str], data: Path) -> list[str]:
    """Of files by what they are called, those that are not below `data`, each as `WSC273 (wsc/wsc273.txt)`."""
    return [f"{name} ({path})" for name, path in files.items() if not (data / path).exists()]
