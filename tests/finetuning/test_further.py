"""Training a fine-tuned model further: its head is kept with new rows."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import torch

import headwater as hw
from headwater.cli.main import main
from headwater.errors import DataError, HeadwaterError, UsageError
from headwater.finetuning import FinetuneConfig, FineTuned, finetune
from headwater.report import report

FAST = ["--set=batch_size=8", "--set=precision=fp32", "--set=checkpoint_every=2", "--set=learning_rate=1e-3"]


def write(path: Path, texts: list[str], labels: list[str]) -> Path:
    with path.open("w", newline="") as handle:
        csv.writer(handle).writerows([("text", "label"), *zip(texts, labels, strict=True)])
    return path


PAPER = ("--set", "recipe=gpt1")


@pytest.fixture(scope="module")
def week(base: Path, tmp_path_factory: pytest.TempPathFactory, sentences: Any) -> tuple[Path, Path]:
    """Return the first week's model and table."""
    folder = tmp_path_factory.mktemp("week")
    table = write(folder / "first.csv", *sentences(60, seed=1))
    assert (
        command(folder / "first", "--model", base, "--task", "classify", "--train", table, "--epochs", "1", *PAPER)
        == 0
    )
    return folder / "first", table


def command(out: Path, *arguments: Any) -> int:
    return main(["finetune", "--out", str(out), *map(str, arguments), *FAST])


def further(tmp_path: Path, week: tuple[Path, Path], sentences: Any, label: str) -> Path:
    """Return a table of new rows, all good or with a label of their own."""
    texts, _ = sentences(30, seed=4)
    kept = [(f"{text} today", label if n % 3 == 0 else "good") for n, text in enumerate(texts)]
    return write(tmp_path / "new.csv", [text for text, _ in kept], [name for _, name in kept])


