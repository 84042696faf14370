"""The scaling law: it finds what made the losses, and a budget's best shape is the best."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from headwater.model import build_model, preset
from headwater_papers import reproduce
from headwater_papers.experiments import EXPERIMENTS
from headwater_papers.laboratory import Laboratory
from headwater_papers.scale import Scale, load_scale, training_flops
from headwater_papers.scaling import Law, ScalingRun, fit, names, resampled, scaling_run, undetermined

TRUE = Law(0.08, 1e14, 0.11, 3e13)


def runs(noise: float) -> list[ScalingRun]:
    draws = np.random.default_rng(3)
    return [
        ScalingRun(
            "", size, tokens, TRUE.loss(size, tokens) * float(np.exp(noise * draws.standard_normal())), 1e11
        )
        for size in (2e5, 6e5, 2e6, 7e6)
        for tokens in (5e5, 1e6, 2e6, 4e6)
    ]


def test_a_fit_finds_the_law_that_made_the_losses() -> None:
    found = fit(runs(0.0))
    assert found.alpha_n == pytest.approx(TRUE.alpha_n, rel=0.02)
    assert found.alpha_d == pytest.approx(TRUE.alpha_d, rel=0.02)
    assert found.loss(5e7, 1e8) == pytest.approx(TRUE.loss(5e7, 1e8), rel=0.01)


def test_a_forecasts_interval_covers_the_truth_and_repeats() -> None:
    noisy = runs(0.004)
    forecasts = [law.loss(7e6, 3e7) for law in resampled(noisy)]
    low, high = np.quantile(forecasts, (0.025, 0.975))
    assert low < TRUE.loss(7e6, 3e7) < high
    assert forecasts == [law.loss(7e6, 3e7) for law in resampled(noisy)]


def test_an_exponent_that_the_runs_do_not_determine_is_named() -> None:
    assert undetermined(TRUE, runs(0.0)) == []
    (note,) = undetermined(TRUE._replace(alpha_n=1.499, n_c=1e7), runs(0.0))
    assert note.startswith("The exponent of N, 1.5, is not determined")
    by_size = [run._replace(loss=5 * (run.size / 1e6) ** -0.05) for run in runs(0.0)]
    by_tokens = [run._replace(loss=5 * (run.tokens / 1e6) ** -0.05) for run in runs(0.0)]
    with_floor = [run._replace(loss=3 + (run.tokens / 1e6) ** -0.3) for run in runs(0.0)]
    for losses, what in ((by_size, "D"), (by_tokens, "N"), (with_floor, "N")):
        (note,) = undetermined(fit(losses), losses)
        assert note.startswith(f"The exponent of {what}, ")


def test_every_fitted_law_has_a_loss_and_a_best_size() -> None:
    law = Law(0.16, math.exp(55), 0.012, math.exp(90))
    size, tokens = law.best(1e15)
    assert law.loss(size, tokens) <= min(law.loss(size * 2, tokens / 2), law.loss(size / 2, tokens * 2))


def test_no_other_shape_is_better_for_the_same_budget() -> None:
    operations = 1e15
    size, tokens = TRUE.best(operations)
    assert 6 * size * tokens == pytest.approx(operations)
    others = [TRUE.loss(size * factor, tokens / factor) for factor in (0.5, 0.9, 1.1, 2.0)]
    assert TRUE.loss(size, tokens) < min(others)


def test_a_size_counts_the_vocabulary_of_the_text() -> None:
    scale = load_scale("mini")
    line = {"tokens": 1, "tokens_per_second": 1.0, "validation_loss": 5.0}
    laboratory = cast(Laboratory, SimpleNamespace(scale=scale, curve=lambda name, seed: [line]))
    blocks = 6 * 2 * 12 * 64**2 + 12 * 2 * 64 * 256  # two layers of 64, with attention over 256 tokens
    head = 6 * 64 * scale.texts["web"].vocabulary
    assert scaling_run(laboratory, "scaling-a250", 1).size == pytest.approx((blocks + head) / 6)


def test_the_mini_scale_has_the_runs_of_a_law() -> None:
    assert len(names(load_scale("mini"))) >= 12


def test_too_few_runs_for_a_law_are_refused_before_they_start(tmp_path: Path) -> None:
    """All samples of six different runs are the same if there are only six."""
    mini = load_scale("mini")
    some = [name for name in mini.models if not name.startswith("scaling-")]
    few = mini.model_copy(update={"models": {name: mini.models[name] for name in [*some, *names(mini)[:7]]}})
    for source in mini.texts["web"].sources:
        (tmp_path / source).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / source).write_text("text")
    needed = "8 models 'scaling-' in the scale, which has 7"
    assert EXPERIMENTS["scaling"].missing(mini, tmp_path) == []
    assert EXPERIMENTS["scaling"].missing(few, tmp_path) == [needed]
    assert needed in EXPERIMENTS["gpt2_compute_optimal"].missing(few, tmp_path)


@pytest.mark.slow
def test_short_runs_become_a_law_with_budgets(tmp_path: Path, sample_text: str) -> None:
    (tmp_path / "text.txt").write_text(sample_text, encoding="utf-8")
    recipe = {"preset": "gpt2-pico", "batch_size": 4, "context": 48, "precision": "fp32", "learning_rate": 3e-3}
    models = {
        f"scaling-{width}-{steps}": {
            "text": "web",
            "recipe": recipe
            | {"steps": steps, "validate_every": steps, "checkpoint_every": steps}
            | {"model": {"layers": 1, "width": width, "heads": 1, "context": 48}},
        }
        for width in (16, 32, 48)
        for steps in (10, 20, 40)
    }
    text = {"sources": ["text.txt"], "vocabulary": 300, "held_out": 0.3, "validation": 0.1}
    scale = Scale.build({"name": "tiny", "about": "for tests", "texts": {"web": text}, "models": models})
    reproduce(["scaling"], scale, tmp_path, tmp_path / "out")
    found = json.loads((tmp_path / "out" / "scaling" / "results.json").read_text())
    assert len(found["rows"]) == len(models) + len(Law._fields)
    assert "1 day" in (tmp_path / "out" / "scaling" / "README.md").read_text()


@pytest.mark.parametrize("name", ["gpt1", "gpt2-small", "lstm"])
def test_operations_are_counted_from_the_weights_there_are(name: str) -> None:
    config = preset(name)
    model = build_model(config, device="meta")
    inner = [p for place, p in model.named_parameters() if not place.startswith(("tokens", "positions"))]
    weights = sum(p.numel() for p in inner if p.dim() > 1) + config.vocabulary * config.width
    attention = 0 if name == "lstm" else 12 * config.layers * config.width * config.context
    assert training_flops(config) == 6 * weights + attention


def test_a_masked_model_predicts_only_the_masked_tokens() -> None:
    causal, masked = preset("gpt1-nano"), preset("bert-nano")
    spared = 0.85 * 6 * causal.vocabulary * causal.width
    assert training_flops(causal) - training_flops(masked) == pytest.approx(spared, abs=1)
