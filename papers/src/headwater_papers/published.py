"""The published form of results: numbers with a unit and both sides, intervals of shares, and the final verdict.

`published` takes and returns the content of `results.json`, so that stored results follow the rule and have the
wording of today. No number changes, except for the intervals of shares, which become Wilson's (Wilson 1927).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headwater_papers.claims import CLAIMS, PaperClaim
from headwater_papers.paper_tables import number
from headwater_papers.statistics import FAILS, HOLDS, NORMAL, NOTHING, RULE, SMALLER, Estimate, Verdict

# [SETTING | MEASURE], with `| interval` for its interval and `@ .1f` for its format (`short`: four digits).
# SETTING is a row's, or `first`, `last` or `all` of the rows with the measure; a prefix of settings may follow.
_LOOKUP = re.compile(
    r"\[(?P<setting>[^\[\]|]+) \| (?P<measure>[^\[\]|@]+?)(?P<interval> \| interval)?(?: @ (?P<format>\S+))?\]"
)
_SHARE = re.compile(r"(?!.*less the other)(?:.*accuracy\b.*|share of .*|.*exact match.*|% of .*)")
_LARGE = 1000
_GUESS = int(number("gpt2-recipe | entries of the vocabulary | value"))


def published(results: Mapping[str, Any]) -> dict[str, Any]:
    """Return results with the rows, the findings and the rule that pages show."""
    rows = [_with_wilson(row) for row in results["rows"]]
    findings = [_published(finding, rows) for finding in results["findings"]]
    return {**results, "rule": RULE, "rows": rows, "findings": findings}


def tally(findings: Iterable[Mapping[str, Any]]) -> Counter[Verdict]:
    """Return how many findings have each verdict. Every page that counts claims counts them with this."""
    return Counter(finding["verdict"] for finding in findings)


def number_here(template: str, finding: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the text of a finding's number by a template of `claims.toml`; "" if a row is missing.

    `{difference}` is the difference with its interval and unit, `{start}` the text up to its least certain part.
    """
    claim, facts = CLAIMS[finding["name"]], finding["facts"]
    shown = claim.shown
    try:
        text = _LOOKUP.sub(
            lambda match: _looked_up(match, rows, shown.scale, shown.digits),
            template.format(
                **facts,
                difference=claim.text(_difference(finding, claim, rows)),
                start=re.split("; (?:the )?least certain", finding["here"])[0],
            ),
        )
    except LookupError:
        return ""
    return text


def wilson(value: float, reach: float, count: int | None) -> tuple[float, float]:
    """Return Wilson's interval of a share between 0 and 1.

    reach: half of the interval that is symmetric around the value. It includes the spread over seeds, and gives
    the number of independent examples. That number is `count` for a share of 0 or 1, whose spread is 0.
    """
    spread = value * (1 - value)
    independent = NORMAL**2 * spread / reach**2 if spread and reach else count
    if not independent:
        return value, value
    wide = NORMAL**2 / independent
    middle = (value + wide / 2) / (1 + wide)
    half = math.sqrt(spread * wide + wide**2 / 4) / (1 + wide)
    return max(0.0, middle - half) if value else 0.0, min(1.0, middle + half) if value < 1 else 1.0


