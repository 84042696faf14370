"""The baseline next to a fine-tuning: what it learns, where it is shown, and class weights."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headwater as hw
from headwater.cli.main import main
from headwater.errors import UsageError
from headwater.finetuning import FinetuneConfig, FineTuned, Labels, export_classifier, finetune
from headwater.finetuning.results.baseline import Baseline, compare
from headwater.finetuning.results.report import _baseline_lines

CLASSES = Labels(target="class", names=["bad", "good"])


def test_the_baseline_learns_texts_pairs_and_scores() -> None:
    texts = [(f"a {word} film number {n}",) for n in range(8) for word in ("dull", "fine")]
    targets = np.array([0.0, 1.0] * 8)
    baseline = Baseline("classify", CLASSES).fit(texts, targets)
    assert baseline.decide([("one more fine one",), ("a dull thing",)]).tolist() == [1, 0]
    pairs = [("the old river", "the old river runs" if n % 2 else "quick foxes") for n in range(16)]
    baseline = Baseline("entail", CLASSES).fit(pairs, targets)
    assert baseline.decide([("the old river", "the old river runs"), ("the old river", "fox")]).tolist() == [1, 0]
    scores = Labels(target="score", levels=[0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    low, high = Baseline("similarity", scores).fit(pairs, targets * 5).decide([pairs[0], pairs[1]])
    assert 0 <= low < high <= 5
    rows = [("the river is", "", "long river", "quick fox"), ("a fox is", "", "deep", "slow", "quick fox")]
    choice = Baseline("choice", Labels(target="answer")).fit(rows, np.array([0.0, 2.0]))
    assert choice.decide(rows).tolist() == [0, 2]


def test_one_text_of_a_pair_or_an_answer_alone_can_decide() -> None:
    """As in natural language inference and Story Cloze, where the overlap of the texts tells little."""
    targets = np.array([0.0, 1.0] * 20)
    pairs = [(f"a man has {n} dogs", "nobody sleeps" if n % 2 else "somebody walks") for n in range(40)]
    baseline = Baseline("entail", CLASSES).fit(pairs, targets)
    assert baseline.decide([("a girl ran", "nobody sleeps"), ("a girl ran", "somebody walks")]).tolist() == [1, 0]
    endings = ("He was very happy.", "He hated every minute.")
    rows = [(f"Tom went to town {n}.", "", *(endings if n % 2 == 0 else endings[::-1])) for n in range(40)]
    choice = Baseline("choice", Labels(target="answer")).fit(rows, targets)
    assert choice.decide([("Ann ran.", "", "She hated it.", "She was happy.")]).tolist() == [1]


def test_the_baseline_learns_from_hypotheses_alone() -> None:
    """As in MultiNLI: with a premise in two folds, its words are evidence for the labels of its other rows."""
    random = np.random.default_rng(1)
    syllables = itertools.product("bdkmptz", "aeiou", "lnrst", "aeiou")
    names = random.permutation(["".join(letters) for letters in syllables])
    cues, words = names[:24].reshape(3, 8), names[24:]
    pairs, targets = [], []
    for _ in range(100):
        premise = " ".join(random.choice(words, 4))
        for target in range(3):
            told = random.choice(cues[target]) if random.random() < 0.4 else random.choice(words)
            pairs.append((premise, f"it {told} {random.choice(words)}"))
            targets.append(float(target))
    baseline = Baseline("entail", Labels(target="class", names=["a", "b", "c"])).fit(
        pairs[:240], np.array(targets[:240])
    )
    assert (baseline.decide(pairs[240:]) == targets[240:]).mean() > 0.5  # chance is a third


def test_a_baseline_can_be_fitted_to_one_class() -> None:
    """Equal texts stay together, so the split can leave one class; so can the choice of ROWS of many rows."""
    parts = {"validation": ([("a fine film",), ("a dull film",)], np.array([1.0, 0.0]))}
    found = compare("classify", CLASSES, "accuracy", ([("a dull film",), ("an end",)], np.zeros(2)), parts)
    assert found["validation"]["value"] == 0.5


def test_only_rows_with_a_label_count() -> None:
    texts = [(f"a {word} film",) for _ in range(8) for word in ("dull", "fine")]
    train = texts, np.array([0.0, 1.0] * 8)
    parts = {"test": (texts[:2], np.array([0.0, np.nan])), "hidden": (texts[:1], np.array([np.nan]))}
    found = compare("classify", CLASSES, "accuracy", train, parts)
    assert found.keys() == {"test"}
    assert found["test"]["value"] == 1


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Texts that words tell apart, nine of ten of one class."""
    path = tmp_path / "rows.jsonl"
    rows = [
        {"text": f"{'dull' if n % 10 == 0 else 'fine'} film {n}", "label": int(n % 10 > 0)} for n in range(100)
    ]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


