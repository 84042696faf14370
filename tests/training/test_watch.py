"""A spike is reported, and an ordinary run is not disturbed."""

from __future__ import annotations

import random

from headwater.training.watch import Watch


def test_a_spike_is_reported_when_it_occurs() -> None:
    rng = random.Random(3)
    watch = Watch()
    said = [watch.spike(step, 4 - step / 1_000 + rng.gauss(0, 0.05)) for step in range(1, 301)]
    assert said == [None] * 300
    sentence = watch.spike(301, 9.0)
    assert sentence is not None
    assert "jumped to 9.000 at step 301" in sentence


def test_a_resumed_run_compares_with_the_losses_before_it() -> None:
    watch = Watch()
    watch.resume({"step": step, "loss": 4.0 - step / 1_000} for step in range(1, 101))
    assert watch.spike(101, 9.0) is not None
