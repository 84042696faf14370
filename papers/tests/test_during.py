"""Zero-shot scores while a model is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headwater.errors import DataError
from headwater.evaluation import evaluate
from headwater.model import build_model, preset
from headwater.pretraining import PretrainConfig, pretrain
from headwater.storage import Progress
from headwater.training import read_journal
from headwater_papers.during import Follower

BITS = "heldout.bits-per-byte"
FIGURE = f"zero-shot {BITS} bits per byte"


def tiny(name: str = "gpt2-pico") -> Any:
    return build_model(preset(name, vocabulary=300, layers=1, width=32, heads=2, context=48), seed=1)


class Noted(Progress):
    """Keeps the notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_a_model_is_scored_at_intervals_and_not_changed(tokens: Path) -> None:
    model = tiny().train()
    follower = Follower(["heldout"], tokens, [], model.config, every=5)
    assert follower(model, 4) == {}
    assert set(follower(model, 5)) == {FIGURE}  # without yardsticks, which need no model
    assert model.training
    assert follower(model, 10) == {}  # it would take more than its share of the time


def test_the_journal_has_the_score_of_an_evaluation(tokens: Path, tmp_path: Path) -> None:
    recipe = {"preset": "gpt2-pico", "steps": 2, "batch_size": 4, "context": 48, "precision": "fp32"}
    config = PretrainConfig.build(recipe, {"model": {"layers": 1, "width": 32, "heads": 2}}, source="test")
    follower = Follower([BITS], tokens, [], config.architecture, every=2)
    pretrain(config, tokens, tmp_path / "run", more_figures=follower)
    results = evaluate(tmp_path / "run", [BITS], tokens, tmp_path / "out", limit=100).results
    value = next(result.value for result in results if result.metric == "bits per byte")
    assert read_journal(tmp_path / "run" / "metrics.jsonl")[-1][FIGURE] == pytest.approx(value, rel=1e-5)


def test_a_protocol_that_cannot_be_scored_is_noted_once(tokens: Path, tmp_path: Path) -> None:
    (tmp_path / "lambada_test.jsonl").write_text("not JSON\n")
    noted = Noted()
    model = tiny()
    tasks = ["lambada.openai.last-token", "heldout"]
    follower = Follower(tasks, tokens, [tmp_path], model.config, every=1, progress=noted)
    assert set(follower(model, 1)) == {FIGURE}
    (note,) = noted.notes
    assert "lambada.openai.last-token is not evaluated any more" in note


def test_a_protocol_must_fit_the_model(tokens: Path) -> None:
    with pytest.raises(DataError, match="not for this kind of model"):
        Follower(["heldout"], tokens, [], preset("bert-nano"), every=1)
