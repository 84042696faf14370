"""What `encode` and `fit` do at the edges: many rows, few, weighted, pairs in both orders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headwater.finetuning import FinetuneConfig, FineTuned, Labels, Raw, arrange_rows, measure_decisions
from headwater.finetuning.learning import members as members_module
from headwater.finetuning.learning.bases import open_base
from headwater.finetuning.learning.config import Policy
from headwater.finetuning.learning.examples import Examples, encode
from headwater.finetuning.learning.fit import fit
from headwater.finetuning.learning.linear import fit_path, sampled
from headwater.finetuning.model.fine_tuned import decide
from headwater.finetuning.model.heads import PooledModel
from headwater.finetuning.rows.split import folds


def rows(count: int) -> list[Raw]:
    """Rows of two classes in turn, which a word decides."""
    words = {"good": "lovely", "bad": "awful"}
    labels = [("good", "bad")[number % 2] for number in range(count)]
    return [Raw((f"film {n} was {words[label]}",), label, n + 1) for n, label in enumerate(labels)]


def examples(config: FinetuneConfig, base: Path, given: list[Raw], weights: np.ndarray | None = None) -> Examples:
    return encode(arrange_rows(config, {"train": ("rows", given)}), open_base(config, base), config, weights)


def test_a_sample_of_rows_in_turn_has_both_classes() -> None:
    for count in (40, 41, 80):
        places = sampled(np.arange(count), 40)
        assert len(places) == 40
        assert (np.diff(places) > 0).all()
        assert len(set(places % 2)) == 2
        assert np.array_equal(places, sampled(np.arange(count), 40))


def test_lp_ft_alone_predicts_the_same_from_its_folder(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members_module, "poolings", lambda base: ("last",))
    config = FinetuneConfig.build({"recipe": "lp-ft", "epochs": 1})
    model = fit(examples(config, base, rows(24)), config).model
    (tmp_path / "m").mkdir()
    model.save(tmp_path / "m")
    encoded = model.encode(rows(6), None)
    again = FineTuned.load(tmp_path / "m")
    np.testing.assert_allclose(
        again.probabilities(again.encode(rows(6), None)), model.probabilities(encoded), atol=1e-6
    )


@pytest.mark.parametrize("count", [3, 4, 5])
def test_too_few_texts_for_folds_are_split(base: Path, count: int) -> None:
    config = FinetuneConfig.build({"recipe": "tfidf"})
    prepared = examples(config, base, rows(count))
    assert not prepared.crossed
    assert fit(prepared, config).measured.probabilities.shape[1] == 2


def test_rows_that_are_split_off_keep_their_weights(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("examples", "parts"):
        monkeypatch.setattr(
            f"headwater.finetuning.learning.{module}.POLICY", Policy(few_rows=10, few_per_output=1)
        )
    config = FinetuneConfig.build({"recipe": "tfidf", "validation_share": 0.25})
    weights = np.array([3.0, 1.0] * 20)
    prepared = examples(config, base, rows(40), weights)
    assert len(prepared.weights) == 40
    assert {round(float(one), 6) for one in prepared.weights} == {0.5, 1.5}


def test_both_orders_of_a_pair_are_in_one_fold() -> None:
    pairs = [Raw((f"first {n}", f"second {n}"), "a", n) for n in range(20)]
    swapped = [Raw(row.segments[::-1], "b", row.row + 20) for row in pairs]
    fold = folds([*pairs, *swapped], np.zeros(40), 1, 3)
    assert fold is not None
    assert np.array_equal(fold[:20], fold[20:])


def test_a_regression_without_weight_knows_nothing() -> None:
    targets = np.eye(2, dtype=np.float32)[[0, 1, 1]]
    (linear,) = fit_path(np.eye(3, dtype=np.float32), targets, np.zeros(3, np.float32), [1.0], False)
    logits = linear.logits(np.eye(3, dtype=np.float32))
    assert np.array_equal(logits[:, 0], logits[:, 1])


def test_a_regression_that_is_worse_than_the_tuned_head_is_not_kept(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoil(model: PooledModel, *_: Any) -> None:
        model.set_head(np.zeros(model.head.weight.shape, np.float32), np.array([9, -9], np.float32))

    for module in ("examples", "parts"):
        monkeypatch.setattr(
            f"headwater.finetuning.learning.{module}.POLICY", Policy(few_rows=10, few_per_output=1)
        )
    monkeypatch.setattr(members_module, "_fit_head", spoil)
    config = FinetuneConfig.build({"recipe": "lp-ft", "epochs": 1})
    fitted = fit(examples(config, base, rows(40)), config)
    assert fitted.model.members["lp-ft"].head.weight.abs().sum() > 0


def test_scores_of_a_large_offset_are_kept() -> None:
    labels = Labels(target="score", names=[str(n) for n in range(11)], levels=[100_000.0 + n for n in range(11)])
    shares = np.full((1, 11), 0, np.float32)
    shares[0, 6] = 0.9999  # weights of a mixture are rounded
    assert decide(labels, shares)[0] == pytest.approx(100_006, abs=0.01)


def test_a_correlation_of_three_rows_says_nothing() -> None:
    measured = measure_decisions("score", np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 6.0]), 0)
    assert measured["pearson"]["interval"] == [-1.0, 1.0]
