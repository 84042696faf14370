"""Tasks that a TOML file describes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headwater.cli.main import main
from headwater.errors import DataError, ResourceError, UsageError
from headwater.evaluation import Results, Scored, evaluate, read_examples, select
from headwater.evaluation.tasks import read_task_file

CAPITALS = """
kind = "choice"
benchmark = "capitals"
summary = "the capital of a country"
files = ["capitals.csv"]
context = "The capital of {country} is"
answers = ["a", "b"]
label = "right"
readings = ["total", "mean", "per-character", "gain"]
"""
ROWS = "country,a,b,right\nFrance,Paris,Marseille,A\nItaly,Rome,Milan,Rome\nSpain,Vigo,Madrid,1\n"


@pytest.fixture
def described(tmp_path: Path) -> Path:
    (tmp_path / "capitals.csv").write_text(ROWS, encoding="utf-8")
    (tmp_path / "capitals.toml").write_text(CAPITALS, encoding="utf-8")
    return tmp_path / "capitals.toml"


def test_a_choice_file_is_scored_in_each_reading(world: Any, described: Path, tmp_path: Path) -> None:
    results = evaluate(world.model, [str(described)], tmp_path, tmp_path / "out")
    assert [one.protocol.removeprefix("capitals.") for one in results.results] == [
        "total",
        "mean",
        "per-character",
        "gain",
    ]
    assert {(one.count, one.chance) for one in results.results} == {(3, 0.5)}
    records = list(read_examples(tmp_path / "out", "capitals.total"))
    assert [record["label"] for record in records] == [0, 0, 1]  # a letter, a text, a number
    assert records[0]["example"]["context"] == "The capital of France is"


def test_contexts_that_the_model_cannot_read_whole_are_counted(
    world: Any, described: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long = "the river and " * 200
    (tmp_path / "capitals.csv").write_text(ROWS.replace("Italy", long).replace("Spain", long), encoding="utf-8")
    command = ["evaluate", "--model", str(world.model), "--tasks", str(described), "--data", str(tmp_path)]
    assert main([*command, "--out", str(tmp_path / "out")]) == 0
    assert "2 contexts cut to fit the model" in " ".join(capsys.readouterr().out.split())
    results = Results.read(tmp_path / "out").results
    assert {result.details["cut contexts"] for result in results} == {2}


@pytest.mark.parametrize(("reading", "chosen"), [("total", 1), ("mean", 0), ("per-character", 1), ("gain", 0)])
def test_each_reading_has_its_own_value(described: Path, reading: str, chosen: int) -> None:
    task = next(task for task in read_task_file(described) if task.protocol == f"capitals.{reading}")
    (example, *_) = task.read({"rows": described.with_suffix(".csv")}, None)  # type: ignore[arg-type]
    greedy = (False, False, False)
    answers = [Scored((-1.0, -1.0, -1.0), greedy), Scored((-2.0,), greedy)]  # Paris, Marseille
    if reading == "gain":
        answers += [Scored((-9.0,), greedy), Scored((-3.0,), greedy)]
    assert task.score(example, answers, None)["chosen"] == chosen  # type: ignore[arg-type]


def test_a_perplexity_file_is_one_protocol_per_text(world: Any, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("The river flows slowly north .\n" * 3, encoding="utf-8")
    file = tmp_path / "mine.toml"
    file.write_text('kind = "perplexity"\nbenchmark = "mine"\nfiles = ["mine.txt"]\ndetokenizer = "ptb"\n')
    results = evaluate(world.model, [str(file)], tmp_path, tmp_path / "out")
    assert [one.protocol for one in results.results] == ["mine.tokens", "mine.detokenized"]
    assert results.results[0].details["units"] == 3 * 7


def test_a_broken_row_refuses_the_set_with_line_and_repair(world: Any, described: Path, tmp_path: Path) -> None:
    """A score over the other rows would be that of another benchmark."""
    (tmp_path / "capitals.csv").write_text(ROWS.replace(",right", ",answer"), encoding="utf-8")
    words = r"capitals.csv row 1 has another format: it has no 'right'.*Correct that line; none is left out"
    with pytest.raises(ResourceError, match=words):
        evaluate(world.model, [str(described)], tmp_path, tmp_path / "out")


def test_results_record_the_task_file(world: Any, described: Path, tmp_path: Path) -> None:
    evaluate(world.model, [str(described)], tmp_path, tmp_path / "out")
    config = json.loads((tmp_path / "out" / "headwater.json").read_text(encoding="utf-8"))["config"]
    assert len(config["own_tasks"]["capitals.total"]) == 64


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ('kind = "choice"', 'kind = "chioce"'),
            "has the kind 'chioce'; expected choice or last-word or perplexity",
        ),
        (("readings", "reading"), "unknown key 'reading'"),
        (('"capitals"', '"a b"'), "has benchmark = 'a b'"),
    ],
)
def test_a_wrong_task_file_is_named(described: Path, change: tuple[str, str], message: str) -> None:
    described.write_text(CAPITALS.replace(*change), encoding="utf-8")
    with pytest.raises(UsageError, match=message):
        select([str(described)])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("Peru,Lima,Cusco,C", "row 4: the label 'C' is not one of the 2 answers"),
        ("Peru,Lima,,A", "row 4 lacks an answer"),
        ("Peru,Lima,Cusco,", "row 4 has no label"),
    ],
)
def test_a_wrong_row_is_named(described: Path, row: str, message: str) -> None:
    path = described.with_suffix(".csv")
    path.write_text(ROWS + row + "\n", encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read_task_file(described)[0].read({"rows": path}, None)  # type: ignore[arg-type]


def test_the_kinds_take_the_same_common_keys(tmp_path: Path) -> None:
    common = 'benchmark = "b"\nsummary = "a river"\nfiles = ["a.txt"]\nwhere = "here"\n'
    for kind in ("choice", "perplexity"):
        (tmp_path / f"{kind}.toml").write_text(f'kind = "{kind}"\n{common}', encoding="utf-8")
        task = read_task_file(tmp_path / f"{kind}.toml")[0]
        assert task.summary.startswith("a river, ")
        assert task.sources[0].where == "here"


def test_a_last_word_file_scores_as_lambada(world: Any, tmp_path: Path) -> None:
    passages = ["the river flows north to the lake", "a stream flows slowly to the river"]
    lines = "".join(json.dumps({"passage": text, "text": text}) + "\n" for text in passages)
    (tmp_path / "passages.jsonl").write_text(lines, encoding="utf-8")
    (tmp_path / "lambada_test.jsonl").write_text(lines, encoding="utf-8")
    described = tmp_path / "own.toml"
    described.write_text(
        'kind = "last-word"\nbenchmark = "own"\nfiles = ["passages.jsonl"]\ntext = "passage"\n'
        'readings = ["last-token", "whole-word"]\n',
        encoding="utf-8",
    )
    own = evaluate(world.model, [str(described)], tmp_path, tmp_path / "own").results
    theirs = ["lambada.openai.last-token", "lambada.openai.whole-word"]
    lambada = evaluate(world.model, theirs, tmp_path, tmp_path / "lambada").results
    assert [(one.metric, one.value) for one in own] == [(one.metric, one.value) for one in lambada]
    (tmp_path / "passages.jsonl").write_text('{"text": "the river"}\n', encoding="utf-8")
    with pytest.raises(ResourceError, match="row 1 has another format: it has no 'passage'"):
        evaluate(world.model, [str(described)], tmp_path, tmp_path / "again")
