"""The rule that decides claims: its level and power in a simulation, pairing by item, families, plans."""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

from headwater.cli.main import main
from headwater.errors import FolderError
from headwater.evaluation import Result
from headwater.evaluation.figures import ratio_error
from headwater.evaluation.results import examples_writer
from headwater.finetuning import confusion_matrix, matthews
from headwater.reading import read_json
from headwater.report import report
from headwater.storage import Stage, open_folder, write_json
from headwater_papers.claims import CLAIMS, PaperClaim, correct_family, judge, judge_all
from headwater_papers.claims_section import claims_section
from headwater_papers.experiments import EXPERIMENTS
from headwater_papers.items import ItemValues, pseudo_values
from headwater_papers.page import KIND, VERSION, claims_table, fewer_seeds, says_nothing, write_index
from headwater_papers.plan import ClaimPlan, Noise, from_pilot, load_plans
from headwater_papers.scale import load_scale
from headwater_papers.scores import better
from headwater_papers.statistics import (
    FAILS,
    HOLDS,
    OPEN,
    WEAKER,
    Measured,
    Verdict,
    decide,
    differences,
    holm,
    mean_of_sets,
    p_at_least,
    p_value,
)

RUNS = 2_000
HOSTILE = "<script>alert(1)</script>"


def claim_of(text: str) -> PaperClaim:
    return PaperClaim(claim=text, paper="", holds="It holds.", fails="It fails.", undecided="It is open.")


def simulate(random: np.random.Generator, effect: float, seeds: float, items: float, residual: float) -> Measured:
    """A difference on two sets of 60 items with three seeds: seed, item and residual effects as deviations."""
    shared = random.normal(0, seeds, (3, 1))  # one seed is the same model on both sets
    sets = []
    for name in ("a", "b"):
        values = effect + shared + random.normal(0, items, (1, 60)) + random.normal(0, residual, (3, 60))
        errors = values.std(axis=1, ddof=1) / math.sqrt(60)
        found = {name: ItemValues(tuple(map(str, range(60))), values)}
        sets.append(Measured(values.mean(axis=1).tolist(), errors.tolist(), found))
    return mean_of_sets(sets)


def write_examples(records: Iterable[dict[str, Any]], protocol: str, folder: Path) -> None:
    with examples_writer(protocol, folder) as write:
        for record in records:
            write(record)


@pytest.mark.parametrize(
    ("seeds", "items", "residual"), [(0.1, 0.0, 1.0), (0.0, 1.0, 0.3), (0.1, 0.5, 0.5), (0.0, 0.0, 1.0)]
)
def test_a_true_null_is_decided_in_at_most_one_of_twenty_cases(
    seeds: float, items: float, residual: float
) -> None:
    random = np.random.default_rng(7)
    verdicts = [decide(simulate(random, 0.0, seeds, items, residual))[0] for _ in range(RUNS)]
    bound = 0.05 + 3 * math.sqrt(0.05 * 0.95 / RUNS)  # three standard errors of the simulation
    assert verdicts.count(HOLDS) / RUNS <= bound
    assert (RUNS - verdicts.count(OPEN)) / RUNS <= bound


@pytest.mark.parametrize(
    ("protocol", "metric", "record"),
    [
        ("lambada.a", "perplexity", lambda p: {"log_probability": math.log(p)}),
        ("wikitext-2.a", "perplexity", lambda p: {"nats": -math.log(p) * 20, "units": 20.0}),
        ("enwik8.a", "bits per byte", lambda p: {"nats": -math.log(p) * 20, "units": 20.0}),
        ("wsc273.a", "accuracy", lambda p: {"accuracy": float(p > 0.5)}),
        ("cola.a", "matthews", lambda p: {"value": p, "label": int(p > 0.3), "tuned": False}),
    ],
)
def test_zero_shot_scores_of_two_models_are_paired_by_item(
    tmp_path: Path, protocol: str, metric: str, record: Callable[[float], dict[str, Any]]
) -> None:
    random = np.random.default_rng(3)
    ease = random.uniform(0.1, 0.8, 300)  # shared by both models: a hard item is hard for both
    found = []
    for name, chance in (("small", ease), ("large", ease + random.uniform(0.05, 0.15, 300))):
        records = [{"id": str(number), **record(p)} for number, p in enumerate(chance.tolist())]
        (tmp_path / name).mkdir()
        write_examples(records, protocol, tmp_path / name)
        value = {
            "perplexity": math.exp(-np.log(chance).mean()),
            "bits per byte": -np.log2(chance).mean(),
            "accuracy": (chance > 0.5).mean(),
            "matthews": float(matthews(confusion_matrix((chance > 0.3) * 1, (chance > 0.5) * 1, 2))),
        }[metric]
        details = {"threshold": 0.5} if metric == "matthews" else {}
        higher = metric in ("accuracy", "matthews")
        result = Result(
            "one", protocol, metric, float(value), 0.02, 300, 1.0, higher_is_better=higher, details=details
        )
        found.append(better(result, tmp_path / name))
    small, large = found
    assert small.items is not None
    assert small.items["one"].values.mean() == pytest.approx(small[0], abs=0.01)  # exact but for matthews
    assert large[0] > small[0] or metric == "matthews"
    paired = differences(large, small)
    alone = differences(Measured(large, large.errors), Measured(small, small.errors))
    assert paired[0] == pytest.approx(alone[0])
    assert paired.item_error < 0.9 * alone.item_error


