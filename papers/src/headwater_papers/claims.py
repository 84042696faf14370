"""The claims of the papers, read from `claims.toml`, and the verdict on each by the rule of `statistics`."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from headwater.config import Config, read_toml
from headwater_papers.paper_tables import filled, number
from headwater_papers.statistics import (
    FAILS,
    HOLDS,
    LEVEL,
    OPEN,
    WEAKER,
    Estimate,
    Verdict,
    as_measured,
    decide,
    differences,
    holm,
    over_seeds,
    p_at_least,
    p_value,
)

_WEAKER = "If there is a difference, it is smaller than the expected {expected}: {here}."
_WEAKER_PART = (
    "At least one {part} gains less than the expected {expected}. The least certain {part} gains {here}."
)


class Shown(Config):
    """How a difference is printed."""

    scale: float = 1.0
    digits: int = 3
    unit: str = ""


class PaperClaim(Config):
    """One claim, what the paper has for it, and a sentence for each verdict; see `claims.toml`."""

    name: str = ""
    claim: str
    paper: str
    here: str = ""
    guess: tuple[str, ...] = ()
    measure: str = ""
    losses: tuple[tuple[str, str], ...] = ()
    no_loss: str = ""
    shares: tuple[str, ...] = ()
    holds: str
    fails: str
    undecided: str = "The difference is too uncertain to decide: {here}."
    weaker: str = _WEAKER
    shown: Shown = Shown()
    plans: tuple[dict[str, Any], ...] = ()

    def text(self, estimate: Estimate) -> str:
        """Return a difference with its interval and unit."""
        return f"{estimate.text(self.shown.digits, self.shown.scale)}{self.shown.unit}"

    def expected(self, facts: Mapping[str, object]) -> float | None:
        """Return the expected effect of the claim that `facts` complete.

        None for a claim about a threshold (`threshold` in its plan): a smaller effect is not evidence against it.
        """
        plan = self._plan(facts)
        return planned_effect(plan) if plan else None

    def smallest(self, facts: Mapping[str, object]) -> float | None:
        """Return the smallest effect that matters; None where the paper has an effect, or for a threshold."""
        return self._plan(facts).get("chosen")

    def _plan(self, facts: Mapping[str, object]) -> dict[str, Any]:
        claimed = self.claim.format(**facts)
        plans = [plan for plan in self.plans if self.claim.format(**plan) == claimed and not plan.get("threshold")]
        return plans[0] if plans else {}


def planned_effect(plan: Mapping[str, Any]) -> float | None:
    """Return the effect of an entry of `plans`, in the unit of the difference; None for a counted claim."""
    if "chosen" in plan:
        return float(plan["chosen"])
    if "of" not in plan:
        return None
    high, low = (number(one) if isinstance(one, str) else one for one in plan["of"])
    return float(math.log(high / low) if plan.get("log") else high - low) / plan.get("divide", 1)


def _claims() -> dict[str, PaperClaim]:
    claims = {}
    for experiment, entries in read_toml(Path(__file__).parent / "claims.toml").items():
        for name, entry in entries.items():
            entry |= {key: filled(text) for key, text in entry.items() if isinstance(text, str)}
            always = entry.pop("always", None)
            if any(plan.get("each") for plan in entry["plans"]):
                entry = {"weaker": _WEAKER_PART} | entry
            entry |= {} if always is None else dict.fromkeys(("holds", "fails", "undecided", "weaker"), always)
            entry["name"] = f"{experiment}.{name}"
            claims[entry["name"]] = PaperClaim.build(entry, source=f"claims.toml: {entry['name']}")
    return claims


CLAIMS = _claims()


@dataclass(frozen=True)
class Finding:
    """A claim, the paper's number, the number here, and the verdict by the rule.

    name: its entry in `claims.toml`; facts: what the experiment filled the names in braces with. sentence: the
    conclusion in words. p: two-sided p of "there is no difference", None if the claim was not tested by an
    interval. p_expected: that of "the difference is at least the expected effect". noise: what a plan needs.
    sentences: one for each verdict that the correction over the claims of the experiment can lead to.
    """

    name: str
    facts: Mapping[str, object]
    claim: str
    paper: str
    here: str
    verdict: Verdict
    sentence: str
    difference: Estimate
    p: float | None = None
    p_expected: float | None = None
    noise: Mapping[str, float] | None = None
    sentences: Mapping[Verdict, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of results.json."""
        plain = asdict(self)
        del plain["sentences"]
        plain["difference"] = dict(zip(("value", "low", "high"), self.difference, strict=True))
        return plain


