"""A spike and a stall are said, and an ordinary run is not disturbed."""

from __future__ import annotations

import random

from headwater.training.watch import Watch


def test_a_spike_is_reported_when_it_occurs() -> None:
    rng = random.Random(3)
    watch = Watch(1_000)
    said = [watch.spike(step, 4 - step / 1_000 + rng.gauss(0, 0.05)) for step in range(1, 301)]
    assert said == [None] * 300
    sentence = watch.spike(301, 9.0)
    assert sentence is not None
    assert "jumped to 9.000 at step 301" in sentence


def test_a_resumed_run_compares_with_the_losses_before_it() -> None:
    watch = Watch(1_000)
    watch.resume({"step": step, "loss": 4.0 - step / 1_000} for step in range(1, 101))
    assert watch.spike(101, 9.0) is not None
    watch = Watch(5_000)
    watch.resume({"step": step, "loss": 3.0} for step in range(1, 2_000))
    assert watch.stall(2_000, 3.0) is not None


def test_a_stall_is_reported_once_after_two_windows() -> None:
    falling, standing = Watch(5_000), Watch(5_000)  # windows of a thousand updates
    assert [falling.stall(step, 5 - step / 2_000) for step in range(1, 5_001)] == [None] * 5_000
    said = {step: text for step in range(1, 5_001) if (text := standing.stall(step, 3.0))}
    assert list(said) == [2_000]
    assert "last 1,000 updates" in said[2_000]
