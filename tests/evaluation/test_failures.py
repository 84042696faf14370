"""What an evaluation does where something is missing, damaged or odd: one message, and no answer lost."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import DataError, ResourceError, UsageError
from headwater.evaluation import (
    DataFiles,
    EvaluateConfig,
    Example,
    Metric,
    RequestEncoder,
    Source,
    Task,
    all_tasks,
    evaluate,
    run_task,
    select,
)
from headwater.evaluation.request_runner import RequestRunner
from headwater.evaluation.tasks.held_out import Alphabet
from headwater.inference import load
from headwater.intervals import of_score
from headwater.model import build_model, preset, save_model
from headwater.pretraining import pack
from headwater.storage import Stage
from headwater.tokenizer import Tokenizer


def write_translations(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for language in ("en", "fr"):
        lines = [f"the river {number}\n" for number in range(9)]
        (folder / f"newstest2014.en-fr.{language}").write_text("".join(lines), encoding="utf-8")


class Failing(Task):
    """A task whose score fails at the last example."""

    benchmark = "failing"
    protocol = "failing.score"
    summary = ""
    metrics = (Metric("accuracy"),)
    sources = (Source("test", names=("failing.txt",)),)

    def read(self, files: Any, encoder: RequestEncoder) -> list[Example]:
        return [Example(str(number), {}, text=f"river {number}") for number in range(3)]

    def requests(self, example: Example, encoder: RequestEncoder) -> list[Any]:
        return [encoder.after_start(encoder.encode(example.text))]

    def score(self, example: Example, answers: Any, encoder: RequestEncoder) -> dict[str, Any]:
        if example.id == "2":
            raise DataError("a fault of the answer")
        return {"accuracy": 1.0}


def test_answers_of_a_failed_protocol_are_kept(
    world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "failing.txt").touch()
    monkeypatch.setitem(all_tasks(), Failing.protocol, Failing())
    with pytest.raises(ResourceError, match="a fault of the answer"):
        evaluate(world.model, [Failing.protocol], tmp_path, tmp_path / "out")
    assert (tmp_path / ".out.answers").exists()
    asked: list[int] = []
    score = RequestRunner._score
    monkeypatch.setattr(
        RequestRunner, "_score", lambda self, batch: asked.append(len(batch)) or score(self, batch)
    )
    monkeypatch.setattr(Failing, "score", lambda *_: {"accuracy": 1.0})
    evaluate(world.model, [Failing.protocol], tmp_path, tmp_path / "out")
    assert asked == []  # every answer was there
    assert not (tmp_path / ".out.answers").exists()


def test_two_own_tasks_with_one_protocol_name_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        text = f'kind = "perplexity"\nbenchmark = "rivers"\nfiles = ["{name}.txt"]\n'
        (tmp_path / f"{name}.toml").write_text(text, encoding="utf-8")
    first, second = (str(tmp_path / f"{name}.toml") for name in ("a", "b"))
    assert len(select([first, first])) == 1
    with pytest.raises(UsageError, match=r"another task has the protocol name 'rivers\.tokens'"):
        select([first, second])


def test_a_detokenizer_is_refused_where_its_text_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "task.toml"
    keys = 'kind = "perplexity"\nbenchmark = "b"\nfiles = ["a"]\nunit = "character"\ndetokenizer = "ptb"\n'
    path.write_text(keys, encoding="utf-8")
    with pytest.raises(UsageError, match="detokenizer is for unit = word, and unit is character"):
        select([str(path)])


@pytest.mark.parametrize(("unit", "units"), [("character", 4), ("word", 3)])
def test_the_end_of_a_file_begins_with_a_whole_character(
    unit: str, units: int, world: Any, tmp_path: Path
) -> None:
    (tmp_path / "ko.txt").write_text("강\n" * 50 + "강 물", encoding="utf-8")
    keys = f'kind = "perplexity"\nbenchmark = "ko"\nfiles = ["ko.txt"]\nunit = "{unit}"\nlast_bytes = 9\n'
    (tmp_path / "ko.toml").write_text(keys, encoding="utf-8")
    (result,) = evaluate(world.model, [str(tmp_path / "ko.toml")], tmp_path, tmp_path / "out").results
    assert result.details["units"] == units


def test_lines_not_restored_are_those_of_the_part_scored(world: Any, tmp_path: Path) -> None:
    lines = [" don 't  stop \n"] * 20 + [" the river \n"]
    (tmp_path / "ptb.txt").write_text("".join(lines), encoding="utf-8")
    keys = 'kind = "perplexity"\nbenchmark = "b"\nfiles = ["ptb.txt"]\ndetokenizer = "ptb"\nlast_bytes = 12\n'
    (tmp_path / "b.toml").write_text(keys, encoding="utf-8")
    results = evaluate(world.model, [str(tmp_path / "b.toml")], tmp_path, tmp_path / "out").results
    counts = results[1].details
    assert counts["lines"] == 1


def test_one_odd_line_is_left_out_and_the_rest_is_scored(world: Any, tmp_path: Path) -> None:
    lines = [{"text": "river"}, {"text": "the lake and the river flows to the lake"}]
    (tmp_path / "lambada_test.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    results = evaluate(world.wide, ["lambada.openai.whole-word"], tmp_path, tmp_path / "out")
    assert [result.count for result in results.results] == [1, 1]
    assert results.skipped[0].examples == 1
    assert "does not have two words" in results.skipped[0].reason


def test_a_damaged_table_is_skipped_with_its_reason(world: Any, tmp_path: Path) -> None:
    damaged = Path(shutil.copytree(world.labels, tmp_path / "labels"))
    (damaged / "continuation.jsonl").write_text("{}\n")
    data = [damaged, world.tokens]
    results = evaluate(world.model, ["continuation.four", "heldout"], data, tmp_path / "out")
    assert [result.protocol for result in results.results] == ["heldout.bits-per-byte"]
    assert "continuation.jsonl" in results.skipped[0].reason


def test_an_answer_of_one_token_counts_where_a_text_has_no_start(
    world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"context": "the", "answers": ["river", "lake and stream", "of"], "label": 0}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    keys = 'kind = "choice"\nbenchmark = "one"\nsummary = ""\nfiles = ["rows.jsonl"]\nreadings = ["gain"]\n'
    (tmp_path / "one.toml").write_text(keys, encoding="utf-8")
    monkeypatch.setattr(Tokenizer, "start_of_text", None)
    lm = load(world.model)
    (task,) = select([str(tmp_path / "one.toml")])
    written: list[Any] = []
    outcome = run_task(task, {"rows": tmp_path / "rows.jsonl"}, lm, write=written.append)
    assert outcome.left_out is None
    answers = written[0]["answers"]
    lengths = [len(answer["log_probabilities"]) for answer in answers[:3]]
    assert 1 in lengths
    assert len(answers) == 3 + sum(length > 1 for length in lengths)


def test_a_task_without_requests_is_scored_in_linear_time(world: Any) -> None:
    class Silent(Failing):
        def read(self, files: Any, encoder: RequestEncoder) -> list[Example]:
            return [Example(str(number), {}, text="") for number in range(4_000)]

        def requests(self, example: Example, encoder: RequestEncoder) -> list[Any]:
            groups[0] += 1
            return []

        def score(self, example: Example, answers: Any, encoder: RequestEncoder) -> dict[str, Any]:
            most[0] = max(most[0], groups[0])
            groups[0] = 0
            return {"accuracy": 1.0}

    groups, most = [0], [0]
    run_task(Silent(), {}, load(world.model))
    assert most[0] <= 512  # examples that are read before the first of them is scored


@pytest.mark.parametrize(("metric", "value"), [("accuracy", 50.0), ("exact match", -1.0), ("f1", 50.0)])
def test_a_users_metric_in_per_cent_has_an_interval(metric: str, value: float) -> None:
    low, high = of_score(metric, value, 2.0, 10)
    assert (low, high) == pytest.approx((value - 3.92, value + 3.92))


def test_named_folders_win_and_the_models_tokenizer_decides(world: Any, tmp_path: Path) -> None:
    below = tmp_path / "many"
    below.mkdir()
    shutil.copytree(world.tokens, below / "a")
    other = Tokenizer.train(["a river of words and lakes " * 9], vocab_size=270, special_tokens=["<|endoftext|>"])
    with Stage(tmp_path / "tokenizer", kind="tokenizer", config={}, inputs={}).write() as work:
        other.save(work)
    pack(world.root / "corpus", tmp_path / "tokenizer", below / "b", 0.2)
    tokens = [Source("tokens", kind="tokens")]
    for data in ([below, world.tokens], [world.tokens, below]):
        assert DataFiles(data).locate(tokens) == {"tokens": world.tokens}
    with pytest.raises(ResourceError, match="both of kind tokens"):
        DataFiles([below]).locate(tokens)
    results = evaluate(world.model, ["heldout"], below, tmp_path / "out", limit=2).results
    assert len(results) == 1


def test_documents_beyond_the_limit_are_not_decoded(
    world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[int] = []
    decode = Alphabet.decode
    monkeypatch.setattr(Alphabet, "decode", lambda self, ids: decoded.append(len(ids)) or decode(self, ids))
    config = EvaluateConfig(yardstick_bytes=0)
    results = evaluate(world.model, ["heldout"], world.tokens, tmp_path / "out", limit=2, config=config).results
    assert results[0].details["available"] > 4
    assert len(decoded) <= 4


def test_records_are_written_while_examples_are_scored(world: Any, tmp_path: Path) -> None:
    (task,) = select(["heldout"])
    written: list[Any] = []
    outcome = run_task(task, {"tokens": world.tokens}, load(world.model), limit=3, write=written.append)
    for whole, record in zip(written, outcome.records, strict=True):
        assert whole.keys() - record.keys() == {"answers", "example"}
        assert whole.items() >= record.items()


def test_a_model_that_reads_both_ways_is_refused(world: Any, tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(world.model).with_mask()
    shape = {"vocabulary": tokenizer.vocabulary_size, "context": 48, "layers": 1, "width": 32, "heads": 2}
    with Stage(tmp_path / "bert", kind="model", config={}, inputs={}).write() as work:
        save_model(build_model(preset("bert-nano", **shape), seed=3), work, tokenizer=tokenizer)
    with pytest.raises(UsageError, match="does not read a text from left to right"):
        evaluate(tmp_path / "bert", ["heldout"], world.tokens, tmp_path / "out")