def judge(claim: PaperClaim, above_zero: Sequence[float], *, here: str = "", **facts: object) -> Finding:
    """Return the finding on a claim that `above_zero`, one value a seed, is above zero.

    `here` is the measured difference by default. `facts` fill the names in braces of the claim's texts.
    """
    effect = claim.expected(facts)
    verdict, estimate = decide(above_zero, effect)
    return _finding(
        claim,
        verdict,
        estimate,
        here or claim.text(estimate),
        facts,
        p=p_value(above_zero),
        p_expected=None if effect is None else p_at_least(above_zero, effect),
        noise=noise_of(above_zero),
    )


def judge_all(
    claim: PaperClaim, parts: Sequence[Sequence[float]], *, here: str = "", part: str = "step", **facts: object
) -> Finding:
    """Return the finding on a claim that every part is above zero, each with one value a seed.

    It holds if each part by itself does, and does not hold if any part does not. Otherwise it is weaker than
    expected if any part is, corrected for their number. It is not decided if there are no parts. The difference is
    that of the part whose interval starts lowest.
    """
    facts |= {"part": part}
    effect = claim.expected(facts)
    verdicts = {decide(values)[0] for values in parts} or {OPEN}
    verdict = FAILS if FAILS in verdicts else OPEN if OPEN in verdicts else HOLDS
    at_least = [p for values in parts if effect is not None and (p := p_at_least(values, effect)) is not None]
    p_expected = min(1.0, min(at_least) * len(parts)) if at_least else None
    if verdict == OPEN and p_expected is not None and p_expected <= LEVEL:
        verdict = WEAKER
    lowest = min(parts, key=_start, default=None)
    estimate = Estimate(0.0, None, None) if lowest is None else over_seeds(lowest)
    return _finding(
        claim,
        verdict,
        estimate,
        "; ".join(filter(None, (here, f"least certain {part} {claim.text(estimate)}"))),
        facts,
        p=p_of_all(verdict, parts),
        p_expected=p_expected,
        noise=None if lowest is None else noise_of(lowest),
    )


def judge_steps(claim: PaperClaim, levels: Sequence[Sequence[float]], *, here: str = "") -> Finding:
    """Return the finding on a claim that every level is above the one before it; each has one value a seed."""
    return judge_all(claim, [differences(after, before) for before, after in pairwise(levels)], here=here)


def judge_count(claim: PaperClaim, difference: float | None, *, here: str) -> Finding:
    """Return the finding on a count, which has no interval; it is not decided if there is nothing to count."""
    verdict: Verdict = OPEN if difference is None else HOLDS if difference > 0 else FAILS
    return _finding(claim, verdict, Estimate(difference or 0.0, None, None), here, {})


def _finding(
    claim: PaperClaim,
    verdict: Verdict,
    estimate: Estimate,
    here: str,
    facts: Mapping[str, object],
    **tested: Any,
) -> Finding:
    effect = claim.expected(facts)
    shown = claim.shown
    expected = "" if effect is None else f"{effect * shown.scale:.{shown.digits}f}{shown.unit}"
    known = {**facts, "here": claim.text(estimate), "expected": expected}
    texts = {HOLDS: claim.holds, FAILS: claim.fails, WEAKER: claim.weaker, OPEN: claim.undecided}
    sentences = {which: text.format(**known) for which, text in texts.items()}
    return Finding(
        claim.name,
        facts,
        claim.claim.format(**known),
        claim.paper.format(**known),
        here,
        verdict,
        sentences[verdict],
        estimate,
        sentences=sentences,
        **tested,
    )


def _start(part: Sequence[float]) -> float:
    value, low, _ = over_seeds(part)
    return value if low is None else low


def noise_of(values: Sequence[float]) -> dict[str, float]:
    """Return the noise of a difference: the deviation over seeds, the error over items, and both numbers."""
    sets = (as_measured(values).items or {}).values()
    return {
        "seed_deviation": statistics.stdev(values) if len(values) > 1 else 0.0,
        "seeds": len(values),
        "item_error": as_measured(values).item_error,
        "items": sum(len(one.ids) for one in sets),
    }


def correct_family(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings of one family with the verdicts that Holm's method leaves.

    A claim that was not tested by an interval has no p and keeps its verdict.
    """
    decided, bounded = holm([finding.p for finding in findings], [finding.p_expected for finding in findings])
    corrected = []
    for finding, is_decided, is_bounded in zip(findings, decided, bounded, strict=True):
        verdict = finding.verdict
        if finding.p is not None and not (is_decided and verdict in (HOLDS, FAILS)):
            verdict = WEAKER if is_bounded else OPEN
        if verdict != finding.verdict:
            told = f"By itself, without the correction over the claims of the experiment: {finding.verdict}."
            finding = replace(finding, verdict=verdict, sentence=f"{finding.sentences[verdict]} {told}".strip())
        corrected.append(finding)
    return corrected


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
