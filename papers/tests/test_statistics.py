"""The rule that decides claims: its level and power in a simulation, pairing by item, families."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

from headwater.evaluation import Figure, Result
from headwater.evaluation.results import examples_writer
from headwater.finetuning import confusion_matrix, matthews
from headwater_papers.claims import CLAIMS, PaperClaim, correct_family, judge, judge_all
from headwater_papers.experiment import Row
from headwater_papers.items import ItemValues, pseudo_values
from headwater_papers.plan import ClaimPlan, Noise, load_plans
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
    over_seeds,
    p_at_least,
    p_value,
    student_quantile,
)

RUNS = 2_000


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
        figure = Figure(metric, float(value), 0.02, 300, details)
        result = Result(**vars(figure), task="one", protocol=protocol, seconds=1.0, higher_is_better=higher)
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
        Result(
            "perplexity",
            math.exp(loss),
            None,
            200,
            task="1bw",
            protocol="1bw.a",
            seconds=1.0,
            higher_is_better=False,
        ),
        tmp_path,
    )
    assert found.items is not None
    assert found.items["1bw"].values.mean() == pytest.approx(-loss)
    assert found.item_error == pytest.approx(Figure.ratio("", nats.tolist(), words.tolist()).stderr)


def test_bleu_is_not_paired_by_item(tmp_path: Path) -> None:
    write_examples([{"id": "1", "text": "un"}, {"id": "2", "text": "deux"}], "wmt14.a", tmp_path)
    assert (
        better(Result("bleu", 3.0, 0.1, 2, task="wmt14", protocol="wmt14.a", seconds=1.0), tmp_path).items is None
    )


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


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([0.9, 1.0, 1.1], HOLDS),
        ([-0.9, -1.0, -1.1], FAILS),
        ([1.0, -1.0, 0.5], OPEN),
        ([1.0, 1.0], OPEN),  # too few seeds
    ],
)
def test_the_rule_decides_by_the_interval(values: list[float], verdict: str) -> None:
    assert decide(values)[0] == verdict


def test_the_interval_is_students() -> None:
    # Mean 2, standard deviation 1, t(2) = 4.302653 at 97.5 %.
    value, low, high = over_seeds([1.0, 2.0, 3.0])
    assert value == 2.0
    assert low == pytest.approx(2 - 4.302653 / 3**0.5)
    assert high == pytest.approx(2 + 4.302653 / 3**0.5)


@pytest.mark.parametrize("freedom", [1, 2, 15, 16, 30, 200])
def test_the_quantiles_are_students(freedom: int) -> None:
    from scipy.stats import t

    assert student_quantile(freedom) == pytest.approx(t.ppf(0.975, freedom), abs=1e-3)


def test_an_interval_has_the_error_of_the_items_too() -> None:
    alike = Measured([0.509, 0.510, 0.511], [0.03] * 3)  # three seeds agree on 273 schemas
    assert decide([0.009, 0.010, 0.011])[0] == HOLDS  # as the spread over seeds alone has it
    assert decide(alike.linear(1.0, -0.5))[0] == OPEN
    low, high = over_seeds(alike)[1:]
    assert low is not None
    assert high is not None
    assert high - low == pytest.approx(2 * math.hypot(1.959964 * 0.03, 4.303 * 0.001 / math.sqrt(3)), rel=1e-3)
    assert differences(alike, alike).item_error == pytest.approx(0.03 * math.sqrt(2))
    assert alike.map(math.log).item_error == pytest.approx(0.03 / 0.51, rel=1e-3)
    wrong = Measured()
    for _ in range(3):
        wrong.add(0.0, 0.005, {"lambada": ItemValues(("1", "2", "3"), np.zeros((1, 3)))})
    assert over_seeds(wrong).high == pytest.approx(1.959964 * 0.005)  # none of three is not certainly none of all
    with pytest.raises(TypeError, match="needs their error"):
        Row("a model", "accuracy", [0.5, 0.6], examples=100)
