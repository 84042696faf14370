"""Labels come back as they were written, lists are read in one way, and the split is a share of rows."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headwater as hw
from headwater.errors import MismatchError
from headwater.finetuning import FinetuneConfig, FineTuned, Raw, arrange_rows, finetune, predict_file
from headwater.finetuning.rows.read import Columns, read_table
from headwater.finetuning.rows.row import label_set


def table(path: Path, texts: list[str], labels: list[Any]) -> Path:
    with path.open("w", newline="") as handle:
        csv.writer(handle).writerows([("text", "label"), *zip(texts, labels, strict=True)])
    return path


@pytest.mark.parametrize("names", [("TRUE", "FALSE"), ("1.0", "2.0")])
def test_labels_come_back_as_written(names: tuple[str, str], base: Path, sentences: Any, tmp_path: Path) -> None:
    texts, labels = sentences(30)
    written = [names[label == "good"] for label in labels]
    rows = table(tmp_path / "rows.csv", texts, written)
    finetune(FinetuneConfig(steps=1), tmp_path / "out", model=base, train=rows)
    summary = predict_file(tmp_path / "out", rows, tmp_path / "predicted.csv")
    with (tmp_path / "predicted.csv").open() as handle:
        predicted = list(csv.DictReader(handle))
    assert {row["prediction"] for row in predicted} <= {*names}
    assert {f"p({name})" for name in names} <= {*predicted[0]}
    assert summary["accuracy"] == np.mean([row["prediction"] == row["label"] for row in predicted])
    assert hw.Classifier.load(tmp_path / "out").classes_.tolist() == sorted(names)
    other = table(tmp_path / "other.csv", texts, [name.lower().removesuffix(".0") for name in written])
    finetune(FinetuneConfig(steps=1), tmp_path / "both", model=base, train=rows, validation=other)
    assert FineTuned.load(tmp_path / "both").labels.names == sorted(names)
    mixed = table(tmp_path / "mixed.csv", texts, [names[0].lower().removesuffix(".0"), *written[1:]])
    noted = finetune(FinetuneConfig(steps=1), tmp_path / "mixed", model=base, train=mixed, validation=rows)
    notes = noted["notes"]
    assert any(note.startswith(f"read as one class, {names[0]!r}: ") for note in notes)


def test_lists_of_labels_are_read_as_json_or_python(tmp_path: Path) -> None:
    assert label_set('["a", null, "b"]') == ("a", "b")
    assert label_set("['a', None]") == ("a",)
    assert label_set("[{[]: 1}]") == ("[{[]: 1}]",)
    path = tmp_path / "rows.jsonl"
    given: list[Any] = [["a", None], [], [None], "b"]
    path.write_text("".join(json.dumps({"text": "t", "labels": label}) + "\n" for label in given))
    rows = read_table(path, "classify", Columns()).rows
    assert [row.label for row in rows] == [("a",), (), None, "b"]
    choices = tmp_path / "choices.csv"  # as pandas writes a column of lists
    choices.write_text("""question,answers,label\nq,"['it''s', ""b""]",0\nq,"[""a"", ""b""]",1\n""")
    assert [row.segments[2:] for row in read_table(choices, "choice", Columns()).rows] == [
        ("its", "b"),
        ("a", "b"),
    ]


def test_the_split_is_a_share_of_rows() -> None:
    def parts(texts: list[str], labels: list[str], seed: int = 1) -> Any:
        rows = [Raw((text,), label, n) for n, (text, label) in enumerate(zip(texts, labels, strict=True), 1)]
        config = FinetuneConfig(seed=seed)
        return arrange_rows(config, {"train": ("rows", rows)}).divided(config, crossed=False)

    repeated = ["the same"] * 900 + [f"text {n}" for n in range(100)]
    for seed in range(20):
        assert len(parts(repeated, ["ab"[n % 2] for n in range(1_000)], seed).validation.rows) <= 101
    rare = [f"class {n // 2}" for n in range(160)]  # two rows each
    few = parts([f"text {n}" for n in range(160)], rare)
    assert len(few.validation.rows) == 16
    assert {row.label for row in few.train.rows} == {*rare}


def test_scores_beyond_the_training_range_are_measured(base: Path, tmp_path: Path) -> None:
    prices = [1_200_000.0 + 50_000 * (n % 9) for n in range(30)]
    texts = [f"a flat of {n % 9} rooms, number {n}" for n in range(30)]
    train = table(tmp_path / "train.csv", texts, prices)
    test = table(tmp_path / "test.csv", texts[:5], [3_000_000 + n for n in range(5)])
    config = FinetuneConfig(target="score", steps=1)
    metrics = finetune(config, tmp_path / "out", model=base, train=train, test=test)
    assert metrics["tests"]["test"]["labelled"] == 5
    fitted = hw.Regressor.load(tmp_path / "out")
    predicted = fitted.predict(texts)
    assert np.isfinite(fitted.score(texts, [price * 3 for price in prices]))
    assert ((predicted >= min(prices)) & (predicted <= 1_700_000)).all()


def test_a_similarity_does_not_open_several_labels(base: Path, sentences: Any, tmp_path: Path) -> None:
    texts, labels = sentences(12)
    sets = [[label, "film"] for label in labels]
    hw.Classifier(base, epochs=0.1, multi_label=True).fit(texts, sets).save(tmp_path / "several")
    with pytest.raises(MismatchError, match="fine-tuned for task classify"):
        hw.Similarity.load(tmp_path / "several")


def test_lists_of_one_label_are_one_label_a_row(tmp_path: Path) -> None:
    """As annotation tools export them; no option is needed. One row with two labels decides otherwise."""
    path = tmp_path / "rows.jsonl"
    rows = [{"text": f"film {number}", "label": [("good", "bad")[number % 2]]} for number in range(20)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = FinetuneConfig()
    parts = arrange_rows(config, {"train": ("rows", read_table(path, "classify", Columns()).rows)})
    assert (parts.labels.target, parts.labels.names) == ("class", ["bad", "good"])
    assert "20 training rows with a list of one label: read as one label a row" in parts.notes
    with path.open("a") as handle:
        handle.write(json.dumps({"text": "both", "label": ["good", "bad"]}) + "\n")
    parts = arrange_rows(config, {"train": ("rows", read_table(path, "classify", Columns()).rows)})
    assert parts.labels.target == "labels"