def _with_wilson(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row; the interval of a share is Wilson's. `reach` keeps the symmetric one's half."""
    if row["low"] is None or not _SHARE.fullmatch(row["measure"]):
        return dict(row)
    scale = 100 if row["measure"].startswith("%") else 1
    reach = row.get("reach", (row["high"] - row["low"]) / 2)
    low, high = wilson(row["value"] / scale, reach / scale, row["examples"])
    return {**row, "low": scale * low, "high": scale * high, "reach": reach}


def _published(finding: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    claim, facts = CLAIMS[finding["name"]], finding["facts"]
    tested = finding.get("tested", finding["verdict"])
    here = number_here(claim.here, finding, rows) if claim.here else ""
    verdict, sentence = _verdict(claim, finding, rows, tested)
    own = {"claim": claim.claim, "paper": claim.paper}
    texts = {key: text.format(**facts) for key, text in own.items() if _has(text, facts)}
    return {
        **finding,
        **texts,
        "here": here or finding["here"],
        "verdict": verdict,
        "sentence": sentence,
        "tested": tested,
    }


def _verdict(
    claim: PaperClaim, finding: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], tested: Verdict
) -> tuple[Verdict, str]:
    """Return the verdict of the test and its sentence, unless the number says nothing or is too small."""
    if why := _says_nothing(claim, finding["facts"], rows):
        return NOTHING, why
    smallest, high = claim.smallest(finding["facts"]), finding["difference"]["high"]
    if tested == HOLDS and smallest is not None and high is not None and high < smallest:
        bound = f"{smallest * claim.shown.scale:.{claim.shown.digits}f}{claim.shown.unit}"
        return SMALLER, f"There is an effect, but its whole interval is below {bound}, the smallest that matters."
    text = {HOLDS: claim.holds, FAILS: claim.fails}.get(tested, "")
    known = {**finding["facts"], "here": claim.text(_difference(finding, claim, rows))}
    return tested, text.format(**known) if text and _has(text, known) else finding["sentence"]


def _says_nothing(claim: PaperClaim, facts: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """Return why the numbers say nothing about the claim; "" if they do."""
    measures = [measure.format(**facts) for measure in claim.guess]
    values = [row["value"] for row in rows if row["measure"] in measures]
    if values and max(values) == 0:
        return "Every model has 0."
    if values and all("perplexity" in measure for measure in measures) and min(values) > _GUESS:
        return f"The best perplexity, {min(values):,.0f}, is above that of a uniform guess among {_GUESS:,} words."
    gains = [
        _only(rows, a, claim.measure)["value"] - _only(rows, b, claim.measure)["value"] for a, b in claim.losses
    ]
    if gains and max(gains) <= 0:
        return claim.no_loss
    return ""


def _difference(finding: Mapping[str, Any], claim: PaperClaim, rows: Sequence[Mapping[str, Any]]) -> Estimate:
    """Return the difference of a finding; that of two shares has Newcombe's interval (1998), from Wilson's."""
    difference = Estimate(**finding["difference"])
    if not claim.shares:
        return difference
    first, second = (_only(rows, setting.format(**finding["facts"]), claim.measure) for setting in claim.shares)
    down = math.hypot(first["value"] - first["low"], second["high"] - second["value"])
    up = math.hypot(first["high"] - first["value"], second["value"] - second["low"])
    return Estimate(difference.value, difference.value - down, difference.value + up)


def _only(rows: Sequence[Mapping[str, Any]], setting: str, measure: str) -> Mapping[str, Any]:
    chosen = [row for row in rows if row["setting"] == setting and row["measure"] == measure]
    if not chosen:
        raise LookupError(f"no row {setting} | {measure}")
    return chosen[0]


def _looked_up(match: re.Match[str], rows: Sequence[Mapping[str, Any]], scale: float, digits: int) -> str:
    which, _, prefix = match["setting"].partition(" ")
    form = match["format"] or f".{digits}f"
    if which in {"first", "last", "all"}:
        measured = [
            row for row in rows if row["measure"] == match["measure"] and row["setting"].startswith(prefix)
        ]
        if not measured:
            raise LookupError(match[0])
        chosen = {"first": measured[:1], "last": measured[-1:], "all": measured}[which]
    else:
        chosen = [_only(rows, match["setting"], match["measure"])]
    if match["interval"]:
        row = chosen[0]
        return f"{row['value'] * scale:{form}} ({row['low'] * scale:{form}} to {row['high'] * scale:{form}})"
    return " → ".join(_formatted(row["value"] * scale, form) for row in chosen)


def _formatted(value: float, form: str) -> str:
    if form == "short":
        return f"{value:,.0f}" if value >= _LARGE else f"{value:.4g}"
    return format(value, form)


def _has(text: str, facts: Mapping[str, Any]) -> bool:
    return set(re.findall(r"\{(\w+)", text)) <= set(facts)
