"""The learning rate is the base's own, the paper's, or the best of a search; the report says which and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headwater as hw
from headwater import shipped
from headwater.finetuning import FinetuneConfig, finetune
from headwater.finetuning.learning import train
from headwater.finetuning.learning.choose import FACTORS
from headwater.finetuning.model import features
from headwater.model import load_config, load_model, save_model
from headwater.storage import Progress
from headwater.tokenizer import Tokenizer
from headwater.training import Trainer

transformers = pytest.importorskip("transformers")

TEXTS = [f"{'good' if n % 2 else 'bad'} film number {n}" for n in range(20)]
LABELS = ["good" if n % 2 else "bad" for n in range(20)]


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GPT-2 that transformers wrote, without a record of what suits it."""
    folder = tmp_path_factory.mktemp("foreign")
    tokenizer = Tokenizer.train(TEXTS, kind="gpt2", vocab_size=280)
    config = transformers.GPT2Config(
        vocab_size=tokenizer.vocabulary_size, n_embd=16, n_layer=1, n_head=2, n_positions=16
    )
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)
    tokenizer.save(folder, context=16)
    return folder


def test_a_base_without_a_record_gets_the_papers_rate(foreign: Path, tmp_path: Path) -> None:
    fitted = hw.Classifier(foreign, recipe="gpt1", epochs=1, device="cpu").fit(TEXTS, LABELS)
    assert fitted.learning_rate_ == 6.25e-5
    assert "the paper's" in fitted.learning_rate_reason_
    save_model(load_model(foreign), tmp_path)  # converted, it is still of another program
    assert FinetuneConfig().peak_rate(load_config(tmp_path)) == 6.25e-5


@pytest.mark.parametrize("name", shipped.names())
def test_a_shipped_model_names_its_measured_rate(name: str) -> None:
    base, config = load_config(shipped.folder_of(name)), FinetuneConfig()
    content = json.loads((shipped.folder_of(name) / "config.json").read_text())
    assert content["headwater"]["transfer_rate"] == config.peak_rate(base) == 7e-4
    assert config.rate_reason(base) == "measured for this base"


def test_a_search_keeps_the_best_rate_and_reports_all(foreign: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(
        "".join(json.dumps({"text": t, "label": y}) + "\n" for t, y in zip(TEXTS, LABELS, strict=True))
    )
    config = FinetuneConfig.build({"learning_rate": "search", "steps": 2, "device": "cpu"})
    metrics = finetune(config, tmp_path / "out", model=foreign, train=rows)
    used = metrics["learning_rate"]
    rates = [one["learning_rate"] for one in used["tried"]]
    best = max(used["tried"], key=lambda one: (one["accuracy"], -one["validation_loss"]))
    assert {float(f"{factor * 6.25e-5:.3g}") for factor in FACTORS} <= {*rates}
    # The series continues while its end is the best.
    assert used["value"] not in (min(rates), max(rates)) or not 0.07 < used["value"] / 6.25e-5 < 60
    assert rates == sorted(rates)
    assert used["value"] == best["learning_rate"]
    assert metrics["accuracy"] == best["accuracy"]
    for page in ("out/report.html", "out/README.md"):
        assert "the best of the search" in (tmp_path / page).read_text()
    assert not (tmp_path / "out" / "rates").exists()
    fitted = hw.Classifier(foreign, learning_rate="search", epochs=1, device="cpu").fit(TEXTS, LABELS)
    assert fitted.learning_rate_ in [one["learning_rate"] for one in fitted.learning_rates_]


class StopAfter(Progress):
    def __init__(self, trainings: int) -> None:
        self.left = trainings

    def note(self, text: str) -> None:
        self.left -= text.startswith("learning rate")
        if not self.left:
            raise RuntimeError("stopped")


@pytest.mark.parametrize(
    "after", [3, -1]
)  # of the first rates, and of those beyond them the one that was too high
def test_a_stopped_search_trains_no_rate_twice(
    after: int, foreign: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(
        "".join(json.dumps({"text": t, "label": y}) + "\n" for t, y in zip(TEXTS, LABELS, strict=True))
    )
    config = FinetuneConfig.build({"learning_rate": "search", "steps": 2, "device": "cpu"})
    whole = finetune(config, tmp_path / "whole", model=foreign, train=rows)
    after %= len(whole["learning_rate"]["tried"]) + 1
    with pytest.raises(RuntimeError, match="stopped"):
        finetune(config, tmp_path / "out", model=foreign, train=rows, progress=StopAfter(after))
    updates: list[Any] = []
    update = Trainer.update
    monkeypatch.setattr(Trainer, "update", lambda *args: [updates.append(1), update(*args)][1])
    resumed = finetune(config, tmp_path / "out", model=foreign, train=rows)
    assert len(updates) == 2 * (len(whole["learning_rate"]["tried"]) - after)
    assert resumed == whole
    one, other = (tmp_path / name / "head.safetensors" for name in ("whole", "out"))
    assert one.read_bytes() == other.read_bytes()


def test_a_search_weighs_rows_as_the_training_does(foreign: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    build = train.build_trainer
    monkeypatch.setattr(train, "build_trainer", lambda *args: [given.append(args[4]), build(*args)][1])
    weights = [1.0 + n % 2 for n in range(len(TEXTS))]
    hw.Classifier(foreign, learning_rate="search", epochs=0.1, device="cpu").fit(TEXTS, LABELS, weights)
    assert len(given) >= len(FACTORS)
    assert all(one is not None and {*one.tolist()} == {1.0, 2.0} for one in given)


def test_a_search_computes_a_frozen_bases_outputs_once(
    foreign: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All rates read files on the run's disk: of much text the outputs do not fit in memory."""
    stores: list[Any] = []
    fill = features._fill
    monkeypatch.setattr(features, "_fill", lambda *args: [stores.append(args[2]), fill(*args)][1])
    rows = tmp_path / "rows.jsonl"
    rows.write_text(
        "".join(json.dumps({"text": t, "label": y}) + "\n" for t, y in zip(TEXTS, LABELS, strict=True))
    )
    config = FinetuneConfig.build({"learning_rate": "search", "freeze": True, "steps": 2, "device": "cpu"})
    metrics = finetune(config, tmp_path / "out", model=foreign, train=rows)
    assert len(metrics["learning_rate"]["tried"]) >= len(FACTORS)
    # Of the training and validation rows; the files have no name, so nothing is left of them.
    assert [isinstance(store, np.memmap) for store in stores] == [True, True]
    assert not [path for path in (tmp_path / "out").iterdir() if path.is_dir() and path.name != "checkpoints"]
