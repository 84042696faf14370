"""What is decided about labels is said where the user looks: in the terminal and in the report."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headwater.cli.main import main
from headwater.errors import DataError
from headwater.finetuning import FinetuneConfig, Labels, Raw, finetune, predict_file
from headwater.finetuning.results.wrong_labels import MARGIN, suspects
from headwater.finetuning.rows.labels import learn_labels
from headwater.finetuning.rows.row import Usable
from headwater.finetuning.rows.split import describe
from headwater.report import report

FAST: dict[str, Any] = {"steps": 2, "recipe": "gpt1", "lambda_lm": 0.0, "precision": "fp32", "baseline": False}
OPTIONS = [part for key, value in FAST.items() for part in ("--set", f"{key}={json.dumps(value).strip(chr(34))}")]
LINES = {"bad": "an awful film", "good": "a lovely plot"}


def table(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def rated(path: Path, labels: list[Any], words: int = 2) -> Path:
    """Write rows of distinct texts with these labels."""
    names = [*LINES]
    return table(path, [{"text": f"{LINES[names[n % words]]} {n}", "label": y} for n, y in enumerate(labels)])


def tuned(base: Path, file: Path, *options: str) -> int:
    out = file.with_name("model")
    return main(["finetune", "--model", str(base), "--train", str(file), "--out", str(out), *OPTIONS, *options])


def test_a_label_without_a_row_is_named(base: Path, tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "rows.csv"
    cells = [f"film {n},{n % 2},{(n // 2) % 2},0" for n in range(40)]
    file.write_text("\n".join(["text,food,sport,never", *cells]) + "\n")
    several = ["--task", "classify", "--set", 'target="labels"', "--label", "food,sport,never"]
    assert tuned(base, file, *several) == 0
    said = "1 label left out, without a training row: 'never'"
    assert said in capsys.readouterr().err
    assert said.replace("'", "&#39;") in (tmp_path / "model" / "report.html").read_text()
    rare = table(tmp_path / "v.jsonl", [{"text": "x", "labels": ["a"]}, {"text": "y", "labels": ["b"]}])
    lists = [{"text": f"film {n}", "labels": [["a"], ["a", "b"], ["b"]][n % 3]} for n in range(30)]
    first = finetune(
        FinetuneConfig(**FAST), tmp_path / "one", model=base, train=table(tmp_path / "l.jsonl", lists)
    )
    assert set(first["data"]["classes"]) == {"a", "b"}
    only = table(tmp_path / "again.jsonl", [row for row in lists if "b" not in row["labels"]] + [
        {"text": "both", "labels": ["a", "a"]}
    ])  # fmt: skip
    again = ["finetune", "--from", str(tmp_path / "one"), "--train", str(only), "--validation", str(rare)]
    assert main([*again, "--out", str(tmp_path / "two"), "--epochs", "1"]) == 0
    assert "1 label kept without a training row: 'b'" in capsys.readouterr().err


def test_spellings_that_are_one_class_are_counted(base: Path, tmp_path: Path, capsys: Any) -> None:
    labels = [True, 1, "true", 1.0, True, "1"] * 6
    assert tuned(base, rated(tmp_path / "rows.jsonl", labels), "--task", "classify") == 0
    said, page = capsys.readouterr().err, (tmp_path / "model" / "report.html").read_text()
    metrics = json.loads((tmp_path / "model" / "metrics.json").read_text())
    (of_true, of_one) = sorted(note for note in metrics["data"]["notes"] if note.startswith("read as one class"))[
        ::-1
    ]
    assert of_true.startswith("read as one class, 'true': true (")
    assert '"true" (' in of_true
    assert {part.partition(" (")[0] for part in of_one.partition(": ")[2].split(", ")} == {"1", "1.0", '"1"'}
    for note in (of_true, of_one):
        assert note in said
    assert page.count("read as one class") == 2
    rows = [
        json.loads(line) for line in (tmp_path / "model" / "predictions-validation.jsonl").read_text().splitlines()
    ]
    assert {row["prediction"] for row in rows} <= {"true", "1"}


def test_several_labels_are_not_advised_a_threshold(base: Path, tmp_path: Path, capsys: Any) -> None:
    rows = [{"text": f"film {n}", "labels": [["a"], ["a", "b"], ["b"]][n % 3]} for n in range(120)]
    assert tuned(base, table(tmp_path / "rows.jsonl", rows), "--task", "classify") == 0
    out, shown = tmp_path / "model", capsys.readouterr()
    assert "(67%), b: 72 (67%)" in shown.err, "shares of the rows"
    for text in (shown.out, (out / "report.html").read_text(), (out / "README.md").read_text()):
        assert "Of the surest 80 % of these labels" in text
        assert "--threshold" not in text
        assert "regress" not in text
    assert "Fine-tuning: classify, several labels" in (out / "report.html").read_text()
    joined = report([out], tmp_path / "joined.html").read_text()
    assert "rows.jsonl (classify, several labels)" in joined
    assert "regress" not in joined


def test_rows_with_none_of_the_labels_are_counted(base: Path, tmp_path: Path, capsys: Any) -> None:
    rows = [{"text": f"film {n}", "labels": [["a"], ["a", "b"], []][n % 3]} for n in range(60)]
    assert tuned(base, table(tmp_path / "rows.jsonl", rows), "--task", "classify") == 0
    assert re.search(r"^  \d+ training rows with none of the labels$", capsys.readouterr().err, re.M)


def test_a_score_has_errors_and_no_classes(base: Path, tmp_path: Path, capsys: Any) -> None:
    prices = [12_000 + 37.5 * n for n in range(60)]
    file = rated(tmp_path / "rows.jsonl", prices)
    assert tuned(base, file, "--task", "regress") == 0
    shown = capsys.readouterr()
    assert "training rows: scores from 120" in shown.err
    assert "The largest errors:" in shown.out
    assert "mistakes" not in shown.out
    metrics = json.loads((tmp_path / "model" / "metrics.json").read_text())
    for one in metrics["mistakes"]:
        assert one["difference"] == pytest.approx(one["predicted"] - one["label"], abs=1e-5)
        assert f"true {one['label']:.6g}, difference {one['difference']:+.6g}" in shown.out
    page = (tmp_path / "model" / "report.html").read_text()
    assert "difference" in page
    assert "p(" not in page
    for name in ("out.csv", "out.jsonl"):
        summary = predict_file(tmp_path / "model", file, tmp_path / name)
    assert (tmp_path / "out.csv").read_text().splitlines()[0] == "text,label,prediction"
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    error = np.mean([abs(row["prediction"] - row["label"]) for row in rows])
    assert (summary["labelled"], summary["mean_absolute_error"]) == (60, pytest.approx(error, rel=1e-6))
    dearer = rated(tmp_path / "dearer.jsonl", [14_000 + 50 * n for n in range(20)])
    further = ["finetune", "--from", str(tmp_path / "model"), "--train", str(dearer), "--dry-run"]
    assert main([*further, "--out", str(tmp_path / "further"), "--validation", str(file)]) == 0
    said = "15 training rows beyond the earlier model's scores, 12000 to 14213: read as the nearer of the two"
    assert said in capsys.readouterr().err


def test_the_counts_are_those_of_what_was_written(base: Path, tmp_path: Path, capsys: Any) -> None:
    file = rated(tmp_path / "rows.jsonl", ["bad", "good", "odd"] * 20)
    assert tuned(base, file, "--task", "classify") == 0
    mixed = table(tmp_path / "new.jsonl", [{"text": "a film", "label": "bad"}, {"text": " "}, {"text": "a plot"}])
    asked = ["predict", str(mixed), "--model", str(tmp_path / "model"), "--out", str(tmp_path / "out.jsonl")]
    capsys.readouterr()
    assert main([*asked, "--threshold", "0.9", "--top", "99"]) == 0
    shown = capsys.readouterr()
    written = [json.loads(line)["prediction"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert written == [None] * 3
    assert shown.out.splitlines()[:2] == [
        f"0 of 3 rows labelled: {tmp_path / 'out.jsonl'}",
        "2 rows below the threshold, without a prediction",
    ]
    assert "--top 99: the model has 3 classes, and all are written" in shown.err
    assert main([*asked[:5], str(tmp_path / "more.jsonl")]) == 0
    assert "2 of 3 rows labelled" in capsys.readouterr().out
    assert (
        main(["finetune", "--task", "classify", "--model", str(base), "--train", str(mixed), "--show", "3"]) == 0
    )
    printed = capsys.readouterr().out
    assert "row 3: without a label" in printed
    assert "None" not in printed


def test_rows_that_were_trained_on_are_counted(base: Path, tmp_path: Path, capsys: Any) -> None:
    file = rated(tmp_path / "rows.jsonl", ["bad", "good"] * 20)
    assert tuned(base, file, "--task", "classify", "--validation", str(file)) == 0
    asked = ["predict", "--model", str(tmp_path / "model"), "--out"]
    assert main([*asked, str(tmp_path / "out.csv"), str(file)]) == 0
    assert "40 of 40 rows were trained on" in capsys.readouterr().err
    other = rated(tmp_path / "new.jsonl", ["bad"] * 2 + ["good"] * 40)
    assert main([*asked, str(tmp_path / "other.csv"), str(other)]) == 0
    assert "40 of 42 rows were trained on" in capsys.readouterr().err
    assert main([*asked, str(tmp_path / "none.csv"), str(table(tmp_path / "n.jsonl", [{"text": "new"}]))]) == 0
    assert "trained on" not in capsys.readouterr().err


def test_a_near_tie_is_not_a_label_to_check() -> None:
    rows = [Raw((str(n),), "a", n) for n in range(4)]
    shares = np.array([[0.49, 0.51], [0.46, 0.54], [0.4, 0.6], [0.9, 0.1]])
    found = suspects(rows, np.zeros(4), shares, Labels(target="class", names=["a", "b"]))
    assert [one["row"] for one in found] == [2]
    assert found[0]["p(suggested)"] - found[0]["p(label)"] >= MARGIN


def test_figures_of_few_rows_or_below_chance_are_warnings(base: Path, tmp_path: Path, capsys: Any) -> None:
    file = rated(tmp_path / "rows.jsonl", ["bad", "good"] * 15)
    assert tuned(base, file, "--task", "classify") == 0
    capsys.readouterr()
    few = rated(tmp_path / "few.jsonl", ["bad", "good"] * 2)
    given = [
        "finetune",
        "--from",
        str(tmp_path / "model"),
        "--train",
        str(file),
        "--out",
        str(tmp_path / "second"),
    ]
    assert main([*given, "--validation", str(few), "--set", "steps=1"]) == 0
    said = "Warning: 4 rows cannot tell a good model from a bad one: give --validation FILE, or more rows"
    assert said in capsys.readouterr().out
    assert said in (tmp_path / "second" / "report.html").read_text()
    opposite = rated(tmp_path / "opposite.jsonl", ["good", "bad"] * 20)
    config = FinetuneConfig.build(FAST | {"recipe": "probe"})
    straight = rated(tmp_path / "straight.jsonl", ["bad", "good"] * 20)
    metrics = finetune(config, tmp_path / "third", model=base, train=straight, validation=opposite)
    assert metrics["accuracy"] < 0.5
    assert any("is below chance, 0.500: these rows do not teach the labels" in one for one in metrics["warnings"])


def test_a_row_that_cannot_be_read_costs_itself(
    base: Path, sentences: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wherever it stands: counted in the terminal, the report and `metrics.json`; `predict` keeps the order."""
    rows = [json.dumps({"text": t, "label": y}) for t, y in zip(*sentences(30), strict=True)]
    broken = {0: '{"text": "cut', 9: "[1]", 20: '{"text": {"a": 1}, "label": "good"}', 33: '{"text": "a"'}
    lines = rows.copy()
    for place, line in broken.items():
        lines.insert(place, line)
    table, out, predicted = tmp_path / "t.jsonl", tmp_path / "m", tmp_path / "p.jsonl"
    table.write_text("\n".join(lines), encoding="utf-8")
    given = ["finetune", "--model", str(base), "--task", "classify", "--out", str(out), "--no-baseline"]
    assert main([*given, "--train", str(table), "--set", "recipe=probe"]) == 0
    said = f"skipped in {table}: 4 rows that cannot be read; the first: {table} line 1 is not JSON"
    assert said in capsys.readouterr().err
    assert "4 rows that cannot be read" in (out / "report.html").read_text(encoding="utf-8")
    metrics = json.loads((out / "metrics.json").read_text(encoding="utf-8"))
    assert metrics["data"]["unread"] == {"train": 4}
    assert sum(metrics["counts"].values()) == 30
    assert main(["predict", str(table), "--model", str(out), "--out", str(predicted)]) == 0
    told = capsys.readouterr().err
    assert "4 rows that cannot be read, without a line in the output" in told
    assert f"not in the output: {table} line 10 is [1]" in told
    answers = [json.loads(line) for line in predicted.read_text(encoding="utf-8").splitlines()]
    assert [one["text"] for one in answers] == [json.loads(line)["text"] for line in rows]
    fields = tmp_path / "t.csv"
    content = ["text,label", "one", *(f"{t},{y}" for t, y in zip(*sentences(30), strict=True)), "a,b,c"]
    fields.write_text("\n".join(content), encoding="utf-8")
    assert main(["predict", str(fields), "--model", str(out), "--out", str(tmp_path / "p.csv")]) == 0
    assert "not in the output: " + f"{fields} row 1 has 1 field" in capsys.readouterr().err
    assert len((tmp_path / "p.csv").read_text(encoding="utf-8").splitlines()) == 31


