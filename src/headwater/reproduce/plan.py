"""A plan for each claim: its effect, the noise that a pilot measured, and how many seeds and items decide.

`plans.toml` has the effect of each claim: the paper's, or where the paper gives none, the smallest that matters.
`from_pilot` takes the noise from the `results.json` of an earlier run. The power is that of the rule in
`statistics.py` for a claim by itself: the correction over a family lowers it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

from headwater.config import read_toml
from headwater.errors import FolderError
from headwater.reproduce.page import RESULTS
from headwater.reproduce.reproduction import choose
from headwater.reproduce.scale import Scale, cost_of
from headwater.reproduce.statistics import FEWEST_SEEDS, NORMAL, student_quantile
from headwater.storage.files import read_json

FILE = Path(__file__).parent / "plans.toml"
POWER = 0.8
_MOST_SEEDS = 64


@dataclass(frozen=True)
class Noise:
    """Deviations of one claim's difference: over pre-training seeds, over fine-tuning seeds, and over items.

    A pilot in which each seed pre-trains and fine-tunes anew can't tell the two apart: both are in `pretraining`.
    items: the number of items of the pilot; 0 where the items are not known one by one, and `item` is their error.
    """

    pretraining: float
    finetuning: float
    item: float
    items: int
    seeds: int


@dataclass(frozen=True)
class ClaimPlan:
    """What it takes to decide one claim.

    effect: in the unit of the claim's difference, or None where the claim is counted and has no interval; basis:
    where the effect is from.
    """

    experiment: str
    claim: str
    effect: float | None
    noise: Noise | None = None
    basis: str = "the paper"

    def power(self, seeds: int, items: int) -> float:
        """Return the chance that the claim holds if the effect is the paper's.

        Effects of seeds and items are taken as normal. The mean is then independent of the deviation over seeds,
        which follows a chi distribution: the chance is an integral over it.
        """
        if self.noise is None or self.effect is None:
            raise ValueError("a plan without an effect or a pilot has no power")
        if seeds < FEWEST_SEEDS:
            return 0.0
        over_seeds = math.hypot(self.noise.pretraining, self.noise.finetuning) / math.sqrt(seeds)
        over_items = self.noise.item / math.sqrt(items) if self.noise.items else self.noise.item
        error = math.hypot(over_seeds, over_items)
        if error == 0:
            return float(self.effect > 0)
        freedom = seeds - 1
        chi = np.linspace(0.0, math.sqrt(freedom) + 6, 401)[1:]
        density = np.exp((freedom - 1) * np.log(chi) - chi**2 / 2)
        estimated = over_seeds * chi / math.sqrt(freedom)
        reach = np.hypot(student_quantile(freedom) * estimated, NORMAL * over_items)
        chances = [NormalDist().cdf(distance) for distance in ((self.effect - reach) / error).tolist()]
        return float(density @ np.array(chances) / density.sum())

    def seeds_needed(self, items: int, power: float = POWER) -> int | None:
        """Return how many seeds decide with so many items; None where no number up to 64 does."""
        counts = range(FEWEST_SEEDS, _MOST_SEEDS + 1)
        return next((seeds for seeds in counts if self.power(seeds, items) >= power), None)

    def items_needed(self, seeds: int, power: float = POWER) -> int | None:
        """Return how many items decide with so many seeds; None where a hundred times the pilot's do not."""
        if self.noise is None or not self.noise.items:
            return None
        high = 100 * self.noise.items
        if self.power(seeds, high) < power:
            return None
        return 1 + bisect_left(range(1, high), power, key=lambda items: self.power(seeds, items))

    def text(self, seeds: int) -> str:
        """Return the plan in one line, next to the number of seeds of the scale."""
        if self.effect is None:
            return f"{self.claim} It is counted: there is no interval."
        start = f"{self.claim} Effect ({self.basis}): {self.effect:.3g}."
        if self.noise is None:
            return f"{start} No pilot has measured the noise."
        noise, items = self.noise, self.noise.items
        over_seeds = math.hypot(noise.pretraining, noise.finetuning)
        spread = f"Noise: {over_seeds:.3g} over seeds, {noise.item:.3g} over items."
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
    """Return the plans of `plans.toml`; an effect is a difference of two figures or of their logarithms."""
    return [_plan(entry) for entry in read_toml(FILE)["plan"]]


def _plan(entry: Mapping[str, Any]) -> ClaimPlan:
    plan = ClaimPlan(entry["experiment"], entry["claim"], None)
    if entry.get("counted"):
        return plan
    if "chosen" in entry:
        return replace(plan, effect=float(entry["chosen"]), basis=f"chosen here: {entry['why']}")
    high, low = entry["paper"]
    effect = (math.log(high / low) if entry.get("log") else high - low) / entry.get("divide", 1)
    return replace(plan, effect=effect, basis=entry.get("basis", plan.basis))


def from_pilot(plans: Iterable[ClaimPlan], results: Mapping[str, Any]) -> list[ClaimPlan]:
    """Return the plans with the noise that the `results.json` of a pilot has; others stay as they are."""
    if "findings" not in results or "experiment" not in results:
        raise FolderError("the pilot has no findings", expected="results.json of headwater reproduce")
    measured = {finding["claim"]: finding.get("noise") for finding in results["findings"]}
    filled = []
    for plan in plans:
        noise = measured.get(plan.claim) if plan.experiment == results["experiment"] else None
        if noise and noise["seeds"] > 1:
            item = noise["item_error"] * math.sqrt(noise["items"] or 1)
            found = Noise(noise["seed_deviation"], 0.0, item, noise["items"], noise["seeds"])
            plan = replace(plan, noise=found)
        filled.append(plan)
    return filled


def split_seeds(values: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Return the deviations over pre-training seeds and over fine-tuning seeds, by a nested analysis of variance.

    `values` has one list for each pre-training seed, with one value for each fine-tuning seed.
    """
    table = np.array(values, dtype=np.float64)
    if table.ndim != 2 or min(table.shape) < 2:
        raise ValueError(f"two seeds of both kinds at least, not {table.shape}")
    within = float(table.var(axis=1, ddof=1).mean())
    between = float(table.mean(axis=1).var(ddof=1)) - within / table.shape[1]
    return math.sqrt(max(between, 0.0)), math.sqrt(within)


def plan_of(
    names: Sequence[str], scale: Scale, pilot: Path | None = None
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the plans of some experiments, as data and as lines of text that end with the cost of the scale.

    `pilot` is the --out of an earlier run. Raises FolderError where it has no results of these experiments.
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
