"""The claims of the papers, read from `claims.toml`, and the verdict on each by the rule of `statistics`."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from headwater.config import Config, read_toml
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

_CORRECTED = "By itself its interval excludes zero; corrected over the claims of the experiment, it does not."


class Shown(Config):
    """How a difference is printed."""

    scale: float = 1.0
    digits: int = 3
    unit: str = ""


class PaperClaim(Config):
    """One claim, what the paper has for it, and a sentence for each verdict; see `claims.toml`."""

    claim: str
    paper: str
    holds: str
    fails: str
    undecided: str = "The difference is too uncertain to decide: {here}."
    shown: Shown = Shown()
    plans: tuple[dict[str, Any], ...] = ()

    def text(self, estimate: Estimate) -> str:
        """Return a difference with its interval and unit."""
        return f"{estimate.text(self.shown.digits, self.shown.scale)}{self.shown.unit}"


def _claims() -> dict[str, PaperClaim]:
    found = {}
    for experiment, entries in read_toml(Path(__file__).parent / "claims.toml").items():
        for name, entry in entries.items():
            always = entry.pop("always", None)
            entry |= {} if always is None else dict.fromkeys(("holds", "fails", "undecided"), always)
            found[f"{experiment}.{name}"] = PaperClaim.build(entry, source=f"claims.toml: {experiment}.{name}")
    return found


CLAIMS = _claims()


@dataclass(frozen=True)
class Finding:
    """A claim, the paper's number, the number here, and the verdict by the rule.

    sentence: the conclusion in words. p: two-sided p of "there is no difference", None if the claim was not
    tested by an interval. noise: what a plan needs. undecided: the sentence if the correction over all claims of
    the experiment changes the verdict.
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
        """Return the entry of results.json."""
        plain = asdict(self)
        del plain["undecided"]
        plain["difference"] = dict(zip(("value", "low", "high"), self.difference, strict=True))
        return plain


def judge(claim: PaperClaim, above_zero: Sequence[float], *, here: str = "", **facts: object) -> Finding:
    """Return the finding on a claim that `above_zero`, one value a seed, is above zero.

    `here` is the measured difference by default. `facts` fill the names in braces of the claim's texts.
    """
    verdict, estimate = decide(above_zero)
    here = here or claim.text(estimate)
    return _finding(claim, verdict, estimate, here, facts, p_value(above_zero), noise_of(above_zero))


def judge_all(
    claim: PaperClaim, parts: Sequence[Sequence[float]], *, here: str = "", part: str = "step", **facts: object
) -> Finding:
    """Return the finding on a claim that every part is above zero, each with one value a seed.

    It holds if each part by itself does, does not hold if any part does not, and is not decided if there are no
    parts. The difference is that of the part whose interval starts lowest.
    """
    verdicts = {decide(values)[0] for values in parts} or {OPEN}
    verdict = FAILS if FAILS in verdicts else OPEN if OPEN in verdicts else HOLDS
    lowest = min(parts, key=_start, default=None)
    estimate = Estimate(0.0, None, None) if lowest is None else over_seeds(lowest)
    here = "; ".join(filter(None, (here, f"least certain {part} {claim.text(estimate)}")))
    noise = None if lowest is None else noise_of(lowest)
    return _finding(claim, verdict, estimate, here, facts, p_of_all(verdict, parts), noise)


def judge_steps(claim: PaperClaim, levels: Sequence[Sequence[float]], *, here: str = "") -> Finding:
    """Return the finding on a claim that every level is above the one before it; each has one value a seed."""
    return judge_all(claim, [differences(after, before) for before, after in pairwise(levels)], here=here)


def judge_count(claim: PaperClaim, difference: float | None, *, here: str) -> Finding:
    """Return the finding on a count, which has no interval; it is not decided if there is nothing to count."""
    verdict: Verdict = OPEN if difference is None else HOLDS if difference > 0 else FAILS
    return _finding(claim, verdict, Estimate(difference or 0.0, None, None), here, {}, None, None)


def _finding(
    claim: PaperClaim,
    verdict: Verdict,
    estimate: Estimate,
    here: str,
    facts: Mapping[str, object],
    p: float | None,
    noise: Mapping[str, float] | None,
) -> Finding:
    known = {**facts, "here": claim.text(estimate)}
    sentence = {HOLDS: claim.holds, FAILS: claim.fails, OPEN: claim.undecided}[verdict]
    claimed, paper, sentence, undecided = (
        text.format(**known) for text in (claim.claim, claim.paper, sentence, claim.undecided)
    )
    return Finding(claimed, paper, here, verdict, sentence, estimate, p, noise, undecided)


def _start(part: Sequence[float]) -> float:
    value, low, _ = over_seeds(part)
    return value if low is None else low


def noise_of(values: Sequence[float]) -> dict[str, float]:
    """Return the noise of a difference: the deviation over seeds, the error over items, and both numbers."""
    measured = values if isinstance(values, Measured) else Measured(values)
    sets = (measured.items or {}).values()
    return {
        "seed_deviation": statistics.stdev(values) if len(values) > 1 else 0.0,
        "seeds": len(values),
        "item_error": measured.item_error,
        "items": sum(len(one.ids) for one in sets),
    }


def correct_family(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings of one family, those that Holm's method rejects as not decided.

    A claim that was not tested by an interval has no p and keeps its verdict.
    """
    kept = holm([finding.p for finding in findings])
    return [
        finding
        if keep or finding.p is None or finding.verdict == OPEN
        else replace(finding, verdict=OPEN, sentence=f"{finding.undecided} {_CORRECTED}".strip())
        for finding, keep in zip(findings, kept, strict=True)
    ]


def p_of_all(verdict: Verdict, parts: Sequence[Sequence[float]]) -> float | None:
    """Return p of a claim that holds if every part holds and does not hold if any part does not.

    For "all hold" it is the largest p of the parts (an intersection-union test). For "any fails" it is the
    smallest p of the parts below zero times the number of parts (Bonferroni).
    """
    each = [(sum(values), p_value(values)) for values in parts]
    if verdict == FAILS:
        below = [p for total, p in each if total < 0 and p is not None]
        return min(1.0, min(below) * len(parts)) if below else None
    known = [p for _, p in each if p is not None]
    return max(known) if known and len(known) == len(parts) else None