def test_a_perplexitys_error_ignores_text_lengths(tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    words = random.integers(10, 100, 200).astype(float)
    nats = words * random.normal(2.0, 0.1, 200)
    records = [
        {"id": str(n), "nats": one[0], "units": one[1]} for n, one in enumerate(zip(nats, words, strict=True))
    ]
    write_examples(records, "1bw.a", tmp_path)
    loss = nats.sum() / words.sum()
    found = better(
        Result("1bw", "1bw.a", "perplexity", math.exp(loss), None, 200, 1.0, higher_is_better=False), tmp_path
    )
    assert found.items is not None
    assert found.items["1bw"].values.mean() == pytest.approx(-loss)
    assert found.item_error == pytest.approx(ratio_error(nats.tolist(), words.tolist()))


def test_bleu_is_not_paired_by_item(tmp_path: Path) -> None:
    write_examples([{"id": "1", "text": "un"}, {"id": "2", "text": "deux"}], "wmt14.a", tmp_path)
    assert better(Result("wmt14", "wmt14.a", "bleu", 3.0, 0.1, 2, 1.0), tmp_path).items is None


def test_the_power_is_as_planned() -> None:
    """For the paper's gain of pre-training, with the noise of a pilot of that kind."""
    effect = next(plan.effect for plan in load_plans() if plan.claim.startswith("Pre-training raises"))
    random = np.random.default_rng(8)
    held = [decide(simulate(random, effect, 0.04, 0.3, 0.0))[0] == HOLDS for _ in range(RUNS)]
    plan = ClaimPlan("x", "claim", effect, Noise(0.04, 0.3, 120, 3))
    assert plan.power(3, 120) == pytest.approx(0.80, abs=0.01)
    assert np.mean(held) == pytest.approx(plan.power(3, 120), abs=4 * 0.5 / math.sqrt(RUNS))
    needed = plan.seeds_needed(120)
    assert needed is not None
    assert plan.power(needed, 120) >= 0.8 > plan.power(needed - 1, 120)
    assert plan.seeds_needed(4) is None  # the error over four items stays, however many seeds there are


def test_the_power_is_that_of_a_claim_corrected_over_its_family() -> None:
    """Three claims of the family are true nulls: Holm's method tests the fourth at a quarter of the level."""
    random = np.random.default_rng(9)
    effect, runs = 0.148, 600
    undecidable = [judge(claim_of(str(number)), [1.0, -1.0, 0.1]) for number in range(3)]
    held = []
    for _ in range(runs):
        finding = judge(claim_of("a"), simulate(random, effect, 0.02, 0.3, 0.0))
        held.append(correct_family([finding, *undecidable])[0].verdict == HOLDS)
    alone = ClaimPlan("x", "claim", effect, Noise(0.02, 0.3, 120, 3))
    corrected = replace(alone, family=4)
    assert np.mean(held) == pytest.approx(corrected.power(3, 120), abs=4 * 0.5 / math.sqrt(runs))
    assert corrected.power(3, 120) < alone.power(3, 120) - 0.1


def test_a_difference_is_paired_only_on_the_same_items() -> None:
    hard = np.linspace(0, 1, 50)
    ids = tuple(map(str, range(50)))
    first, second, other = (
        Measured(
            [float(np.mean(hard + gain))] * 3, [0.04] * 3, {"set": ItemValues(names, np.tile(hard + gain, (3, 1)))}
        )
        for gain, names in ((0.1, ids), (0.0, ids), (0.0, ids[::-1]))
    )
    assert differences(first, second).item_error == pytest.approx(0, abs=1e-9)
    assert differences(first, other).item_error == pytest.approx(0.04 * math.sqrt(2))
    seeds = Measured()
    seeds.add(0.5, 0.1, {"set": ItemValues(("1", "2"), np.ones((1, 2)))})
    seeds.add(0.5, 0.1, {"set": ItemValues(("1", "3"), np.ones((1, 2)))})
    assert seeds.items is None  # seeds that scored other rows are not taken for the same


def test_pseudo_values_have_the_metric_as_their_mean() -> None:
    random = np.random.default_rng(1)
    truth = random.integers(0, 2, 300).astype(float)
    guess = np.where(random.random(300) < 0.8, truth, 1 - truth)

    def metric(a: np.ndarray, b: np.ndarray) -> float:
        return float(matthews(confusion_matrix(a.astype(np.int64), b.astype(np.int64), 2)))

    assert pseudo_values(truth, guess, metric).mean() == pytest.approx(metric(truth, guess), abs=0.01)
    right = (truth == guess).astype(float)
    values = pseudo_values(truth, guess, lambda a, b: float(np.mean(a == b)))
    assert values == pytest.approx(right)


def test_p_of_seeds_that_agree_is_that_of_the_items() -> None:
    assert p_value(Measured([0.5] * 6, [0.25] * 6)) == pytest.approx(2 * ndtr(-2))


def test_holm_corrects_the_claims_of_an_experiment() -> None:
    assert holm([0.01, 0.04, 0.03, None])[0] == [True, False, False, False]
    assert holm([0.01, 0.02, 0.04])[0] == [True, True, True]
    # One hypothesis of the first claim is not rejected, so the second claim is tested at half the level.
    assert holm([0.01, 0.04], [0.9, None])[0] == [True, False]
    assert holm([0.01, 0.04], [0.02, None]) == ([True, True], [True, False])
    near = [0.9, 1.0, 1.4]  # decided by itself
    p = p_value(near)
    assert p is not None
    assert 0.05 / 3 < p < 0.05
    findings = [judge(claim_of("a"), values) for values in (near, [1.0, -1.0, 0.5], [1.0, 0.4, -2.0])]
    assert findings[0].verdict == HOLDS
    corrected = correct_family(findings)[0]
    assert corrected.verdict == OPEN
    assert corrected.sentence.startswith("It is open.")
    assert correct_family(findings[:1])[0].verdict == HOLDS


@pytest.mark.parametrize(("true", "wrong"), [(0.0, (HOLDS, FAILS)), (0.1, (FAILS,)), (0.3, (FAILS, WEAKER))])
def test_excluding_the_expected_effect_adds_no_false_decisions(true: float, wrong: tuple[Verdict, ...]) -> None:
    """Of five claims with an expected effect of 0.3, one is decided wrongly in at most one of twenty families."""
    random = np.random.default_rng(11)
    claim = PaperClaim(claim="a", paper="", holds="", fails="", plans=({"chosen": 0.3, "why": ""},))
    runs = 200
    families = [
        correct_family([judge(claim, simulate(random, true, 0.1, 0.3, 0.3)) for _ in range(5)])
        for _ in range(runs)
    ]
    errors = sum(any(finding.verdict in wrong for finding in family) for family in families)
    assert errors / runs <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / runs)


