"""Metrics equal scikit-learn's and scipy's, and their intervals equal resampling example by example."""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as theirs

from headwater.finetuning.results import metrics

choices = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=40)
measure = partial(metrics.measure_decisions, "class")
scores = st.lists(st.tuples(st.integers(-5, 5), st.integers(-5, 5)), min_size=2, max_size=40)


@given(choices, st.sampled_from([2, 3]))
def test_class_metrics_equal_scikit_learns(pairs: list[tuple[int, int]], classes: int) -> None:
    truth, chosen = (np.array(side) % classes for side in zip(*pairs, strict=True))
    confusion = metrics.confusion_matrix(truth, chosen, classes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        average = "binary" if classes == 2 else "macro"
        # Of more classes, those that occur in neither are left out.
        f1 = theirs.f1_score(truth, chosen, average=average, zero_division=0)
        matthews = theirs.matthews_corrcoef(truth, chosen)
    assert metrics.METRICS["accuracy"](confusion) == pytest.approx(theirs.accuracy_score(truth, chosen))
    assert metrics.METRICS["f1"](confusion) == pytest.approx(f1)
    assert metrics.matthews(confusion) == pytest.approx(matthews, abs=1e-9)


@given(scores)
def test_correlations_equal_scipys(pairs: list[tuple[int, int]]) -> None:
    first, second = (np.array(side, dtype=np.float64) for side in zip(*pairs, strict=True))
    if first.std() == 0 or second.std() == 0:
        assert metrics.pearson(first, second) == metrics.spearman(first, second) == 0
        return
    assert metrics.pearson(first, second) == pytest.approx(stats.pearsonr(first, second).statistic, abs=1e-9)
    assert metrics.spearman(first, second) == pytest.approx(stats.spearmanr(first, second).statistic, abs=1e-9)


def test_intervals_equal_those_of_resampled_examples() -> None:
    random = np.random.default_rng(0)
    truth = random.integers(0, 2, 300)
    chosen = np.where(random.random(300) < 0.8, truth, 1 - truth)
    measured = measure(truth, chosen, 2)
    drawn = [random.integers(0, 300, 300) for _ in range(2_000)]
    for name in ("accuracy", "f1", "macro_f1", "matthews"):
        metric = metrics.METRICS[name]
        resampled = [metric(metrics.confusion_matrix(truth[rows], chosen[rows], 2)) for rows in drawn]
        assert measured[name]["interval"] == pytest.approx(np.percentile(resampled, [2.5, 97.5]), abs=0.02)
    with pytest.MonkeyPatch.context() as patch:  # drawn in parts, they are the same
        patch.setattr(metrics, "_CELLS", 28)
        assert measure(truth, chosen, 2) == measured
    for chosen, interval in (
        (truth, [1 - 0.0126, 1]),
        (1 - truth, [0, 0.0126]),
    ):  # Wilson's, of 300 of 300 and of none
        assert measure(truth, chosen, 2)["accuracy"]["interval"] == pytest.approx(interval, abs=1e-4)
    low, high = metrics.measure_decisions("score", truth + 0.0, chosen + random.random(300), 0)["pearson"][
        "interval"
    ]
    assert low < high


@pytest.mark.parametrize("count", [40, 300])
@pytest.mark.parametrize("classes", [2, 5])
def test_all_right_or_all_wrong_is_not_certain(count: int, classes: int) -> None:
    """The bound is the rate of errors at which so many right answers in a row have a chance of 2.5 %."""
    truth = np.arange(count) % classes
    bound = 1 - 0.025 ** (1 / count)
    for name in ("f1", "macro_f1", "matthews"):
        right = measure(truth, truth, classes)[name]
        assert right["interval"][1] == right["value"] == 1
        assert 1 - right["interval"][0] == pytest.approx(bound * (2 if name == "matthews" else 1), rel=0.4)
        if name != "matthews" or classes == 2:  # of five classes, Matthews' of all wrong has a spread
            wrong = measure(truth, (truth + 1) % classes, classes)[name]
            assert wrong["interval"][0] == wrong["value"] == (-1 if name == "matthews" else 0)
            assert wrong["interval"][1] - wrong["value"] > bound / 2
        low, high = measure(truth, np.zeros_like(truth), classes)[name]["interval"]
        assert low < high, "one class for all"


def test_thirty_thousand_classes_need_little_memory() -> None:
    random = np.random.default_rng(0)
    truth = random.integers(0, 30_000, 500)
    chosen = np.where(random.random(500) < 0.8, truth, 0)
    measured = measure(truth, chosen, 30_000)  # a dense confusion matrix would take 7 GB
    low, high = measured["macro_f1"]["interval"]
    assert low < measured["macro_f1"]["value"] <= high
    perfect = measure(truth, truth, 30_000)["f1"]
    assert perfect["interval"][0] < perfect["value"] == perfect["interval"][1]