def test_a_model_that_predicts_one_class_gives_a_warning(
    base: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "model"
    given = ["--train", str(table), "--test", str(table), "--set", "steps=1", "--set", "precision=fp32"]
    given += ["--set", "recipe=gpt1", "--validation", str(table)]
    assert main(["finetune", "--model", str(base), "--task", "classify", "--out", str(out), *given]) == 0
    shown = capsys.readouterr().out
    page = (out / "report.html").read_text(encoding="utf-8")
    metrics = json.loads((out / "metrics.json").read_text(encoding="utf-8"))
    for text in (shown, page):
        assert "The model does not beat it: for English take the encoder minilm" in text
        assert "the model predicts" in text
    assert metrics["baseline"]["value"] > metrics["value"]
    assert metrics["learning_rate"]["reason"] == "of a model of this width that Headwater trained"
    assert metrics["tests"]["test"]["baseline"]["value"] > 0.9
    assert metrics["macro_f1"] < 0.6  # what accuracy alone hides
    never = [one for one in metrics["classes"] if not one["predicted"]]
    assert [one["recall"] for one in never] == [0]
    assert f"macro-F1 {metrics['macro_f1']:.3f}" in shown
    lines = (out / "predictions-test.jsonl").read_text(encoding="utf-8").splitlines()
    first = json.loads(lines[0])
    assert (first["row"], first["texts"], first["label"]) == (1, ["dull film 0"], 0)
    assert first["prediction"] in first["probabilities"]
    assert len((out / "predictions-validation.jsonl").read_text().splitlines()) == metrics["count"]


def test_class_weights_move_a_model_towards_the_rare_class(base: Path, table: Path, tmp_path: Path) -> None:
    shares = []
    for weight in (None, "balanced", {"0": 50.0}):
        config = FinetuneConfig(steps=6, precision="fp32", learning_rate=1e-3, class_weight=weight)
        finetune(config, tmp_path / str(len(shares)), model=base, train=table)
        lines = (tmp_path / str(len(shares)) / "predictions-validation.jsonl").read_text().splitlines()
        shares.append(np.mean([json.loads(line)["probabilities"]["0"] for line in lines]))
    assert shares[0] < shares[1] < shares[2]
    with pytest.raises(UsageError, match="class_weight names the class 'x'"):
        finetune(FinetuneConfig(class_weight={"x": 2.0}), tmp_path / "x", model=base, train=table)


def test_one_text_to_a_score_is_task_regress(base: Path, tmp_path: Path, capsys: Any) -> None:
    words = ["awful", "dull", "plain", "nice", "fine", "great"]
    rows = [{"text": f"{words[n % 6]} film {n}", "label": n % 6} for n in range(90)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    given = ["--task", "regress", "--train", str(tmp_path / "rows.jsonl"), "--set", "steps=2", "--json"]
    assert main(["finetune", "--model", str(base), "--out", str(tmp_path / "m"), *given]) == 0
    metrics = json.loads(capsys.readouterr().out)
    assert metrics["metric"] == "pearson"
    assert metrics["baseline"]["value"] > 0.6


def test_a_baseline_without_a_mistake_has_other_advice() -> None:
    baseline = {"name": "TF-IDF", "value": 1.0, "interval": [0.8, 1.0]}
    metrics = {"metric": "accuracy", "value": 1.0, "baseline": baseline}
    assert _baseline_lines(metrics)[-1].endswith("use the baseline, or validate on more rows and harder ones.")
    assert "label more rows" in _baseline_lines(metrics | {"value": 0.9})[-1]
    compared = {"probe": baseline, "lp-ft": baseline}
    assert (
        "No start of this base beats TF-IDF" in _baseline_lines(metrics | {"value": 0.9, "recipes": compared})[-1]
    )


def test_few_rows_of_each_class_have_no_constant_baseline() -> None:
    names = [f"class-{n:02}" for n in range(40)]
    texts = [(f"words of {name} and {name} number {n}",) for name in names for n in range(2)]
    targets = np.repeat(np.arange(40.0), 2)
    baseline = Baseline("classify", Labels(target="class", names=names)).fit(texts, targets)
    assert baseline.name.startswith("TF-IDF")
    assert (baseline.decide(texts) == targets).mean() > 0.9


def test_a_baseline_can_be_left_out(base: Path, table: Path, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "model"
    given = ["finetune", "--model", str(base), "--task", "classify", "--train", str(table), "--out", str(out)]
    given += ["--test", str(table), "--set", "steps=1", "--set", "recipe=gpt1"]
    assert main([*given, "--set", "baseline=false"]) == 0
    assert "No baseline was measured" in capsys.readouterr().out
    metrics = json.loads((out / "metrics.json").read_text())
    assert "baseline" not in metrics
    assert len(metrics["confused"]) == 1  # of two classes, one is always predicted
    card = (out / "README.md").read_text()
    assert card.index("Test accuracy") < card.index("Validation accuracy")
    assert main(given) == 0
    assert "complete already" in capsys.readouterr().err


def test_a_probe_reads_tfidf_next_to_the_base(base: Path, tmp_path: Path) -> None:
    """Single words decide, and the folder is read by whatever reads another one."""
    words = [f"{a}{b}{c}" for a in "bdgk" for b in "aeio" for c in "mnrs"]
    rows = [
        (f"the {word} was a film number {n}", "good" if word < "f" else "bad") for n in range(3) for word in words
    ]
    table, out = tmp_path / "t.csv", tmp_path / "m"
    table.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows), encoding="utf-8")
    given = ["finetune", "--model", str(base), "--task", "classify", "--train", str(table), "--no-baseline"]
    scores = {}
    for features in ("base", "tfidf+base"):
        out = tmp_path / features
        assert main([*given, "--set", "recipe=probe", "--set", f"features={features}", "--out", str(out)]) == 0
        scores[features] = json.loads((out / "metrics.json").read_text(encoding="utf-8"))["value"]
    assert scores["tfidf+base"] >= max(0.9, scores["base"])
    opened = hw.Classifier.load(out)
    texts, labels = zip(*rows, strict=True)
    assert opened.score(texts, labels) > 0.95
    lines = [json.loads(line) for line in (out / "predictions-validation.jsonl").read_text().splitlines()]
    shares = opened.predict_proba([line["texts"][0] for line in lines])
    expected = [list(line["probabilities"].values()) for line in lines]
    assert np.abs(shares - expected).max() < 0.2  # the head was fitted again on all rows
    opened.save(tmp_path / "saved")
    again = hw.Classifier.load(tmp_path / "saved")
    np.testing.assert_allclose(again.predict_proba(texts[:9]), opened.predict_proba(texts[:9]), atol=1e-6)
    with pytest.raises(UsageError, match="its head reads one vector of each text"):
        export_classifier(out, tmp_path / "exported")
    with pytest.raises(UsageError, match="cannot be kept: it reads TF-IDF"):
        FineTuned.keys_of(out)
    with pytest.raises(UsageError, match="for a probe of one text"):
        FinetuneConfig.build({"features": "tfidf+base", "task": "entail"})
