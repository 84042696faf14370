"""The learning rate is the original's where it claims to be, and today's form elsewhere."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from headwater.errors import UsageError
from headwater.training import Schedule, TrainConfig
from headwater.training.schedule import learning_rate_factor

STEPS = 40


@pytest.mark.parametrize("name", ["linear", "cosine"])
def test_gpt1_forms_are_the_original_programs(golden_data: Path, name: str) -> None:
    golden = np.load(golden_data / "golden" / "gpt1_finetune_steps.npz")
    share = json.loads(str(golden["config"]))["lr_warmup"]
    expected = golden[f"schedule_warmup_{name}"][1:]  # at 1/40, 2/40, …, 1: after the counter was incremented
    got = [learning_rate_factor(f"gpt1-{name}", t, STEPS, share * STEPS) for t in range(STEPS)]
    np.testing.assert_allclose(got, expected, atol=1e-6)


@pytest.mark.parametrize("schedule", ["gpt1-linear", "gpt1-cosine"])
def test_a_single_update_trains_as_the_first_of_two(schedule: Schedule) -> None:
    for warmup in (0.0, 2.0):
        alone, first = (learning_rate_factor(schedule, 0, steps, warmup) for steps in (1, 2))
        assert alone == first > 0


def test_todays_forms_rise_linearly_and_fall_to_the_final_rate() -> None:
    cosine = [learning_rate_factor("cosine", t, 110, 10, final_rate=0.1) for t in range(110)]
    assert cosine[:10] == pytest.approx([(t + 1) / 10 for t in range(10)])
    assert cosine[10] == 1.0
    halfway = 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi / 2))
    assert cosine[60] == pytest.approx(halfway)
    assert all(a > b > 0.1 for a, b in pairwise(cosine[10:]))
    linear = [learning_rate_factor("linear", t, 110, 10) for t in range(110)]
    assert linear[60] == pytest.approx(0.5)
    assert {learning_rate_factor("constant", t, 110, 10) for t in range(10, 110)} == {1.0}


def test_a_warmup_shorter_than_one_update_is_none() -> None:
    assert learning_rate_factor("gpt1-linear", 0, 100, 0.2) == pytest.approx(0.99)
    assert learning_rate_factor("linear", 0, 100, 0.2) == 1.0


def test_wsd_keeps_the_peak_and_falls_over_the_last_fifth() -> None:
    factors = [learning_rate_factor("wsd", t, 100, 10, final_rate=0.1) for t in range(100)]
    assert factors[4] == pytest.approx(0.5)
    assert set(factors[10:81]) == {1.0}
    assert factors[90] == pytest.approx(0.55)
    assert all(a > b for a, b in pairwise(factors[80:]))


@pytest.mark.parametrize("schedule", ["gpt1-linear", "gpt1-cosine", "constant"])
def test_a_final_rate_that_the_schedule_does_not_have_is_refused(schedule: str) -> None:
    with pytest.raises(UsageError, match=f"schedule = {schedule} has no final_rate"):
        TrainConfig.build({"schedule": schedule, "final_rate": 0.1})
