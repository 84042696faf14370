"""Rows with several labels: the loss, the metrics, the forms of y and of tables, and what leaves the package."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.metrics import accuracy_score, f1_score
from sklearn.preprocessing import MultiLabelBinarizer
from starlette.testclient import TestClient
from torch.nn import functional

from headwater.cli.main import main
from headwater.errors import DataError
from headwater.finetuning import Classifier, FinetuneConfig, Labels, Raw, finetune, measure_decisions, predict_file
from headwater.finetuning.model.batches import collate
from headwater.finetuning.model.heads import class_loss
from headwater.finetuning.model.inputs import encode
from headwater.finetuning.rows.arrays import as_label_sets
from headwater.finetuning.rows.labels import learn_labels
from headwater.finetuning.rows.read import Columns, read_table
from headwater.serve import ServeConfig
from headwater.serve.api import create_app
from headwater.serve.opening import open_models
from headwater.tokenizer import Tokenizer

FAST: dict[str, Any] = {"epochs": 2, "learning_rate": 5e-3, "lambda_lm": 0.0, "dropout": 0.0, "precision": "fp32"}
WORDS = {"food": ["bread", "soup"], "sport": ["goal", "team"], "여행": ["beach", "hotel"]}


class Frame:
    """What tables of pandas and polars have: names of columns, and the values as an array."""

    def __init__(self, matrix: Any) -> None:
        self.columns, self.to_numpy = [*WORDS], lambda: matrix


@pytest.fixture(scope="module")
def rows() -> list[tuple[str, list[str]]]:
    """Texts with none to three labels, each of which two of its words give away."""
    draw = random.Random(1)
    made = []
    for number in range(80):
        labels = [name for name in WORDS if draw.random() < 0.5]
        words = [word for name in labels for word in draw.choices(WORDS[name], k=2)]
        made.append((" ".join(["we", "saw", str(number), *words]), labels))
    return made


@pytest.fixture(scope="module")
def fitted(base: Path, rows: list[tuple[str, list[str]]]) -> Classifier:
    return Classifier(base, recipe="gpt1", multi_label=True, **FAST).fit(*zip(*rows, strict=True))


def test_the_loss_is_the_binary_cross_entropy(tokenizer: Tokenizer) -> None:
    raws = [Raw(("one text",), ("a", "c")), Raw(("another",), ()), Raw(("a third",), ("b",))]
    labels = Labels(target="labels", names=["a", "b", "c"])
    extended = tokenizer.with_task_tokens()
    encoded = encode(raws, "classify", extended, 48, targets=labels.targets(raws, "X"))
    batch = collate(encoded, np.arange(3), labels.probabilities(encoded), update_examples=3, update_sequences=3)
    logits = torch.randn(3, 3, generator=torch.Generator().manual_seed(1))
    truth = torch.tensor([[1.0, 0, 1], [0, 0, 0], [0, 1, 0]])
    expected = functional.binary_cross_entropy_with_logits(logits, truth, reduction="none").sum(dim=1).mean()
    torch.testing.assert_close(class_loss(logits, batch), expected)


def test_the_metrics_are_scikit_learns() -> None:
    draw = np.random.default_rng(1)
    for rows, labels in ((1, 2), (7, 3), (200, 12)):
        truth, chosen = (draw.random((2, rows, labels)) < 0.3).astype(float)
        measured = measure_decisions("labels", truth, chosen, truth.shape[1])
        for name in ("micro_f1", "macro_f1"):
            expected = f1_score(truth, chosen, average=name[:5], zero_division=0)
            assert measured[name]["value"] == pytest.approx(expected)
        assert measured["accuracy"]["value"] == pytest.approx(accuracy_score(truth, chosen))
        for figures in measured.values():
            low, high = figures["interval"]
            assert 0 <= low <= figures["value"] <= high <= 1
    perfect = measure_decisions("labels", np.eye(30), np.eye(30), 30)["micro_f1"]["interval"]
    assert 0.85 < perfect[0] < 1 == perfect[1]  # thirty right labels are no proof


def test_every_form_of_y_trains_the_same_model(fitted: Classifier, rows: list[tuple[str, list[str]]]) -> None:
    texts, sets = zip(*rows, strict=True)
    matrix = MultiLabelBinarizer().fit_transform(sets)
    expected = fitted.predict_proba(texts[:9])
    assert fitted.classes_.tolist() == [*WORDS]
    assert fitted.predict(texts[:9])[0] in [tuple(one) for one in (*sets, list(WORDS))]
    for y in (matrix, csr_matrix(matrix), matrix.tolist(), Frame(matrix)):
        one = clone(fitted).fit(list(texts), y)
        np.testing.assert_array_equal(one.predict_proba(texts[:9]), expected)
        assert one.predict(texts[:9]).shape == (9, 3)
        assert one.score(texts, matrix) == pytest.approx(fitted.score(texts, sets))
    assert one.classes_.tolist() == [*WORDS]  # the table's columns


def test_a_label_without_a_row_keeps_its_column(base: Path, rows: list[tuple[str, list[str]]]) -> None:
    texts, sets = zip(*rows, strict=True)
    matrix = np.hstack([np.zeros((len(rows), 1), int), MultiLabelBinarizer().fit_transform(sets)])
    classifier = Classifier(base, multi_label=True, **FAST).fit(texts, matrix)
    assert classifier.predict_proba(texts[:2]).shape == (2, 4)
    assert classifier.classes_.tolist() == [0, 1, 2, 3]


def test_a_saved_classifier_predicts_the_same(
    fitted: Classifier, rows: list[tuple[str, list[str]]], tmp_path: Path
) -> None:
    texts, _ = zip(*rows, strict=True)
    fitted.save(tmp_path / "model")
    loaded = Classifier.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(texts), fitted.predict_proba(texts))
    assert loaded.multi_label
    assert [*loaded.predict(texts)] == [*fitted.predict(texts)]


def _write(folder: Path, rows: list[tuple[str, list[str]]]) -> dict[str, tuple[Path, Columns]]:
    lists, columns, lines = folder / "lists.csv", folder / "columns.csv", folder / "lines.jsonl"
    with (
        lists.open("w", newline="", encoding="utf-8") as one,
        columns.open("w", newline="", encoding="utf-8") as other,
    ):
        in_one, in_columns = csv.writer(one), csv.writer(other)
        in_one.writerow(["text", "labels"])
        in_columns.writerow(["text", *WORDS])
        for number, (text, labels) in enumerate(rows):
            in_one.writerow(
                [text, json.dumps(labels) if number % 2 else str(labels)]
            )  # JSON's and pandas' spelling
            in_columns.writerow([text, *(int(name in labels) for name in WORDS)])
    lines.write_text("".join(json.dumps({"text": text, "labels": labels}) + "\n" for text, labels in rows))
    return {
        "lists": (lists, Columns()),
        "columns": (columns, Columns(label=[*WORDS])),
        "lines": (lines, Columns()),
    }


def test_lists_and_columns_of_tables_are_the_same_labels(
    rows: list[tuple[str, list[str]]], tmp_path: Path
) -> None:
    expected = MultiLabelBinarizer(classes=[*WORDS]).fit_transform([labels for _, labels in rows])
    for path, columns in _write(tmp_path, rows).values():
        read = [*read_table(path, "classify", columns)[1]]
        labels = learn_labels(read, "classify", "labels", path.name)
        assert labels.names == [*WORDS]
        np.testing.assert_array_equal(labels.targets(read, path.name), expected)
    assert learn_labels(read, "classify", None, "a list says it").target == "labels"
    with pytest.raises(DataError, match=r"row 6 has several labels"):
        learn_labels([row for row in read if row.label], "classify", "class", "table")
    single = [Raw(("a text",), "a; b", 1), Raw(("another",), "c", 2)]
    with pytest.raises(DataError, match="one label in each"):
        learn_labels(single, "classify", "labels", "table")
    bad = tmp_path / "bad.csv"
    bad.write_text("text,a,b\nsome text,1,0\nmore text,0,maybe\n")
    unread = read_table(bad, "classify", Columns(label=["a", "b"]))
    assert len(list(unread.rows)) == 1
    assert "row 2: column 'b' has 'maybe'" in str(unread.unread.first[0])
    with pytest.raises(DataError, match=r"no column 'a,b'.* several labels: --set target=labels$"):
        read_table(bad, "classify", Columns(label="a,b"))


def test_a_separator_splits_the_labels_of_a_cell(
    rows: list[tuple[str, list[str]]], tmp_path: Path, capsys: pytest.CaptureFixture[str], base: Path
) -> None:
    table = tmp_path / "cells.csv"
    cells = [" ; ".join(labels) or ("; " if number % 2 else "[]") for number, (_, labels) in enumerate(rows)]
    lines = [f'{text},"{cell}"\n' for (text, _), cell in zip(rows, cells, strict=True)]
    table.write_text("text,label\n" + "".join([*lines, "without,\n"]), encoding="utf-8")
    columns, read, *_ = read_table(table, "classify", Columns(separator=";"))
    *raws, last = read
    assert last.label is None
    labels = learn_labels(raws, "classify", None, "cells")
    assert labels.names == [*WORDS]
    expected = MultiLabelBinarizer(classes=[*WORDS]).fit_transform([labels for _, labels in rows])
    np.testing.assert_array_equal(labels.targets(raws, "cells"), expected)
    trained = read_table(table, "classify", Columns(), trained=columns)[0]  # as `predict` reads it again
    assert trained.separator == ";"
    y = np.array([["a"], ["b", "c"], None], dtype=object)[:2]  # what a column of pandas is
    assert as_label_sets(y) == ([("a",), ("b", "c")], None)
    with pytest.raises(DataError, match=r"--set columns\.separator=';'"):
        learn_labels([Raw(("a",), "food; sport"), Raw(("b",), "food")], "classify", "labels", "cells")
    arguments = [
        "finetune",
        "--model",
        str(base),
        "--train",
        str(table),
        "--out",
        str(tmp_path / "o"),
    ]
    assert (
        main(
            [
                *arguments,
                "--task",
                "similarity",
                "--set",
                "columns.separator=;",
                "--set",
                "columns.premise=text",
                "--set",
                "columns.hypothesis=text",
            ]
        )
        == 2
    )
    assert "several labels in one cell" in capsys.readouterr().err


def test_a_table_becomes_predictions_and_a_page(
    base: Path, rows: list[tuple[str, list[str]]], tmp_path: Path
) -> None:
    path, columns = _write(tmp_path, rows)["columns"]
    config = FinetuneConfig.build(
        {**{k: v for k, v in FAST.items() if k != "dropout"}, "target": "labels", "columns": columns}
    )
    metrics = finetune(config, tmp_path / "out", model=base, train=path)
    assert metrics["metric"] == "micro_f1"
    assert {one["name"] for one in metrics["classes"]} == {*WORDS}
    assert "micro_f1" in (tmp_path / "out" / "report.html").read_text()
    summary = predict_file(tmp_path / "out", path, tmp_path / "made.csv")
    with (tmp_path / "made.csv").open(newline="", encoding="utf-8") as handle:
        made = [*csv.DictReader(handle)]
    right = sum({*json.loads(row["prediction"])} == {*labels} for row, (_, labels) in zip(made, rows, strict=True))
    assert summary["accuracy"] == pytest.approx(right / len(rows))
    given = {"label": ", ".join(columns.label or [])}  # as in `predict --column label=a,b`
    assert (
        predict_file(tmp_path / "out", path, tmp_path / "again.csv", columns=given)["accuracy"]
        == summary["accuracy"]
    )


def test_the_server_answers_with_a_list(
    fitted: Classifier, rows: list[tuple[str, list[str]]], tmp_path: Path
) -> None:
    fitted.save(tmp_path / "topics")
    served = open_models(ServeConfig(models=[f"topics={tmp_path / 'topics'}"], max_concurrency=2))
    texts = [text for text, _ in rows[:5]]
    with TestClient(create_app(served, ServeConfig()), base_url="http://localhost") as client:
        answer = client.post("/classify", json={"model": "topics", "input": texts, "explain": True})
    shares = fitted.predict_proba(texts)
    for one, row in zip(answer.json()["data"], shares, strict=True):
        assert one["label"] == [name for name, share in zip(WORDS, row, strict=True) if share >= 0.5]
        assert [*one["probabilities"].values()] == pytest.approx(row.tolist(), abs=1e-5)
        assert one["words"]
