"""Plans: what decides each claim, with the noise of a pilot."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from headwater.cli.main import main
from headwater.errors import FolderError
from headwater_papers.claims import PaperClaim, judge
from headwater_papers.experiments import EXPERIMENTS
from headwater_papers.plan import ClaimPlan, Noise, from_pilot, load_plans
from headwater_papers.statistics import (
    Measured,
)


def claim_of(text: str) -> PaperClaim:
    return PaperClaim(claim=text, paper="", holds="It holds.", fails="It fails.", undecided="It is open.")


def test_a_plan_takes_its_noise_from_a_pilot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plans = load_plans()
    claim = plans[0].claim
    finding = judge(claim_of(claim), Measured([0.1, 0.12, 0.2], [0.01] * 3)).to_dict()
    results = {"experiment": plans[0].experiment, "scale": "other", "seeds": [1, 2, 3], "findings": [finding]}
    noise = from_pilot(plans, results)[0].noise
    assert noise is not None
    assert noise.seed == pytest.approx(np.std([0.1, 0.12, 0.2], ddof=1))
    with pytest.raises(FolderError):
        from_pilot(plans, {})
    folder = tmp_path / plans[0].experiment
    folder.mkdir()
    (folder / "results.json").write_text(json.dumps(results))
    for option in ("--pilot", "--out"):  # what an earlier run left in --out is a pilot
        assert main(["reproduce", "gpt1_ablations", "--plan", option, str(tmp_path)]) == 0
        told = capsys.readouterr().out
        assert "A power of 80% needs" in told
        assert "scale other" in told
        assert "floating-point operations" in told
        assert told.count("No pilot has measured the noise") == 5  # the claims that the results do not have
    assert main(["reproduce", "gpt1_layers", "--plan", "--pilot", str(tmp_path)]) != 0
    assert main(["reproduce", "gpt1_layers", "--plan", "--out", str(tmp_path)]) == 0
    assert "name an earlier run with --pilot" in capsys.readouterr().out


def test_a_plan_from_published_results_names_what_decides() -> None:
    published = Path(__file__).parents[2] / "papers/results/gpt2_zero_shot/results.json"
    results = json.loads(published.read_text(encoding="utf-8"))
    tested = [finding for finding in results["findings"] if finding["p"] is not None]
    plans = {plan.claim: plan for plan in from_pilot(load_plans(), results) if plan.noise}
    assert set(plans) == {finding["claim"] for finding in tested}
    for finding in tested:
        plan, noise = plans[finding["claim"]], finding["noise"]
        assert plan.family == len(tested)
        assert plan.noise is not None
        assert plan.noise.item / math.sqrt(plan.noise.items) == pytest.approx(noise["item_error"])
        assert f"the level 0.05/{len(tested)}" in plan.text(6) or noise["seed_deviation"] == 0
    assert "200 items" in plans[tested[1]["claim"]].text(6)
    assert "the pilot's items" in plans[tested[0]["claim"]].text(6)  # the windows of held-out text


def test_every_claim_has_a_plan() -> None:
    plans = {(plan.experiment, plan.claim): plan for plan in load_plans()}
    published = Path(__file__).parents[2] / "papers/results"
    for path in published.glob("*/results.json"):
        results = json.loads(path.read_text(encoding="utf-8"))
        for finding in results["findings"]:
            assert (results["experiment"], finding["claim"]) in plans
    assert {experiment for experiment, _ in plans} == set(EXPERIMENTS) - {"gpt2_appendix"}  # shows samples alone
    assert all(plan.effect is None or plan.effect > 0 for plan in plans.values())


def test_a_plan_names_how_many_items_decide() -> None:
    plan = ClaimPlan("one", "a claim", 0.02, Noise(0.005, 0.5, 400, 3))
    items = plan.items_needed(5)
    assert items is not None
    assert plan.power(5, items) >= 0.8 > plan.power(5, items - 1)
    assert f"with 5 seeds, {items:,} items." in plan.text(5)
    assert replace(plan, noise=Noise(0.1, 0.5, 400, 3)).items_needed(5) is None
    quiet = replace(plan, noise=Noise(0.005, 0.01, 400, 3))
    assert quiet.items_needed(5) == 400  # not fewer than the pilot's
    assert "does not show the noise" in replace(plan, noise=Noise(0.0, 0.0, 400, 3)).text(5)
    assert "no interval" in ClaimPlan("one", "a count", None).text(3)