def test_an_effect_below_the_expected_one_is_decided() -> None:
    claim = PaperClaim(
        claim="{name} helps.", paper="", holds="", fails="", plans=({"name": "A", "of": [5, 2]}, {"name": "B"})
    )
    finding = judge(claim, [0.1, -0.1, 0.05], name="A")
    assert finding.verdict == WEAKER
    assert "smaller than the expected 3.000" in finding.sentence
    assert judge(claim, [0.1, -0.1, 0.05], name="B").verdict == OPEN  # it has no expected effect
    threshold = claim.model_copy(update={"plans": ({"name": "A", "chosen": 3, "why": "", "threshold": True},)})
    assert judge(threshold, [0.1, -0.1, 0.05], name="A").verdict == OPEN
    steps = [[4.0, 4.1, 4.2], [0.1, -0.1, 0.05]]
    assert judge_all(claim, steps, name="A").verdict == WEAKER
    ladder = judge_all(CLAIMS["gpt2_tasks.winograd_ladder"], [[0.001, -0.001, 0.0005], [0.06, 0.061, 0.062]])
    assert ladder.sentence.startswith("At least one step gains less than the expected 4.2 points.")
    corrected = correct_family([judge(claim, [1.0, -0.9, 0.4], name="A")] * 9)[0]
    assert corrected.verdict == OPEN
    assert "weaker than expected." in corrected.sentence


