"""One temperature makes the probabilities of a fine-tuned model mean what they say; doubtful labels are listed."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headwater.cli.main import main
from headwater.finetuning import Classifier, FinetuneConfig, FineTuned, Labels, Regressor, finetune
from headwater.finetuning.results import wrong_labels
from headwater.finetuning.results.calibration import _fitted, _logits, _probabilities, reliability
from headwater.finetuning.results.wrong_labels import SUSPECTS_FILE

ABC = Labels(target="class", names=["a", "b", "c"])
FAST = {"epochs": 6, "learning_rate": 5e-3, "lambda_lm": 0, "dropout": 0, "precision": "fp32"}


def drawn(rows: int, factor: float) -> tuple[np.ndarray, np.ndarray]:
    """Return probabilities whose logits are too large by a factor, and classes of the right probabilities."""
    random = np.random.default_rng(0)
    logits = 2 * random.normal(size=(rows, 3))
    right = _probabilities(ABC, logits)
    targets = (random.random(rows)[:, None] > right.cumsum(axis=1)).sum(axis=1)
    return _probabilities(ABC, factor * logits).astype(np.float32), targets.astype(float)


@pytest.mark.parametrize("factor", [0.2, 1.0, 4.0])
def test_the_temperature_is_the_factor_of_the_logits(factor: float) -> None:
    probabilities, targets = drawn(3_000, factor)
    logits = _logits(ABC, probabilities)
    temperature = _fitted(ABC, logits, targets)
    assert temperature == pytest.approx(factor, rel=0.05)
    scaled = _probabilities(ABC, logits / temperature).astype(np.float32)
    assert reliability(ABC, targets, scaled)["ece"] < 0.03
    several, own = Labels(target="labels", names=["a", "b", "c"]), targets[:, None] == np.arange(3)
    binary = _logits(several, probabilities)
    assert np.isfinite(_fitted(several, binary, own.astype(float)))


def test_few_right_rows_are_not_certain() -> None:
    shares = np.full((10, 3), 0.05, np.float32)
    shares[:, 0] = 0.9
    logits = _logits(ABC, shares)
    scaled = _probabilities(ABC, logits / _fitted(ABC, logits, np.zeros(10)))
    assert 0.85 < scaled[0, 0] < 0.95  # 11 of 12
    absent = np.array([[0.7, 0.3, 0.0]] * 5 + [[0.2, 0.5, 0.3]] * 7, np.float32)  # a choice of two and of three
    targets = np.array([0, 0, 1, 0, 0, 1, 1, 2, 1, 0, 1, 1], float)
    logits = _logits(Labels(target="answer"), absent)
    scaled = _probabilities(ABC, logits / _fitted(Labels(target="answer"), logits, targets))
    assert (scaled[:5, 2] == 0).all()


def test_reliability_counts_bins_and_shares() -> None:
    shares = np.array([[0.9, 0.1, 0], [0.8, 0.2, 0], [0.6, 0.4, 0], [0.5, 0.3, 0.2]], np.float32)
    measured = reliability(ABC, np.array([0.0, 0.0, 1.0, 0.0]), shares)
    assert measured["ece"] == pytest.approx((0.1 + 0.2 + 0.6 + 0.5) / 4, abs=1e-6)
    by_share = {one["share"]: (one["accuracy"], round(one["threshold"], 6)) for one in measured["coverage"]}
    assert by_share[1.0] == (0.75, 0.5)
    assert by_share[0.5] == (1.0, 0.8)


def test_a_saved_model_has_the_calibrated_probabilities(
    base: Path, tmp_path: Path, sentences: Any, capsys: Any
) -> None:
    texts, labels = sentences(200)
    labels = [("good", "bad")[n % 2] if n % 5 == 0 else label for n, label in enumerate(labels)]
    table = tmp_path / "rows.csv"
    with table.open("w", newline="") as handle:
        csv.writer(handle).writerows([("text", "label"), *zip(texts, labels, strict=True)])
    out = tmp_path / "model"
    options = [f"--set={key}={value}" for key, value in FAST.items() if key != "epochs"]
    given = ["--epochs", "20", "--set=recipe=gpt1", "--test", str(table), "--set=validation_share=0.3"]
    command = ["finetune", "--model", str(base), "--task", "classify", "--train", str(table), "--out", str(out)]
    assert main([*command, *given, *options]) == 0
    shown = capsys.readouterr().out
    metrics = json.loads((out / "metrics.json").read_text())
    fitted = metrics["calibration"]
    assert f"with the temperature {fitted['temperature']:.3g}" in shown
    assert fitted["ece"] < fitted["ece_before"]
    assert metrics["tests"]["test"]["calibration"]["coverage"][0]["share"] == 1.0
    lines = (out / "predictions-validation.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    confidence = np.mean([max(row["probabilities"].values()) for row in rows])
    assert confidence == pytest.approx(metrics["value"], abs=0.1)
    loaded = Classifier.load(out).predict_proba([row["texts"][0] for row in rows])
    stored = [[row["probabilities"][name] for name in ("bad", "good")] for row in rows]
    np.testing.assert_allclose(loaded, stored, atol=2e-6)
    assert "Confidence" in (out / "report.html").read_text()
    assert "--threshold" in (out / "README.md").read_text()


def planted_errors(table: Path) -> set[int]:
    """Write 300 rows of two classes, of which twenty have the wrong label, and return the places of these."""
    subjects = ["film", "plot", "scene", "music", "story", "actor", "ending", "camera", "dialogue", "set"]
    words = {"good": ["lovely", "great", "fine", "superb"], "bad": ["awful", "dull", "poor", "weak"]}
    random = np.random.default_rng(0)
    rows = []
    for number in range(300):
        label = ("good", "bad")[number % 2]
        picked = random.choice(words[label], 2, replace=False)
        rows.append(
            (f"the {random.choice(subjects)} was {picked[0]} and {picked[1]}, {random.choice(subjects)}", label)
        )
    planted = {int(n) for n in random.permutation(300)[:20]}
    rows = [
        (text, {"good": "bad", "bad": "good"}[label] if n in planted else label)
        for n, (text, label) in enumerate(rows)
    ]
    with table.open("w", newline="") as handle:
        csv.writer(handle).writerows([("text", "label"), *rows])
    return planted


def test_planted_errors_are_listed_first(base: Path, tmp_path: Path) -> None:
    table = tmp_path / "rows.csv"
    planted = planted_errors(table)
    metrics = finetune(
        FinetuneConfig.build({"steps": 1, "recipe": "gpt1"}), tmp_path / "m", model=base, train=table
    )
    listed = [json.loads(line) for line in (tmp_path / "m" / SUSPECTS_FILE).read_text().splitlines()]
    assert len({one["row"] - 1 for one in listed[:40]} & planted) >= 15
    assert metrics["suspects"]["rows"] == 300
    assert metrics["suspects"]["first"] == listed[:10]
    page = (tmp_path / "m" / "report.html").read_text()
    assert "Labels that look wrong" in page


def test_the_models_of_a_cross_validation_judge_labels_too(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        wrong_labels, "held_out_shares", lambda features, *_, **__: np.full((features.shape[0], 2), 0.5)
    )
    table = tmp_path / "rows.csv"
    planted = planted_errors(table)
    config = FinetuneConfig.build({"recipe": "auto"})
    assert finetune(config, tmp_path / "m", model=base, train=table)["cross_validated"]
    listed = [json.loads(line) for line in (tmp_path / "m" / SUSPECTS_FILE).read_text().splitlines()]
    assert len({one["row"] - 1 for one in listed[:40]} & planted) >= 15


def test_the_temperature_changes_no_decision(base: Path, sentences: Any, tmp_path: Path) -> None:
    classifier = Classifier(base, validation_share=0.3, recipe="gpt1", **FAST).fit(*sentences(60))
    assert classifier.calibration_["rows"] >= 10
    before = classifier.predict_proba(sentences(40, seed=3)[0])
    classifier.fine_tuned_.model.scale_logits(classifier.calibration_["temperature"])
    after = classifier.predict_proba(sentences(40, seed=3)[0])
    assert (before.argmax(axis=1) == after.argmax(axis=1)).all()
    assert not np.allclose(before, after)
    classifier.save(tmp_path / "m")
    assert FineTuned.load(tmp_path / "m").labels.names == ["bad", "good"]


def test_prices_can_exceed_those_of_the_training_rows(base: Path, sentences: Any, tmp_path: Path) -> None:
    texts, labels = sentences(60)
    prices = [(9_000 if label == "good" else 1_000) + 10 * n for n, label in enumerate(labels)]
    regressor = Regressor(base, validation_share=0.3, recipe="gpt1", **FAST).fit(texts, prices)
    assert 1 < regressor.calibration_["slope"] <= 2
    levels = regressor.fine_tuned_.labels.levels
    assert levels[0] < min(prices)
    assert levels[-1] > max(prices)
    assert regressor.fine_tuned_.decide(np.eye(len(levels), dtype=np.float32))[-1] > max(prices)
    regressor.save(tmp_path / "m")
    np.testing.assert_allclose(Regressor.load(tmp_path / "m").predict(texts[:5]), regressor.predict(texts[:5]))
    ratings = Regressor(base, validation_share=0.3, recipe="gpt1", **FAST)
    assert ratings.fit(texts, [n % 5 for n in range(60)]).calibration_ is None  # they stay 0 to 4
