"""A plan for each claim: its effect, the noise that a pilot measured, and how many seeds and items decide.

`claims.toml` has the effects: the paper's, or if the paper has none, the smallest that matters. `from_pilot` takes
the noise from the `results.json` of an earlier run. The power is that of the rule in `statistics` at the level at
which Holm's method tests the most significant claim of a family, 5 % divided by the number of its claims. The
other claims are tested at higher levels, so the power is at least as high as planned.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from headwater.display import counted
from headwater.errors import FolderError
from headwater.reading import read_json
from headwater_papers.claims import CLAIMS, planned_effect
from headwater_papers.page import RESULTS
from headwater_papers.reproduction import choose, work_of
from headwater_papers.scale import Scale, cost_of
from headwater_papers.statistics import FEWEST_SEEDS, LEVEL, student_quantile

POWER = 0.8
_MOST_SEEDS = 64


@dataclass(frozen=True)
class Noise:
    """Standard deviations of one claim's difference over seeds, each of which trains its own models, and over
    items.

    items: the number of items of the pilot. is_by_item: whether the pilot has values by item. If not, all of its
    items count as one, and `item` is their error.
    """

    seed: float
    item: float
    items: int
    seeds: int
    is_by_item: bool = True

    def items_text(self, number: int) -> str:
        """Return `200 items`, or `3 times the pilot's items`."""
        if self.is_by_item:
            return counted(number, "item")
        return "the pilot's items" if number == 1 else f"{number:,} times the pilot's items"


@dataclass(frozen=True)
class ClaimPlan:
    """What it takes to decide one claim.

    effect: in the unit of the claim's difference; None for a claim that is counted and has no interval. basis: the
    effect's source. family: the number of claims that are corrected together. each: whether the claim has several
    parts, which must all hold; effect and noise are those of one part.
    """

    experiment: str
    claim: str
    effect: float | None
    noise: Noise | None = None
    basis: str = "the paper"
    family: int = 1
    each: bool = False

    def power(self, seeds: int, items: int) -> float:
        """Return the chance that the claim holds, at LEVEL / family, if the effect is the paper's.

        Effects of seeds and items are assumed normal. The mean is then independent of the deviation over seeds,
        which has a chi distribution; the chance is an integral over it.
        """
        if self.noise is None or self.effect is None:
            raise ValueError("a plan without an effect or a pilot has no power")
        if seeds < FEWEST_SEEDS:
            return 0.0
        over_seeds, over_items = self.noise.seed / math.sqrt(seeds), self.noise.item / math.sqrt(items)
        error = math.hypot(over_seeds, over_items)
        if error == 0:
            return float(self.effect > 0)
        level, freedom = LEVEL / self.family, seeds - 1
        chi = np.linspace(0.0, math.sqrt(freedom) + 6, 401)[1:]
        density = np.exp((freedom - 1) * np.log(chi) - chi**2 / 2)
        estimated = over_seeds * chi / math.sqrt(freedom)
        reach = np.hypot(student_quantile(freedom, level) * estimated, ndtri(1 - level / 2) * over_items)
        return float(density @ ndtr((self.effect - reach) / error) / density.sum())

    def seeds_needed(self, items: int) -> int | None:
        """Return how many seeds reach POWER with `items` items; None if 64 do not."""
        counts = range(FEWEST_SEEDS, _MOST_SEEDS + 1)
        return next((seeds for seeds in counts if self.power(seeds, items) >= POWER), None)

    def items_needed(self, seeds: int) -> int | None:
        """Return how many items reach POWER with `seeds` seeds; None if a hundred times the pilot's do not.

        Fewer than the pilot's are not considered: the spread over seeds would be larger with them, and the pilot
        does not show by how much.
        """
        if self.noise is None or self.power(seeds, 100 * self.noise.items) < POWER:
            return None
        counts = range(self.noise.items, 100 * self.noise.items)
        return counts.start + bisect_left(counts, POWER, key=lambda items: self.power(seeds, items))

    def text(self, seeds: int) -> str:
        """Return the plan in one line; `seeds` is the number of seeds of the scale."""
        if self.effect is None:
            return f"{self.claim} It is counted: there is no interval."
        start = f"{self.claim} Effect ({self.basis}): {self.effect:.3g}."
        noise = self.noise
        if noise is None:
            return f"{start} No pilot has measured the noise."
        if noise.seed == noise.item == 0:
            return f"{start} All values of the pilot are equal: it does not show the noise."
        there = noise.items_text(noise.items)
        needed, more = self.seeds_needed(noise.items), self.items_needed(seeds)
        return " ".join(
            [
                f"{start} Noise ({noise.seeds} seeds, {there}): {noise.seed:.3g} over seeds, {noise.item:.3g}",
                f"over items. At the level {LEVEL:g}/{self.family}, {seeds} seeds and {there} have a power of",
                f"{self.power(seeds, noise.items):.0%}.",
                f"A power of {POWER:.0%} needs {needed or f'more than {_MOST_SEEDS}'} seeds with {there};",
                f"with {seeds} seeds, {noise.items_text(more)}." if more else f"{seeds} seeds cannot reach it.",
            ]
            + (["This is for one part: every part must hold."] if self.each else [])
        )


def load_plans() -> list[ClaimPlan]:
    """Return the plans of `claims.toml`; the claims of an experiment that have an interval are one family."""
    plans = [
        _plan(name.partition(".")[0], claim.claim, entry)
        for name, claim in CLAIMS.items()
        for entry in claim.plans
    ]
    sizes = Counter(plan.experiment for plan in plans if plan.effect is not None)
    return [replace(plan, family=max(1, sizes[plan.experiment])) for plan in plans]


def _plan(experiment: str, claim: str, entry: Mapping[str, Any]) -> ClaimPlan:
    plan = ClaimPlan(experiment, claim.format(**entry), None, each=entry.get("each", False))
    basis = f"chosen here: {entry['why']}" if "chosen" in entry else entry.get("basis", plan.basis)
    return replace(plan, effect=planned_effect(entry), basis=basis)


def from_pilot(plans: Iterable[ClaimPlan], results: Mapping[str, Any]) -> list[ClaimPlan]:
    """Return the plans with the noise and the family of a pilot's `results.json`.

    Plans of other experiments are unchanged.
    """
    if "findings" not in results or "experiment" not in results:
        raise FolderError("the pilot has no findings", expected="results.json of headwater reproduce")
    measured = {finding["claim"]: finding.get("noise") for finding in results["findings"]}
    family = sum(finding.get("p") is not None for finding in results["findings"])
    filled = []
    for plan in plans:
        noise = measured.get(plan.claim) if plan.experiment == results["experiment"] else None
        if noise and noise["seeds"] > 1:
            items = noise["items"] or 1
            item = noise["item_error"] * math.sqrt(items)
            pilot_noise = Noise(noise["seed_deviation"], item, items, noise["seeds"], noise["items"] > 0)
            plan = replace(plan, noise=pilot_noise, family=max(1, family))
        filled.append(plan)
    return filled


def plan_of(
    names: Sequence[str], scale: Scale, pilot: Path, *, required: bool = False
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the plans of some experiments as data, and as lines of text that end with the cost of the scale.

    `pilot` is the --out of an earlier run. Raises FolderError if it is `required` and has no results of these
    experiments.
    """
    experiments = choose(names)
    chosen = {experiment.name for experiment in experiments}
    plans = [plan for plan in load_plans() if plan.experiment in chosen]
    notes = []
    paths = [path for name in sorted(chosen) if (path := pilot / name / RESULTS).is_file()]
    if required and not paths:
        raise FolderError(f"{pilot} has no results of {', '.join(sorted(chosen))}", repair="Give an earlier --out")
    for path in paths:
        results = read_json(path)
        plans = from_pilot(plans, results)
        if results["scale"] != scale.name:
            notes.append(f"The pilot of {results['experiment']} is of the scale {results['scale']}.")
    pieces, models = work_of(experiments, scale)
    lines = [f"{plan.experiment}: {plan.text(len(scale.seeds))}" for plan in plans]
    lines.append(
        f"Levels are {LEVEL:g} divided by the claims of the experiment: Holm's method tests the most significant "
        "one there, and the others at higher levels."
    )
    if not any(plan.noise for plan in plans):
        lines.append(f"{pilot} has no results to estimate the noise from: name an earlier run with --pilot.")
    cost = f"Pre-training takes {cost_of(scale, models).text()}." if models else "Nothing is pre-trained."
    lines += [*notes, f"{cost} {len(pieces)} trainings and measurements with {len(scale.seeds)} seeds."]
    return [asdict(plan) for plan in plans], lines
