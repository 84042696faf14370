"""`predict` and the test part: which columns are read, and that what is written can be read again."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.cli.main import main
from headwater.errors import FolderError, UsageError
from headwater.finetuning import FinetuneConfig, FineTuned, Labels, Prediction, Raw, finetune, predict_file
from headwater.finetuning.predict import _MOST_FOREIGN, _Tally
from headwater.finetuning.rows.read import Unread
from headwater.inference import load
from headwater.reading import open_table
from headwater.storage import SILENT
from headwater.tokenizer import TASK_TOKENS

FAST = FinetuneConfig(steps=1, precision="fp32")


@pytest.fixture(scope="module")
def tuned(base: Path, tmp_path_factory: pytest.TempPathFactory, sentences: Any) -> Path:
    """Return a model of the columns `review` and `sentiment`."""
    folder = tmp_path_factory.mktemp("predict")
    with (folder / "train.csv").open("w", newline="") as handle:
        csv.writer(handle).writerows([("review", "sentiment"), *zip(*sentences(60), strict=True)])
    finetune(FAST, folder / "model", model=base, train=folder / "train.csv")
    return folder / "model"


def predicted(model: Path, file: Path, name: str = "out.jsonl", **options: Any) -> list[dict[str, Any]]:
    out = file.with_name(name)
    out.unlink(missing_ok=True)
    predict_file(model, file, out, **options)
    return [dict(row) for _, row in open_table(out).rows]


def test_the_column_of_training_precedes_a_likelier_name(tuned: Path, tmp_path: Path) -> None:
    assert FineTuned.load(tuned).description.columns.text == "review"
    both, alone = tmp_path / "both.csv", tmp_path / "alone.csv"
    both.write_text("text,review\nid-1,the film was great\n")
    alone.write_text("review\nthe film was great\n")
    shares = [predicted(tuned, file)[0]["probabilities"] for file in (both, alone)]
    assert shares[0] == shares[1]
    named = predicted(tuned, both, columns={"text": "text"})[0]["probabilities"]
    assert named != shares[0]


def test_no_column_of_a_later_object_is_lost_or_written_over(tuned: Path, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    odd = {"review": "bad", "id": 7, "prediction": "mine", "meta": {}, "large": 2**70}
    file.write_text(f'{{"review": "good"}}\n{json.dumps(odd)}\n')
    assert [row["id"] for row in predicted(tuned, file, "out.csv")] == ["", "7"]
    second = predicted(tuned, file)[1]
    assert {key: second[key] for key in odd} == odd
    assert second["prediction_"] in {"bad", "good"}


def test_what_predict_writes_is_read_again(
    tuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = ["a\rcarriage return", 'a "quote"', "a, comma", "two\nlines"]
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(json.dumps({"review": text}) for text in texts))
    assert [row["review"] for row in predicted(tuned, file, "out.csv")] == texts
    nested = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"review": ["fine"], "numbers": [[1.0, float("nan")]]}), nested)
    predict_file(tuned, nested, tmp_path / "out.jsonl")
    written = json.loads((tmp_path / "out.jsonl").read_text(), parse_constant=pytest.fail)
    assert written["numbers"] == [1.0, None]


def test_a_missing_column_is_named_with_the_option_of_predict(
    tuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("first line,b\nx,y\n")
    asked = ["predict", str(file), "--model", str(tuned), "--out", str(tmp_path / "out.csv")]
    assert main(asked) == 1
    assert "Name it: --column text=COLUMN" in capsys.readouterr().err
    assert main([*asked, "--column", "premise=b"]) == 2
    assert "task classify does not read a column 'premise'" in capsys.readouterr().err
    assert main([*asked, "--column", "text=first line"]) == 0


def test_shortened_texts_are_counted(tuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("review\n" + "word " * 5_000 + "\nshort\n")
    assert main(["predict", str(file), "--model", str(tuned), "--out", str(tmp_path / "out.csv")]) == 0
    assert "shortened 1 row that did not fit the model's context" in capsys.readouterr().err


def test_a_test_part_is_measured_on_its_rows_with_text_and_label(
    base: Path, tuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train, test = tuned.with_name("train.csv"), tmp_path / "test.csv"
    test.write_text('review,sentiment\nnice,good\nawful,bad\nodd,\n" ",good\n')
    asked = ["finetune", "--model", str(base), "--task", "classify", "--train", str(train), "--test", str(test)]
    settings = ["--set", "steps=1", "--set", "precision=fp32"]
    assert main([*asked, *settings, "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr()
    assert "not measured in test: 2 rows without text or label" in printed.err
    assert "on 2 rows" in printed.out.partition("Test accuracy")[2]
    lines = (tmp_path / "out" / "predictions-test.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    assert (found[3]["prediction"], found[3]["probabilities"]) == (None, {})  # as `predict` has it
    right = sum(row["label"] == row["prediction"] for row in found[:2])
    measured = json.loads((tmp_path / "out" / "metrics.json").read_text())["tests"]["test"]
    assert (measured["count"], measured["labelled"], measured["accuracy"]["value"]) == (4, 2, right / 2)


def test_a_fine_tuned_model_writes_text_without_its_task_tokens(tuned: Path) -> None:
    lm = load(tuned)
    tokens = {lm.tokenizer.special_tokens[name] for name in TASK_TOKENS}
    written = {
        token
        for seed in range(8)
        for token in lm.submit("the", seed=seed, temperature=50, max_tokens=40).wait().tokens
    }
    assert not written & tokens


def test_predictions_replace_no_file(tuned: Path, tmp_path: Path) -> None:
    rows, out = tmp_path / "rows.csv", tmp_path / "made" / "predictions.jsonl"
    rows.write_text("review\nthe film was great\nthe film was bad\n")
    predict_file(tuned, rows, out)
    assert [path.name for path in out.parent.iterdir()] == ["predictions.jsonl"]
    out.write_text("my corrections\n")
    with pytest.raises(FolderError, match=r"predictions\.jsonl exists\. Choose another --out"):
        predict_file(tuned, rows, out)
    assert out.read_text() == "my corrections\n"


def test_csv_with_a_mark_has_the_same_predictions(tuned: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("id,review\n1,the film was great\n2,\n", encoding="utf-8")
    expected = predicted(tuned, rows, "out.csv")
    assert predicted(tuned, rows, "marked.csv", bom=True) == expected
    assert (tmp_path / "marked.csv").read_bytes() == b"\xef\xbb\xbf" + (tmp_path / "out.csv").read_bytes()
    with pytest.raises(UsageError, match="does not belong into"):
        predict_file(tuned, rows, tmp_path / "out.jsonl", bom=True)
    with pytest.raises(UsageError, match="has an unknown extension"):
        predict_file(tuned, rows, tmp_path / "out.parquet")


def test_rows_in_another_encoding_are_detected_or_named(tuned: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_bytes("review,note\nthe film,é\n".encode("cp1252"))
    assert predicted(tuned, rows)[0]["note"] == "é"
    assert predicted(tuned, rows, encoding="cp1252")[0]["note"] == "é"


def test_a_threshold_leaves_unsure_rows_empty(tuned: Path, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("review,sentiment\na lovely film,good\nan awful plot,bad\nthe,bad\n")
    whole = predict_file(tuned, file, tmp_path / "whole.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "whole.jsonl").read_text().splitlines()]
    top = sorted(max(row["probabilities"].values()) for row in rows)
    threshold = (top[0] + top[1]) / 2
    summary = predict_file(tuned, file, tmp_path / "sure.jsonl", threshold=threshold)
    sure = [json.loads(line) for line in (tmp_path / "sure.jsonl").read_text().splitlines()]
    assert (summary["unsure"], summary["labelled"], whole["labelled"]) == (1, 2, 3)
    assert [row["prediction"] is None for row in sure] == [
        max(row["probabilities"].values()) < threshold for row in rows
    ]
    assert [row["probabilities"] for row in sure] == [row["probabilities"] for row in rows]


def test_what_is_measured_is_what_is_predicted(base: Path, tuned: Path, tmp_path: Path) -> None:
    """Whatever the precision of the training."""
    train = tuned.with_name("train.csv")
    config = FinetuneConfig.build({"steps": 2, "precision": "bf16", "learning_rate": 1e-2})
    finetune(config, tmp_path / "out", model=base, train=train, validation=train)
    predict_file(tmp_path / "out", train, tmp_path / "predicted.jsonl")
    predicted = [json.loads(line) for line in (tmp_path / "predicted.jsonl").read_text().splitlines()]
    lines = (tmp_path / "out" / "predictions-validation.jsonl").read_text().splitlines()
    for measured, row in zip(map(json.loads, lines), predicted, strict=True):
        assert measured["probabilities"] == pytest.approx(row["probabilities"], abs=1e-5)


def test_a_table_of_other_labels_has_no_accuracy(tuned: Path, tmp_path: Path, capsys: Any) -> None:
    file, out = tmp_path / "rows.csv", tmp_path / "new" / "folder" / "out.csv"
    file.write_text("review,sentiment\na lovely film,positive\nan awful plot,negative\n")
    assert main(["predict", str(file), "--model", str(tuned), "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert "No label in the table is one of the model's: the table has 'positive', 'negative'" in said.err
    assert "accuracy" not in said.out
    assert out.is_file()  # in a folder that was missing
    file.write_text("review,sentiment\na lovely film,positive\nan awful plot,bad\n")
    assert main(["predict", str(file), "--model", str(tuned), "--out", str(out.with_suffix(".jsonl"))]) == 0
    said = capsys.readouterr()
    assert "The labels of 1 of 2 rows are not the model's" in said.err
    assert re.search(r"accuracy [01]\.\d{3} on the 2 rows with prediction and label", said.out)


def test_a_long_table_is_counted_in_bounded_memory() -> None:
    tally, count = _Tally(Labels(target="class", names=["a", "b"]), 0.0, Unread()), 2 * _MOST_FOREIGN
    for number in range(1, count + 1):
        tally.add(Raw(("",), None, number), Prediction(number, None, {}), SILENT)
        tally.add(Raw(("text",), f"other {number}", number), Prediction(number, "a", {"a": 1.0}), SILENT)
    assert len(tally.first_empty) == 5
    assert len(tally.foreign_names) == _MOST_FOREIGN
    empty, foreign = tally.notes()
    assert empty == f"Rows without text, which get an empty prediction ({count:,}): 1, 2, 3, 4, 5, …"
    assert foreign.startswith("No label in the table is one of the model's")
    assert tally.summary() == {"rows": 2 * count, "empty": count}
