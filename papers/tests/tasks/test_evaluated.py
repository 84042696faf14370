"""What an evaluation does for every task, on the tasks of the papers that alone need it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headwater.cli.main import main
from headwater.corpus import Document, write_documents
from headwater.errors import MismatchError
from headwater.evaluation import (
    compare,
    evaluate,
)
from headwater.storage import Stage


def test_matthews_correlation_is_not_compared_by_likelihood(world: Any, tmp_path: Path) -> None:
    write_cola(tmp_path)
    evaluate(world.model, ["cola.mean-log-probability"], tmp_path, tmp_path / "out")
    with pytest.raises(MismatchError, match="matthews: it is not a mean or a rate over examples"):
        compare(tmp_path / "out", tmp_path / "out")


def write_cola(folder: Path) -> None:
    (folder / "CoLA").mkdir()
    (folder / "CoLA/train.tsv").write_text("x\t1\t\tthe river flows\nx\t0\t*\tlake of slowly\n")
    sentence = "the stream flows north very slowly to the lake of the river"
    (folder / "CoLA/dev.tsv").write_text(f"x\t1\t\t{sentence}\nx\t0\t*\tlake of of slowly\n")


def test_a_score_is_kept_if_all_its_examples_overlap(
    world: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_cola(tmp_path)
    sentence = (tmp_path / "CoLA/dev.tsv").read_text(encoding="utf-8").partition("\n")[0].rpartition("\t")[2]
    with Stage(tmp_path / "corpus", kind="corpus", config={}, inputs={}).write() as work:
        write_documents([Document(id="0" * 32, text=sentence)], work)
    task = ["cola.mean-log-probability"]
    found = evaluate(world.model, task, tmp_path, tmp_path / "out", overlap=tmp_path / "corpus", limit=1).results
    assert [one.metric for one in found] == ["matthews", "accuracy"]
    # The tuning sentences are not measured.
    counts = {"examples": 1, "judged": 1, "cannot be judged": 0}
    assert found[0].details["overlap"] == {"mean": 1.0, **counts}
    folders = ["--model", str(world.model), "--data", str(tmp_path), "--out", str(tmp_path / "out")]
    asked = ["evaluate", *folders, "--tasks", *task, "--overlap", str(tmp_path / "corpus"), "--limit", "1"]
    assert main(asked) == 0
    assert "1 of 1 overlap with the training text" in capsys.readouterr().out


def test_chance_counts_the_candidates_of_each_schema(world: Any, tmp_path: Path) -> None:
    schema = "One saw two when [MASK] came .\n[MASK]\n{}\none\n\n"
    (tmp_path / "PDP.txt").write_text(schema.format("one,two") + schema.format("one,two,three,four"))
    (result,) = evaluate(world.model, ["pdp.full"], tmp_path, tmp_path / "out").results
    assert result.chance == (1 / 2 + 1 / 4) / 2


def test_a_limit_counts_the_examples_that_are_measured(world: Any, tmp_path: Path) -> None:
    write_cola(tmp_path)
    name = "cola.mean-log-probability"  # which reads sentences to choose a threshold first
    (result, _) = evaluate(world.model, [name], tmp_path, tmp_path / "out", limit=1).results
    (whole, _) = evaluate(world.model, [name], tmp_path, tmp_path / "all").results
    assert result.examples == f"1 of {whole.count:,} examples"
    assert whole.examples == f"{whole.count:,} examples"
