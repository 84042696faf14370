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