def test_labels_keep_their_order_and_new_ones_come_last(
    week: tuple[Path, Path], tmp_path: Path, sentences: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    table = further(tmp_path, week, sentences, "arrival")
    assert command(tmp_path / "second", "--from", week[0], "--train", table, "--epochs", "1") == 0
    said = capsys.readouterr()
    assert "1 new label, after the others: 'arrival'" in said.err
    assert "1 label kept without a training row: 'bad'" in said.err
    tuned = FineTuned.load(tmp_path / "second")
    assert tuned.labels.names == ["bad", "good", "arrival"]
    metrics = json.loads((tmp_path / "second" / "metrics.json").read_text())
    assert metrics["continued"]["known"] == 0
    assert metrics["continued"]["without_rows"] == ["bad"]
    assert "arrival" in (tmp_path / "second" / "report.html").read_text()
    joined = report([week[0], tmp_path / "second"], tmp_path / "both.html").read_text()
    assert (joined.count("from the pre-trained weights"), joined.count(f"from {week[0]}")) == (1, 1)
    both = tmp_path / "both.csv"
    both.write_text(week[1].read_text() + table.read_text().partition("\n")[2])
    assert command(tmp_path / "third", "--from", tmp_path / "second", "--train", both, "--epochs", "1") == 0
    trained = json.loads((tmp_path / "third" / "metrics.json").read_text())["continued"]
    assert trained["known"] == trained["rows"] > 60
    assert FineTuned.load(tmp_path / "third").labels == tuned.labels


def test_the_earlier_model_is_measured_on_the_same_rows(
    week: tuple[Path, Path], tmp_path: Path, sentences: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    table = further(tmp_path, week, sentences, "arrival")
    validation = write(tmp_path / "validation.csv", *sentences(40, seed=7))
    earlier = ["--from", week[0], "--train", table, "--validation", validation, "--epochs", "1"]
    assert command(tmp_path / "new", *earlier) == 0
    said, metrics = capsys.readouterr().out, json.loads((tmp_path / "new" / "metrics.json").read_text())
    old = hw.Classifier.load(week[0]).score(*sentences(40, seed=7))
    assert metrics["continued"]["before"]["value"] == pytest.approx(old)
    assert f"The model that it continues has {old:.3f}" in said
    assert "60 of the 60 rows that" in said  # none of the first week's rows is here
    if metrics["value"] < old:
        assert "is better on the same rows" in said
    assert f"The model that it continues has {old:.3f}" in (tmp_path / "new" / "report.html").read_text()


def test_a_training_begins_with_the_weights_of_the_head(week: tuple[Path, Path], tmp_path: Path) -> None:
    config = FinetuneConfig.build({**FineTuned.keys_of(week[0]), "steps": 1, "learning_rate": 1e-9})
    finetune(config, tmp_path / "same", model=week[0], train=week[1])
    one, other = (FineTuned.load(folder).model.head.state_dict() for folder in (week[0], tmp_path / "same"))
    for name, tensor in one.items():
        assert torch.allclose(tensor, other[name], atol=1e-6)


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (["--task", "entail"], 2, "fine-tuned with task = classify"),
        (["--freeze"], 2, "fine-tuned with freeze = False"),
        (["--set", "from_scratch=true"], 2, "keep_head needs the fine-tuned weights"),
        (["--tokenizer", "gpt2"], 1, "tokenizer"),
        (["--model", "gpt2-mini"], 2, "--from does not use --model"),
    ],
)
def test_another_kind_of_head_is_refused_by_name(
    options: list[str],
    status: int,
    message: str,
    week: tuple[Path, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = tmp_path / "pairs.csv"
    rows.write_text("text,premise,hypothesis,label\n" + "".join(f"a{n},a{n},b{n},good\n" for n in range(9)))
    assert command(tmp_path / "out", "--from", week[0], "--train", rows, *options) == status
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_numbers_among_words_are_not_new_labels(week: tuple[Path, Path], tmp_path: Path) -> None:
    config = FinetuneConfig.build(FineTuned.keys_of(week[0]))
    table = write(tmp_path / "new.csv", ["a", "b", "c"], ["1", "0", "1"])
    with pytest.raises(DataError, match="a number, but the training labels are words"):
        finetune(config, tmp_path / "out", model=week[0], train=table)


def test_a_base_has_no_head_to_keep(base: Path, week: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(HeadwaterError, match="not a fine-tuned model"):
        FineTuned.keys_of(base)
    estimator = hw.Classifier.load(week[0])
    assert estimator.get_params()["base"] == base


def test_a_head_over_a_frozen_base_is_kept_too(base: Path, week: tuple[Path, Path], tmp_path: Path) -> None:
    frozen = {"freeze": True, "batch_size": 8, "epochs": 1}
    finetune(FinetuneConfig.build(frozen), tmp_path / "a", model=base, train=week[1])
    config = FinetuneConfig.build({**FineTuned.keys_of(tmp_path / "a"), "steps": 1, "learning_rate": 1e-9})
    finetune(config, tmp_path / "b", model=tmp_path / "a", train=week[1])
    one, other = (FineTuned.load(tmp_path / name).model.head.state_dict() for name in "ab")
    assert all(torch.allclose(tensor, other[name], atol=1e-6) for name, tensor in one.items())
    with pytest.raises(UsageError, match="freeze = True, and now it is False"):
        finetune(FinetuneConfig(keep_head=True), tmp_path / "c", model=tmp_path / "a", train=week[1])


def test_an_estimator_goes_on_with_its_head(week: tuple[Path, Path], tmp_path: Path, sentences: Any) -> None:
    texts, labels = sentences(30, seed=4)
    labels = ["arrival" if n % 3 == 0 else label for n, label in enumerate(labels)]
    loaded = hw.Classifier.load(week[0])
    head = loaded.fine_tuned_.model.head.weight.detach().clone()
    again = loaded.set_params(warm_start=True, epochs=0.1, learning_rate=1e-9).fit(texts, labels)
    assert again.classes_.tolist() == ["bad", "good", "arrival"]
    assert torch.allclose(again.fine_tuned_.model.head.weight[:2].detach(), head, atol=1e-6)
    again.save(tmp_path / "saved")
    assert hw.Classifier.load(tmp_path / "saved").classes_.tolist() == ["bad", "good", "arrival"]
    with pytest.raises(UsageError, match="freeze"):
        hw.Classifier.load(week[0]).set_params(warm_start=True, freeze=True).fit(texts, labels)


def test_a_loaded_estimator_explains(week: tuple[Path, Path]) -> None:
    loaded = hw.Classifier.load(week[0])
    ((first, nothing),) = [loaded.explain(["a lovely film", " "])]
    assert [piece["text"] for piece in first] == ["a", " lovely", " film"]
    assert nothing is None


def test_no_row_that_the_base_was_trained_on_is_measured(
    base: Path, tmp_path: Path, sentences: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    table = write(tmp_path / "first.csv", *sentences(34, seed=1))
    assert command(tmp_path / "clf", "--model", base, "--task", "classify", "--train", table) == 0
    capsys.readouterr()
    assert command(tmp_path / "again", "--from", tmp_path / "clf", "--train", table, "--epochs", "1") == 0
    said, metrics = capsys.readouterr(), json.loads((tmp_path / "again" / "metrics.json").read_text())
    assert f"all 34 training rows are known to {tmp_path / 'clf'}\n" in said.err
    assert "no row is new to" in said.err
    assert "No validation figure" in said.out
    assert (metrics["counts"], metrics["count"]) == ({"train": 34, "validation": 0}, 0)
    assert not {"value", "accuracy", "baseline", "classes"} & metrics.keys()
    assert "before" not in metrics["continued"]
    assert "No validation figure" in (tmp_path / "again" / "report.html").read_text()
    assert not (tmp_path / "again" / "predictions-validation.jsonl").exists()
    report([tmp_path / "clf", tmp_path / "again"], tmp_path / "both.html")
    with pytest.raises(UsageError, match="no row to measure on"):
        search = FinetuneConfig(learning_rate="search")
        finetune(search, tmp_path / "search", model=tmp_path / "clf", train=table)
    one_head = finetune(FinetuneConfig(epochs=1), tmp_path / "head", model=tmp_path / "clf", train=table)
    assert one_head["count"] == 0


def test_models_are_compared_on_rows_new_to_both(
    week: tuple[Path, Path], tmp_path: Path, sentences: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    texts, labels = sentences(30, seed=7)
    new = write(tmp_path / "new.csv", [f"{text} today" for text in texts], labels)
    both = tmp_path / "both.csv"
    both.write_text(new.read_text() + week[1].read_text().partition("\n")[2])
    known = ["--from", week[0], "--train", week[1], "--epochs", "1", "--validation"]
    assert command(tmp_path / "a", *known, both) == 0
    continued = json.loads((tmp_path / "a" / "metrics.json").read_text())["continued"]
    before = hw.Classifier.load(week[0]).score([f"{text} today" for text in texts], labels)
    assert (continued["rows_new_to_both"], continued["before"]["value"]) == (30, pytest.approx(before))
    assert (
        f"On the 30 rows that neither was trained on: {continued['after']['value']:.3f}" in capsys.readouterr().out
    )
    assert command(tmp_path / "b", *known, week[1]) == 0
    assert f"not compared with {week[0]}: each row to measure on was trained on" in capsys.readouterr().out
