"""Both Unicode forms of a text and of a label are the same to a fine-tuned model."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from unicodedata import normalize

import numpy as np

from headwater.corpus import build_corpus, load_recipe, read_documents
from headwater.finetuning import Classifier, FinetuneConfig, FineTuned, explain, finetune, predict_file
from headwater.finetuning.rows.read import Columns, read_table

TEXTS = [f"{word} 영화 {number}" for number in range(8) for word in ("멋진", "지루한")]
LABELS = ["긍정", "부정"] * 8


def table(path: Path, texts: list[str], labels: list[str]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as handle:
        csv.writer(handle).writerows([("text", "label"), *zip(texts, labels, strict=True)])
    return path


def decomposed(texts: list[str]) -> list[str]:
    return [normalize("NFD", text) for text in texts]


def test_a_model_of_one_form_predicts_the_same_for_the_other(base: Path, tmp_path: Path) -> None:
    mixed = [normalize("NFD", label) if n % 3 else label for n, label in enumerate(LABELS)]
    train = table(tmp_path / "train.csv", TEXTS, mixed)
    config = FinetuneConfig().with_keys(steps=4, learning_rate=1e-3)
    finetune(config, tmp_path / "model", model=base, train=train)
    files = [table(tmp_path / "nfc.csv", TEXTS, LABELS), table(tmp_path / "nfd.csv", decomposed(TEXTS), mixed)]
    found = []
    for file in files:
        summary = predict_file(tmp_path / "model", file, file.with_suffix(".jsonl"))
        rows = [json.loads(line) for line in file.with_suffix(".jsonl").read_text().splitlines()]
        found.append((summary["accuracy"], [(row["prediction"], row["probabilities"]) for row in rows]))
    assert found[0] == found[1]
    assert set(found[0][1][0][1]) == {"긍정", "부정"}
    tuned = FineTuned.load(tmp_path / "model")
    assert explain(tuned, (TEXTS[0],), 0) == explain(tuned, (decomposed(TEXTS)[0],), 0)


def test_columns_are_named_in_either_form(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(normalize("NFD", "글,갈래\n강물,긍정\n산,부정\n"), encoding="utf-8")
    for form in ("NFC", "NFD"):
        named = Columns(text=normalize(form, "글"), label=normalize(form, "갈래"))
        found, rows, *_ = read_table(path, "classify", named)
        assert [row.composed().label for row in rows] == ["긍정", "부정"]
        config = load_recipe("plain", {"text_field": normalize(form, "글")})
        build_corpus([path], tmp_path / form, config)
        assert [document.text for document in read_documents(tmp_path / form)] == ["강물", "산"]
    path.write_text("글,갈래\n강물,긍정\n", encoding="utf-8")
    assert [row.segments for row in read_table(path, "classify", Columns(), trained=found)[1]] == [("강물",)]


def test_an_estimator_takes_both_forms_of_texts_and_labels(base: Path, tmp_path: Path) -> None:
    mixed = [normalize("NFD", label) if n % 3 else label for n, label in enumerate(LABELS)]
    classifier = Classifier(base, epochs=1, lambda_lm=0.0).fit(TEXTS, mixed)
    assert classifier.classes_.tolist() == ["긍정", "부정"]
    np.testing.assert_array_equal(classifier.predict_proba(decomposed(TEXTS)), classifier.predict_proba(TEXTS))
    assert classifier.score(TEXTS, mixed) == classifier.score(TEXTS, LABELS)
    classifier.save(tmp_path / "saved")
    loaded = Classifier.load(tmp_path / "saved")
    assert loaded.predict(decomposed(TEXTS)).tolist() == classifier.predict(TEXTS).tolist()
