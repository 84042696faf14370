"""What a fine-tuning will cost, measured on a few micro-batches."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from headwater.cli.main import main


@pytest.mark.parametrize("freeze", [False, True])
def test_a_dry_run_counts_as_a_training_and_writes_nothing(
    base: Path, sentences: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], freeze: bool
) -> None:
    table = tmp_path / "reviews.csv"
    with table.open("w", newline="") as handle:
        csv.writer(handle).writerows([("review", "sentiment"), *zip(*sentences(60), strict=True)])
    command = ["finetune", "--model", str(base), "--task", "classify", "--train", str(table), "--epochs", "2"]
    command += ["--set", "precision=fp32", "--json", *(["--freeze"] if freeze else [])]
    assert main([*command, "--dry-run"]) == 0
    cost = json.loads(capsys.readouterr().out)
    assert list(tmp_path.iterdir()) == [table]
    assert cost["seconds"] > 0
    assert cost["tokens_per_second"] > 0
    assert main([*command, "--out", str(tmp_path / "out")]) == 0
    metrics = json.loads(capsys.readouterr().out)
    assert cost["updates"] == metrics["steps"]
    assert cost["rows"] == metrics["counts"]


def test_a_dry_run_forecasts_every_training_and_the_test(
    base: Path, sentences: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "reviews.csv"
    with table.open("w", newline="") as handle:
        csv.writer(handle).writerows([("text", "label"), *zip(*sentences(40), strict=True)])
    command = ["finetune", "--model", str(base), "--task", "classify", "--train", str(table), "--json"]
    command += ["--set", "precision=fp32", "--epochs", "1", "--dry-run", "--test", str(table)]
    assert main(command) == 0
    cost = json.loads(capsys.readouterr().out)
    assert cost["updates"] == 2  # of 32 rows and of the others
    assert (cost["epochs"], cost["trainings"]) == (1.0, 3)  # two folds of three each time, then all
    assert cost["rows"]["test"] == 40
    assert main([*command, "--find-lr"]) == 0
    assert json.loads(capsys.readouterr().out)["trainings"] == 4
