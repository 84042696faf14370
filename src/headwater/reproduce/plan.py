"""A plan for each claim: its effect, the noise that a pilot measured, and how many seeds and items decide.

`claims.toml` has the effects: the paper's, or if the paper has none, the smallest that matters. `from_pilot` takes
the noise from the `results.json` of an earlier run. The power is that of the rule in `statistics` for one claim;
the correction over a family lowers it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtr

from headwater.errors import FolderError
from headwater.reproduce.claims import CLAIMS
from headwater.reproduce.page import RESULTS
from headwater.reproduce.reproduction import choose
from headwater.reproduce.scale import Scale, cost_of
from headwater.reproduce.statistics import FEWEST_SEEDS, NORMAL, student_quantile
from headwater.storage.files import read_json

POWER = 0.8
_MOST_SEEDS = 64


@dataclass(frozen=True)
class Noise:
    """Deviations of one claim's difference over seeds (each pre-trains and fine-tunes a model) and over items.

    items: the number of items of the pilot; 0 if the values by item are not known, and `item` is their error.
    """

    seed: float
    item: float
    items: int
    seeds: int


@dataclass(frozen=True)
class ClaimPlan:
    """What it takes to decide one claim.

    effect: in the unit of the claim's difference; None for a claim that is counted and has no interval. basis: the
    effect's source.
    """

    experiment: str
    claim: str
    effect: float | None
    noise: Noise | None = None
    basis: str = "the paper"

    def power(self, seeds: int, items: int) -> float:
        """Return the chance that the claim holds if the effect is the paper's.

        Effects of seeds and items are assumed normal. The mean is then independent of the deviation over seeds,
        which has a chi distribution; the chance is an integral over it.
        """
        if self.noise is None or self.effect is None:
            raise ValueError("a plan without an effect or a pilot has no power")
        if seeds < FEWEST_SEEDS:
            return 0.0
        over_seeds = self.noise.seed / math.sqrt(seeds)
        over_items = self.noise.item / math.sqrt(items) if self.noise.items else self.noise.item
        error = math.hypot(over_seeds, over_items)
        if error == 0:
            return float(self.effect > 0)
        freedom = seeds - 1
        chi = np.linspace(0.0, math.sqrt(freedom) + 6, 401)[1:]
        density = np.exp((freedom - 1) * np.log(chi) - chi**2 / 2)
        estimated = over_seeds * chi / math.sqrt(freedom)
        reach = np.hypot(student_quantile(freedom) * estimated, NORMAL * over_items)
        return float(density @ ndtr((self.effect - reach) / error) / density.sum())

    def seeds_needed(self, items: int, power: float = POWER) -> int | None:
        """Return how many seeds decide with `items` items; None if 64 do not."""
        counts = range(FEWEST_SEEDS, _MOST_SEEDS + 1)
        return next((seeds for seeds in counts if self.power(seeds, items) >= power), None)

    def items_needed(self, seeds: int, power: float = POWER) -> int | None:
        """Return how many items decide with `seeds` seeds; None if a hundred times the pilot's do not."""
        if self.noise is None or not self.noise.items:
            return None
        high = 100 * self.noise.items
        if self.power(seeds, high) < power:
            return None
        return 1 + bisect_left(range(1, high), power, key=lambda items: self.power(seeds, items))

    def text(self, seeds: int) -> str:
        """Return the plan in one line; `seeds` is the number of seeds of the scale."""
        if self.effect is None:
            return f"{self.claim} It is counted: there is no interval."
        start = f"{self.claim} Effect ({self.basis}): {self.effect:.3g}."
        if self.noise is None:
            return f"{start} No pilot has measured the noise."
        noise, items = self.noise, self.noise.items
        spread = f"Noise: {noise.seed:.3g} over seeds, {noise.item:.3g} over items."
        needed = self.seeds_needed(items)
        decides = (
            f"{needed} seeds decide at a power of {POWER:.0%}"
            if needed
            else f"no number of seeds up to {_MOST_SEEDS} decides at a power of {POWER:.0%}"
        )
        over = f" with {items:,} items" if items else ""
        more = self.items_needed(seeds)
        enough = f" With {seeds} seeds, {more:,} items decide." if more else ""
        power = f"{seeds} seeds have a power of {self.power(seeds, items):.0%}."
        return f"{start} {spread} {decides}{over}; {power}{enough}"


def load_plans() -> list[ClaimPlan]:
    """Return the plans of `claims.toml`."""
    return [
        _plan(name.partition(".")[0], claim.claim, entry)
        for name, claim in CLAIMS.items()
        for entry in claim.plans
    ]


def _plan(experiment: str, claim: str, entry: Mapping[str, Any]) -> ClaimPlan:
    plan = ClaimPlan(experiment, claim.format(**entry), None)
    if "chosen" in entry:
        return replace(plan, effect=float(entry["chosen"]), basis=f"chosen here: {entry['why']}")
    if "of" not in entry:
        return plan
    high, low = entry["of"]
    effect = (math.log(high / low) if entry.get("log") else high - low) / entry.get("divide", 1)
    return replace(plan, effect=effect, basis=entry.get("basis", plan.basis))


def from_pilot(plans: Iterable[ClaimPlan], results: Mapping[str, Any]) -> list[ClaimPlan]:
    """Return the plans with the noise from a pilot's `results.json`; other experiments' plans are unchanged."""
    if "findings" not in results or "experiment" not in results:
        raise FolderError("the pilot has no findings", expected="results.json of headwater reproduce")
    measured = {finding["claim"]: finding.get("noise") for finding in results["findings"]}
    filled = []
    for plan in plans:
        noise = measured.get(plan.claim) if plan.experiment == results["experiment"] else None
        if noise and noise["seeds"] > 1:
            item = noise["item_error"] * math.sqrt(noise["items"] or 1)
            found = Noise(noise["seed_deviation"], item, noise["items"], noise["seeds"])
            plan = replace(plan, noise=found)
        filled.append(plan)
    return filled


def plan_of(
    names: Sequence[str], scale: Scale, pilot: Path | None = None
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the plans of some experiments as data, and as lines of text that end with the cost of the scale.

    `pilot` is the --out of an earlier run. Raises FolderError if it has no results of these experiments.
    """
    experiments = choose(names)
    chosen = {experiment.name for experiment in experiments}
    plans = [plan for plan in load_plans() if plan.experiment in chosen]
    notes = []
    if pilot is not None:
        found = [path for name in sorted(chosen) if (path := pilot / name / RESULTS).is_file()]
        if not found:
            raise FolderError(
                f"{pilot} has no results of {', '.join(sorted(chosen))}", repair="Give an earlier --out"
            )
        for path in found:
            results = read_json(path)
            plans = from_pilot(plans, results)
            if (results["scale"], results["seeds"]) != (scale.name, list(scale.seeds)):
                notes.append(
                    f"The pilot of {results['experiment']} is of the scale {results['scale']} with "
                    f"{len(results['seeds'])} seeds, not of {scale.name} with {len(scale.seeds)}."
                )
    pieces = set[tuple[str, str]]().union(*(experiment.pieces(scale) for experiment in experiments))
    models = sorted({name.partition(",")[0] for kind, name in pieces if kind == "pre-training"})
    lines = [f"{plan.experiment}: {plan.text(len(scale.seeds))}" for plan in plans]
    cost = f"Pre-training takes {cost_of(scale, models).text()}." if models else "Nothing is pre-trained."
    counted = f"{cost} {len(pieces)} pieces of work with {len(scale.seeds)} seeds."
    return [asdict(plan) for plan in plans], [*lines, *notes, counted]