def test_equal_items_bound_the_effect_by_their_number() -> None:
    def none(count: int) -> Measured:
        return Measured(
            [0.0] * 3, [0.0] * 3, {"set": ItemValues(tuple(map(str, range(count))), np.zeros((3, count)))}
        )

    assert p_at_least(none(200), 0.0333) == pytest.approx(2 * (1 - 0.0333) ** 200)
    assert p_at_least(none(2), 0.59) == pytest.approx(2 * 0.41**2)  # two questions do not exclude 59 %
    assert p_at_least(Measured([0.0] * 3), 0.5) == 1.0
    assert p_at_least(none(200), 0.0) == 1.0
    assert p_at_least(none(2), 1.6) == 1.0  # per cent: two texts without a difference exclude nothing


def test_fewer_seeds_than_planned_are_reported() -> None:
    finding = judge(claim_of("A claim."), [1.0, 1.1, 1.2]).to_dict()
    own = {"scale": "own", "findings": [finding]}
    assert "“A claim.” has 3 of 5" in fewer_seeds(own | {"seeds": [1, 2, 3, 4, 5]})[0]
    assert fewer_seeds(own | {"seeds": [1, 2, 3]}) == []
    planned = list(load_scale("mini").seeds)
    told = fewer_seeds({"scale": "mini", "seeds": planned[:3], "findings": [finding]})[0]
    assert f"this run has 3 of the {len(planned)} seeds of the scale mini" in told
    assert fewer_seeds({"scale": "mini", "seeds": planned, "findings": []}) == []


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
    assert {experiment for experiment, _ in plans} == set(EXPERIMENTS)
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


def test_a_model_changes_only_the_experiments_that_use_it() -> None:
    mini = load_scale("mini")
    changed = load_scale("mini", {"models": {"gpt2-a": {"recipe": {"steps": 7}}}})
    differ = {name for name, one in EXPERIMENTS.items() if one.identity(mini) != one.identity(changed)}
    assert differ == {name for name, one in EXPERIMENTS.items() if "gpt2-" in one.models}
    assert "gpt2_zero_shot" in differ
    assert "gpt1_tables" not in differ


def test_results_of_other_configurations_are_not_in_the_index(tmp_path: Path) -> None:
    results_of = {"gpt1_tables": [1, 2, 3], "gpt1_perplexity": [1, 2, 3], "gpt1_layers": [1]}
    for name, seeds in (results_of | {"gpt1_updates": [7, 8, 9]}).items():
        claim = {"claim": f"claim of {name}", "paper": "1", "here": "2", "verdict": HOLDS, "sentence": ""}
        results = {
            "experiment": name,
            "version": VERSION,
            "paper": "GPT-1",
            "title": name,
            "scale": "mini",
            "scale_identity": EXPERIMENTS[name].identity(load_scale("mini", {"seeds": seeds})),
            "seeds": seeds,
            "findings": [claim],
            **dict.fromkeys(("section", "claim", "rule"), ""),
            **dict.fromkeys(("rows", "setup", "notes", "figures"), ()),
        }
        planned = load_scale("mini").experiments.get(name, {})
        config = {"settings": {"windows": 7} if name == "gpt1_perplexity" else planned}
        with Stage(tmp_path / name, kind=KIND, config=config, inputs={}).write() as work:
            write_json(work / "results.json", results)
            write_json(work / "made.json", {"commit": "", "machine": "", "versions": {}, "command": ""})
    write_index(tmp_path, load_scale("mini", {"seeds": [1]}))
    assert "claim of gpt1_tables" in (tmp_path / "README.md").read_text(encoding="utf-8")  # more seeds than asked
    write_index(tmp_path)
    page = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "claim of gpt1_tables" in page
    assert "claim of gpt1_updates" not in page
    assert "another configuration than the rest:** gpt1_updates (scale mini, seeds 7, 8, 9)" in page
    assert "claim of gpt1_layers" in page
    assert "fewer seeds than the rest: gpt1_layers (1)" in page
    assert "With other settings than the scale's: gpt1_perplexity (windows = 7).\n" in page
    write_index(tmp_path, load_scale("mini", {"experiments": {"gpt1_perplexity": {"windows": 7}}}))
    page = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "gpt1_perplexity (windows" not in page


def test_published_results_are_whole_and_name_no_local_folder() -> None:
    published = sorted(
        path.parent for path in (Path(__file__).parents[2] / "papers/results").glob("*/results.json")
    )
    assert published
    for folder in published:
        command = open_folder(folder, KIND).command
        assert command == read_json(folder / "made.json")["command"]
        assert "--data" not in command
        assert "--out" not in command


