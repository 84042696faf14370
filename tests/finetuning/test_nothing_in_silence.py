"""What is decided about labels is said where the user looks: in the terminal and in the report."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headwater.cli.main import main
from headwater.finetuning import FinetuneConfig, Raw, finetune, predict_file
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
    lists = [{"text": f"film {n}", "labels": [["a"], ["a", "b"], ["b"]][n % 3]} for n in range(30)]
    first = finetune(
        FinetuneConfig(**FAST), tmp_path / "one", model=base, train=table(tmp_path / "l.jsonl", lists)
    )
    assert [one["name"] for one in first["classes"]] == ["a", "b"]


def test_spellings_that_are_one_class_are_counted(base: Path, tmp_path: Path, capsys: Any) -> None:
    labels = [True, 1, "true", 1.0, True, "1"] * 6
    assert tuned(base, rated(tmp_path / "rows.jsonl", labels), "--task", "classify") == 0
    said, page = capsys.readouterr().err, (tmp_path / "model" / "report.html").read_text()
    metrics = json.loads((tmp_path / "model" / "metrics.json").read_text())
    (of_true, of_one) = sorted(note for note in metrics["notes"] if note.startswith("read as one class"))[::-1]
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
    assert "(67%), b: 80 (67%)" in shown.err, "shares of the rows"
    for text in (shown.out, (out / "report.html").read_text()):
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
        assert one["difference"] == pytest.approx(float(one["predicted"]) - float(one["label"]), abs=0.06)
    assert f"difference {metrics['mistakes'][0]['difference']:+.6g}" in shown.out
    page = (tmp_path / "model" / "report.html").read_text()
    assert "difference" in page
    assert "p(" not in page
    for name in ("out.csv", "out.jsonl"):
        summary = predict_file(tmp_path / "model", file, tmp_path / name)
    assert (tmp_path / "out.csv").read_text().splitlines()[0] == "text,label,prediction"
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    error = np.mean([abs(row["prediction"] - row["label"]) for row in rows])
    assert (summary["labelled"], summary["mean_absolute_error"]) == (60, pytest.approx(error, rel=1e-6))


def test_the_counts_are_those_of_what_was_written(base: Path, tmp_path: Path, capsys: Any) -> None:
    file = rated(tmp_path / "rows.jsonl", ["bad", "good", "odd"] * 20)
    assert tuned(base, file, "--task", "classify") == 0
    mixed = table(tmp_path / "new.jsonl", [{"text": "a film", "label": "bad"}, {"text": " "}, {"text": "a plot"}])
    asked = ["predict", str(mixed), "--model", str(tmp_path / "model"), "--out", str(tmp_path / "out.jsonl")]
    capsys.readouterr()
    assert main([*asked, "--threshold", "0.9"]) == 0
    shown = capsys.readouterr()
    written = [json.loads(line)["prediction"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert written == [None] * 3
    assert shown.out.splitlines()[:2] == [
        f"0 of 3 rows labelled: {tmp_path / 'out.jsonl'}",
        "2 rows below the threshold, without a prediction",
    ]
    assert main([*asked[:5], str(tmp_path / "more.jsonl")]) == 0
    assert "2 of 3 rows labelled" in capsys.readouterr().out
    assert (
        main(["finetune", "--task", "classify", "--model", str(base), "--train", str(mixed), "--show", "3"]) == 0
    )
    printed = capsys.readouterr().out
    assert "row 3: without a label" in printed
    assert "None" not in printed


def test_figures_of_few_rows_or_near_chance_are_warnings(base: Path, tmp_path: Path, capsys: Any) -> None:
    file = rated(tmp_path / "rows.jsonl", ["bad", "good"] * 15)
    few = rated(tmp_path / "few.jsonl", ["bad", "good"] * 2)
    assert tuned(base, file, "--task", "classify", "--validation", str(few)) == 0
    warned = "Warning: 4 rows cannot tell a good model from a bad one: give --validation FILE, or more rows"
    assert warned in capsys.readouterr().out
    assert warned in (tmp_path / "model" / "report.html").read_text()
    opposite = rated(tmp_path / "opposite.jsonl", ["good", "bad"] * 20)
    config = FinetuneConfig.build(FAST | {"recipe": "probe"})
    straight = rated(tmp_path / "straight.jsonl", ["bad", "good"] * 20)
    metrics = finetune(config, tmp_path / "third", model=base, train=straight, validation=opposite)
    assert metrics["accuracy"] < 0.5
    assert any("is not clearly above chance, 0.500: do not rely" in one for one in metrics["warnings"])


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
    given = ["finetune", "--model", str(base), "--task", "classify", "--out", str(out)]
    assert main([*given, "--train", str(table), "--set", "recipe=probe"]) == 0
    said = f"skipped in {table}: 4 rows that cannot be read; the first: {table} line 1 is not JSON"
    assert said in capsys.readouterr().err
    assert "4 rows that cannot be read" in (out / "report.html").read_text(encoding="utf-8")
    metrics = json.loads((out / "metrics.json").read_text(encoding="utf-8"))
    assert metrics["counts"] == {"train": 30, "validation": 0}
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
        return " ".join(describe({"training": Usable(every)}, labels, targets, [])[1])

    assert "a class written as a list: '[1]'" in notes(Raw(("a",), "[1]", 9))
    assert "1 training row with a list of labels, 8 with one label alone" in notes(Raw(("a",), ("0", "1"), 9))
    assert "1 training row with a list of one label: read as one label a row" in notes(Raw(("a",), ("1",), 9))


def test_a_mistake_has_its_label_as_predictions_have_it() -> None:
    labels = learn_labels([Raw((f"{n}",), f"{n % 2}.0", n) for n in range(8)], "classify", None, "it")
    assert [labels.as_named(one) for one in (1, 1.0, "1", "1.0", "other", ("1", "0"))] == [
        *["1.0"] * 4,
        "other",
        "1.0, 0.0",
    ]
