"""95 % intervals: inside their bounds, wide for few examples, and right about as often as they say."""

from __future__ import annotations

import numpy as np
import pytest

from headwater.intervals import of_paired_shares, of_score, wilson


@pytest.mark.parametrize(("value", "low", "high"), [(0.0, 0.0, 0.037), (1.0, 0.963, 1.0)])
def test_none_or_all_of_a_hundred_is_not_certain(value: float, low: float, high: float) -> None:
    for metric in ("accuracy", "exact match, most confident 1 %", "f1"):
        assert of_score(metric, value, 0.0, 100) == pytest.approx((low, high), abs=5e-4)
    assert of_score("bleu", value, 0.0, 100) == (None, None)  # not a share of the examples


def test_a_share_of_two_examples_stays_between_0_and_1() -> None:
    for metric in ("accuracy", "f1", "rouge-1"):
        low, high = of_score(metric, 0.5, 0.5, 2)
        assert low is not None
        assert high is not None
        assert low == pytest.approx(1 - high)
        assert 0 < low < 0.2


def test_a_mean_of_shares_has_the_interval_of_its_error() -> None:
    assert of_score("f1", 0.5, 0.05, 1_000) == pytest.approx(wilson(50, 100))
    assert of_score("perplexity", 20.0, 1.0, 9) == pytest.approx((18.13, 22.06), abs=0.01)
    assert of_score("accuracy", 0.5, None, 1) == (None, None)


@pytest.mark.parametrize(("metric", "value", "low", "high"), [("perplexity", 3, 0, 1e9), ("matthews", 0.9, -1, 1)])
def test_an_interval_stays_in_the_range_of_its_metric(metric: str, value: float, low: float, high: float) -> None:
    interval = of_score(metric, value, 2.0, 2)
    assert interval[0] is not None
    assert interval[1] is not None
    assert low <= interval[0] < value < interval[1] <= high


def test_a_difference_of_two_examples_is_not_certain() -> None:
    low, high = of_paired_shares([(1.0, 0.0), (1.0, 0.0)])
    assert low == -1.0
    assert -0.5 < high < 0
    low, high = of_paired_shares([(1.0, 1.0), (1.0, 1.0)])
    assert low == -high
    assert high > 0.5


@pytest.mark.parametrize("shares", [(0.4, 0.25, 0.1, 0.25), (0.8, 0.1, 0.05, 0.05), (0.1, 0.3, 0.3, 0.3)])
def test_paired_intervals_cover_the_difference(shares: tuple[float, ...]) -> None:
    outcomes = np.array([(1, 1), (1, 0), (0, 1), (0, 0)], dtype=float)
    random = np.random.default_rng(0)
    covered = 0
    for _ in range(2_000):
        pairs = outcomes[random.choice(4, 25, p=shares)]
        low, high = of_paired_shares([(x, y) for x, y in pairs.tolist()])
        covered += low <= shares[2] - shares[1] <= high
    assert 0.93 < covered / 2_000 < 0.99


def test_a_users_accuracy_in_per_cent_has_an_interval() -> None:
    assert of_score("accuracy, per cent", 50.0, 2.0, 100) == pytest.approx((46.08, 53.92), abs=0.01)
    assert of_score("exact match", 101.0, 0.0, 100) == (None, None)
    assert of_score("accuracy", 0.5, 0.1, 0) == (None, None)
    assert of_score("f1", 0.5, 1e-200, 100) == pytest.approx((0.404, 0.596), abs=0.001)