def test_only_results_of_a_scale_that_ships_are_published(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tools = Path(__file__).parents[1] / "tools"
    spec = importlib.util.spec_from_file_location("publish_results", tools / "publish_results.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    shipped = load_scale("mini")
    few = load_scale("mini", {"seeds": shipped.seeds[:3]})
    limit = {"experiments": dict(shipped.experiments) | {"gpt2_zero_shot": {"limit": 3}}}
    for scale, reason in (
        (shipped, ""),
        (few, ""),
        (load_scale("mini", {"seeds": [7, 8, 9]}), "begins with others"),
        (shipped.model_copy(update={"name": "own"}), "does not come with Headwater"),
        (shipped.model_copy(update={"texts": {}}), "other settings"),
        (shipped.model_copy(update=limit), "other settings"),
    ):
        folder = tmp_path / "out" / "gpt2_zero_shot"
        folder.mkdir(parents=True, exist_ok=True)
        identity = EXPERIMENTS[folder.name].identity(scale)
        results = {"experiment": folder.name, "scale": scale.name, "scale_identity": identity}
        write_json(folder / "results.json", results | {"seeds": list(scale.seeds)})
        write_json(folder / "made.json", {} if scale.changed == [] else {"scale": scale.to_dict()})
        assert (reason in tool.foreign(folder)) if reason else (tool.foreign(folder) == "")
    assert tool.main([str(tmp_path / "out"), str(tmp_path / "docs")]) == 1
    assert "Nothing was copied" in capsys.readouterr().out
    assert not (tmp_path / "docs").exists()


def test_a_claim_about_useless_scores_is_marked() -> None:
    finding = {"paper": "–", "verdict": HOLDS, "claim": "LAMBADA perplexity falls."}
    useless = finding | {"here": "1.662e+07 → 8,895,000 → 6.045e+06; least certain step 0.1 nats"}
    useful = finding | {"here": "1,090,302 → 120.5"}
    results = [{"experiment": "one", "findings": [useless, useful]}]
    table = claims_table(results, linked=True)
    assert sum(line.endswith("| holds |") for line in table) == 1
    assert "6,045,000, is above that of a uniform guess" in table[-1]
    assert any(line.endswith("| holds, but says nothing |") for line in claims_table(results, linked=False))
    assert says_nothing(finding | {"here": "0 → 0 → 0"}) == "Every model has 0."
    assert not says_nothing(finding | {"here": "91.7 (85.7 to 97.6)"})


def test_the_report_shows_claims_with_the_papers_numbers(tmp_path: Path) -> None:
    finding = {"claim": f"It helps {HOSTILE}", "paper": "74.7", "here": "61.2", "verdict": "does not hold"}
    row = {"setting": "sst2", "measure": "accuracy", "value": 0.612, "low": 0.6, "high": 0.62, "seeds": 3}
    results = {
        "experiment": "gpt1_x",
        "title": "Ablations",
        "paper": "GPT-1",
        "section": "5",
        "scale": "mini",
        "claim": "Everything helps.",
        "rule": "By the interval.",
        "findings": [
            finding | {"sentence": "It does not."},
            {"claim": "It falls.", "paper": "9", "here": "1e6 → 1e5", "verdict": "holds", "sentence": "It does."}
            | {"empty": "Worse than a guess."},
        ],
        "rows": [row | {"published": 0.747, "examples": 100, "note": HOSTILE}],
        "setup": [["text", "novels"]],
        "notes": [],
        "figures": ["table-5"],
    }
    made = {"commit": "abc", "machine": "2 cores", "command": "headwater reproduce gpt1_x"}
    folder = tmp_path / "gpt1_x"
    with Stage(folder, kind=KIND, config={}, inputs={}).write() as work:
        write_json(work / "results.json", results)
        write_json(work / "made.json", made)
        (work / "table-5.svg").write_text("<svg/>")
    page = report([folder], tmp_path / "page.html", section=claims_section([folder])).read_text()
    assert '<span class="verdict open">holds, but says nothing</span>' in page
    assert "Worse than a guess." in page
    assert "It does." not in page
    assert HOSTILE not in page
    for shown in ("74.7", "61.2", "does not hold", "0.747", "data:image/svg+xml;base64,"):
        assert shown in page
    assert 'href="#provenance"' in page
    assert 'id="provenance"' in page
    with pytest.raises(FolderError, match="another format"):
        (folder / "results.json").write_text("{}")
        claims_section([folder])