@pytest.mark.parametrize(("name", "content"), [("t.jsonl", 'oops\n{"a'), ("t.csv", "text,label\na\nb,c,d\n")])
def test_a_table_of_rows_that_cannot_be_read_is_refused(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: str
) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    given = ["--task", "classify", "--train", str(tmp_path / name), "--out", str(tmp_path / "m")]
    assert main(["finetune", "--model", str(base), *given]) == 1
    assert re.search("line 1 is not JSON|row 1 has 1 field", capsys.readouterr().err)


def test_a_label_in_a_list_among_others_is_noted() -> None:
    rows = [Raw((f"text {n}",), n % 2, n) for n in range(8)]

    def notes(*more: Raw) -> str:
        every = [*rows, *more]
        labels = learn_labels(every, "classify", None, "it")
        targets = labels.targets(every, "it")
        return " ".join(describe(Usable(every), Usable([]), labels, targets)[1])

    assert "a class written as a list: '[1]'" in notes(Raw(("a",), "[1]", 9))
    assert "1 training row with a list of labels, 8 with one label alone" in notes(Raw(("a",), ("0", "1"), 9))
    with pytest.raises(DataError, match="it row 9 has a list with one label, and other rows have the label alone"):
        notes(Raw(("a",), ("1",), 9))


def test_a_mistake_has_its_label_as_predictions_have_it() -> None:
    labels = learn_labels([Raw((f"{n}",), f"{n % 2}.0", n) for n in range(8)], "classify", None, "it")
    assert [labels.as_named(one) for one in (1, 1.0, "1", "1.0", "other", ("1", "0"))] == [
        *["1.0"] * 4,
        "other",
        "1.0, 0.0",
    ]
