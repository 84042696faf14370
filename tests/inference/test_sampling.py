from __future__ import annotations

import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import DataError, UsageError
from headwater.inference import Request, uniform
from headwater.inference.sampling import (
    Sampling,
    alternatives,
    choose,
    choose_rows,
    draw,
    kth_largest,
)


def test_top_k_is_the_originals(golden_data: Path) -> None:
    """What OpenAI's own program leaves of three rows of logits; what it removes is −1e10."""
    expected = np.load(golden_data / "golden" / "gpt2-release-toy" / "expected.npz")
    logits = expected["filter_logits"]
    for name in (n for n in expected if n.startswith("topk_") and n != "topk_0"):
        for row, left in zip(logits, expected[name], strict=True):
            np.testing.assert_array_equal(row >= kth_largest(row, int(name[5:])), left > -1e9, name)


logits = st.lists(st.floats(min_value=-8, max_value=8, width=32), min_size=2, max_size=30).map(
    lambda values: np.array(values, dtype=np.float32)
)


@given(row=logits, seed=st.integers(min_value=0), k=st.integers(min_value=1, max_value=5))
def test_top_k_draws_only_from_the_k_likeliest_and_their_ties(row: np.ndarray, seed: int, k: int) -> None:
    token = choose(row, Sampling(top_k=min(k, len(row))), [], uniform(seed, 0, 0))
    assert (row > row[token]).sum() < k


@pytest.mark.parametrize("size", [2, 511, 512, 2_000, 50_257])
def test_the_kth_largest_is_that_of_the_sorted_logits(size: int) -> None:
    chance = np.random.default_rng(size)
    for row in (chance.standard_normal(size), chance.integers(0, 4, size), np.full(size, -np.inf)):
        row = row.astype(np.float32)
        for k in {1, 2, min(40, size), min(512, size), min(513, size), size}:
            assert kth_largest(row, k) == np.sort(row)[-k]


@given(row=logits, seed=st.integers(min_value=0))
def test_greedy_is_temperature_zero_and_top_k_one_without_ties(row: np.ndarray, seed: int) -> None:
    likeliest = int(row.argmax())
    assert choose(row, Sampling(temperature=0), [], uniform(seed, 0, 0)) == likeliest
    assert row[choose(row, Sampling(top_k=1), [], uniform(seed, 0, 0))] == row[likeliest]


def test_top_k_keeps_ties_and_top_p_the_smallest_set() -> None:
    tied = np.array([1.0, 1.0, 0.0], np.float32)
    assert choose(tied, Sampling(top_k=1), [], 0.9) == 1
    halves = np.log(np.array([0.5, 0.25, 0.25], np.float32))
    assert choose(halves, Sampling(top_p=0.5), [], 0.9) == 0
    assert choose(halves, Sampling(top_p=0.51), [], 0.9) == 2


def test_min_p_is_applied_before_top_p() -> None:
    row = np.log(np.array([0.4, 0.3, 0.2, 0.1], np.float32))
    both = Sampling(min_p=0.6, top_p=0.5)
    assert choose(row, both, [], 0.99) == 0
    assert choose_rows(torch.from_numpy(row)[None], [both], [0.99]).tolist() == [0]


def test_values_at_the_ends_of_their_ranges_stay_numbers() -> None:
    row = np.array([30.0, -40.0, 20.0, 0.0], dtype=np.float32)
    for far in (1e15, 1e-15):
        for sign in (1, -1):
            wild = Sampling(
                temperature=far,
                repetition_penalty=far,
                presence_penalty=sign * far,
                frequency_penalty=-sign * far,
                bias={0: sign * far, 1: -sign * far},
            )
            choose(row, wild, [0, 1, 2], 0.5, [1, 2, 2])


@pytest.mark.parametrize("temperature", [1e-6, 1e-40, 1e-60])
def test_a_temperature_near_zero_draws_among_the_likeliest(temperature: float) -> None:
    row = np.array([0.5, 1.0, -np.inf, 1.0, -3.0], dtype=np.float32)
    drawn = {choose(row, Sampling(temperature=temperature), [], uniform(1, 0, i)) for i in range(50)}
    assert drawn == {1, 3}


def test_draws_follow_the_probabilities() -> None:
    weights = np.array([0.5, 0.0, 0.3, 0.2], dtype=np.float32)
    counts = np.bincount([draw(weights, uniform(1, 0, i)) for i in range(20_000)], minlength=4)
    np.testing.assert_allclose(counts / 20_000, weights, atol=0.015)
    assert draw(weights, 1 - 2**-53) == 3


def test_random_numbers_follow_seed_sample_and_position(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    numbers = {uniform(s, n, p) for s in (0, 1) for n in (0, 1) for p in (0, 1)}
    assert len(numbers) == 8
    largest = SimpleNamespace(digest=lambda: bytes([255] * 8))
    monkeypatch.setattr(hashlib, "blake2b", lambda *_, **__: largest)
    assert uniform(0, 0, 0) == 1 - 2**-53


def test_penalty_and_bias_apply_before_temperature() -> None:
    row = np.array([2.0, 1.5, -1.0], dtype=np.float32)
    assert choose(row, Sampling(temperature=0, repetition_penalty=2.0), [0], 0.0) == 1
    assert choose(row, Sampling(temperature=0, bias={2: 10.0}), [], 0.0) == 2
    np.testing.assert_array_equal(row, [2.0, 1.5, -1.0])


def test_alternatives_are_of_the_model_itself() -> None:
    """Their probabilities are over all rows of the output; rows that are not tokens are never named."""
    rows = torch.tensor([[0.2, 0.4, 0.3, 0.1], [0.1, 0.1, 0.2, 0.6]]).log()
    first, second = alternatives(rows, [0, 1], [0, 2], 2, vocabulary=3)
    assert first.log_probability == pytest.approx(np.log(0.2), abs=1e-6)
    assert [token for token, _ in first.likeliest] == [1, 2]
    assert second.likeliest[0] == (2, pytest.approx(np.log(0.2), abs=1e-6))
    assert alternatives(rows, [0, 1], [0, 2], 0, vocabulary=3)[0].likeliest == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -1},
        {"temperature": float("nan")},
        {"top_p": 0},
        {"top_k": -1},
        {"repetition_penalty": 5e-324},
        {"presence_penalty": -1e39},
        {"bias": {1: 1e39}},
    ],
)
def test_values_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        Sampling.build(wrong)


@pytest.mark.parametrize("temperature", [0, 1])
def test_logits_that_are_not_finite_are_refused(temperature: float) -> None:
    row = np.array([1.0, np.nan, 0.5], dtype=np.float32)
    with pytest.raises(DataError, match="largest logit is nan"):
        choose(row, Sampling(temperature=temperature), [], 0.5)


def test_top_k_beyond_the_vocabulary_is_all_tokens() -> None:
    row = torch.tensor([1.0, 0.5, 0.2])
    for number in (0.1, 0.5, 0.99):
        chosen = {choose(row.numpy(), Sampling(top_k=k), [], number) for k in (0, 3, 40)}
        chosen |= {int(choose_rows(row[None], [Sampling(top_k=k)], [number])) for k in (0, 3, 40)}
        mixed = choose_rows(row.repeat(2, 1), [Sampling(top_k=40), Sampling(top_k=2)], [number] * 2)
        assert {int(mixed[0])} == chosen


def test_what_does_not_fit_the_model_is_refused() -> None:
    with pytest.raises(UsageError, match="token id 10"):
        Request(prompt=(1,), bias={10: 1.0}).length(8, 10)
