"""`finetune` and `predict` from the command line: folders, figures, switches, mistakes."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from headwater.cli.main import main
from headwater.errors import DataError, UsageError
from headwater.finetuning import FinetuneConfig, FineTuned, Raw, TaskModel, arrange_rows, finetune, predict_file
from headwater.finetuning import stage as run
from headwater.finetuning.learning.bases import open_base
from headwater.finetuning.learning.examples import encode
from headwater.finetuning.learning.fit import fit
from headwater.finetuning.rows.read import read_table
from headwater.model import build_model, load_model, preset, save_model
from headwater.storage import lineage
from headwater.tokenizer import Tokenizer

FAST = ["--set", "precision=fp32", "--set", "steps=4", "--set", "batch_size=8"]


@pytest.fixture
def table(tmp_path: Path, sentences: Any) -> Path:
    path = tmp_path / "reviews.csv"
    with path.open("w", newline="") as handle:
        csv.writer(handle).writerows([("review", "sentiment"), *zip(*sentences(60), strict=True)])
    return path


def test_a_table_becomes_a_model_that_labels_another(
    base: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "model"
    command = ["finetune", "--model", str(base), "--task", "classify", "--train", str(table), "--out", str(out)]
    assert main([*command, *FAST, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["chance"] == 0.5
    assert printed["counts"] == {"train": 60, "validation": 0}  # few rows: all are learned from
    assert (printed["count"], printed["cross_validated"]) == (60, True)
    assert json.loads((out / "metrics.json").read_text()) == {k: v for k, v in printed.items() if k != "out"}
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert main([*command, *FAST]) == 0  # complete already
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    assert main([*command, *FAST, "--set", "learning_rate=1e-3"]) == 1  # another training is not written over it
    assert {i["role"] for i in lineage(out)["inputs"]} == {"model", "train"}
    capsys.readouterr()
    for name in ("p.jsonl", "p.csv"):
        assert main(["predict", str(table), "--model", str(out), "--out", str(tmp_path / name), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert summary["rows"] == summary["labelled"] == 60
    lines = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    with (tmp_path / "p.csv").open() as handle:
        rows = list(csv.DictReader(handle))
    assert [str(line["prediction"]) for line in lines] == [row["prediction"] for row in rows]
    with table.open() as handle:
        given = list(csv.DictReader(handle))
    for row, line, original in zip(rows, lines, given, strict=True):  # each row keeps its columns, in their order
        assert list(row)[: len(original)] == list(line)[: len(original)] == list(original)
        assert original.items() <= row.items()
        assert original.items() <= line.items()
    assert all(abs(sum(line["probabilities"].values()) - 1) < 1e-4 for line in lines)
    table.write_text(table.read_text().replace("review,sentiment", "2020,true", 1))
    named = ["--column", "text=2020", "--column", "label=true"]
    assert main(["predict", str(table), "--model", str(out), "--out", str(tmp_path / "n.jsonl"), *named]) == 0
    again = [json.loads(line) for line in (tmp_path / "n.jsonl").read_text().splitlines()]
    assert [line["probabilities"] for line in again] == [line["probabilities"] for line in lines]
    assert main(["predict", str(table), "--model", str(out), "--out", "n.jsonl", "--column", "text"]) == 2


def test_choices_of_unequal_number_are_predicted_into_a_table(base: Path, tmp_path: Path) -> None:
    rows = [
        {"question": f"film {n}", "answers": ["good", "bad", "plot"][: 2 + n % 2], "label": "AB"[n % 2]}
        for n in range(12)
    ]
    file = tmp_path / "choices.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    finetune(FinetuneConfig(task="choice", steps=1, precision="fp32"), tmp_path / "m", model=base, train=file)
    summary = predict_file(tmp_path / "m", file, tmp_path / "p.csv")
    with (tmp_path / "p.csv").open() as handle:
        found = list(csv.DictReader(handle))
    assert [len(row["probabilities"].split()) for row in found] == [2 + n % 2 for n in range(12)]
    right = sum(int(row["prediction"]) == n % 2 for n, row in enumerate(found))
    assert summary["accuracy"] == right / 12


def test_empty_rows_get_no_prediction_and_columns_are_kept(
    base: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    finetune(FinetuneConfig(steps=1, precision="fp32"), tmp_path / "m", model=base, train=table)
    file = tmp_path / "new.csv"
    file.write_text('id,review,prediction\n7,the film was great,mine\n8," ",x\n9,,y\n', encoding="utf-8")
    assert main(["predict", str(file), "--model", str(tmp_path / "m"), "--out", str(tmp_path / "p.csv")]) == 0
    errors = capsys.readouterr().err
    assert "Rows without text, which get an empty prediction (2): 2, 3" in errors
    assert f"{file} has a column 'prediction', which stays: the new one is 'prediction_'" in errors
    with (tmp_path / "p.csv").open() as handle:
        found = list(csv.DictReader(handle))
    assert [(row["id"], row["prediction"], row["prediction_"] != "") for row in found] == [
        ("7", "mine", True),
        ("8", "x", False),
        ("9", "y", False),
    ]
    file.write_text("id,review\n", encoding="utf-8")  # a table without rows gives one without rows
    predict_file(tmp_path / "m", file, tmp_path / "none.csv")
    assert (tmp_path / "none.csv").read_text() == ("id,review,prediction,confidence,p(bad),p(good)\n")


def test_the_same_command_gives_the_same_bytes(base: Path, table: Path, tmp_path: Path) -> None:
    config = FinetuneConfig(steps=3, batch_size=8, precision="fp32")
    for name in ("one", "two"):
        finetune(config, tmp_path / name, model=base, train=table)
    for name in ("model.safetensors", "head.safetensors", "metrics.json", "task.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_a_batch_predicts_what_single_rows_do(base: Path, table: Path, tmp_path: Path) -> None:
    finetune(FinetuneConfig(steps=2, batch_size=8, precision="fp32"), tmp_path / "m", model=base, train=table)
    fine_tuned = FineTuned.load(tmp_path / "m")
    texts = ["a", "the film was great " * 6, "dull", "plot and story"]
    together = fine_tuned.probabilities(fine_tuned.encode([Raw((text,)) for text in texts]))
    for text, share in zip(texts, together, strict=True):
        alone = fine_tuned.probabilities(fine_tuned.encode([Raw((text,))]))[0]
        assert alone == pytest.approx(share, abs=1e-5)


def test_an_unmeasurable_test_file_is_refused_before_training(
    base: Path, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    test = tmp_path / "test.csv"
    test.write_text("review,sentiment\nthe film,neutral\n")
    monkeypatch.setattr(run, "fit", lambda *_: pytest.fail("it was trained first"))
    with pytest.raises(DataError, match="'neutral', which training did not have"):
        finetune(FinetuneConfig(steps=1), tmp_path / "m", model=base, train=table, test=test)


def test_early_stopping_keeps_the_best_state(base: Path, table: Path, tmp_path: Path) -> None:
    config = FinetuneConfig(epochs=30, batch_size=32, patience=2, precision="fp32", learning_rate=1e-2)
    metrics = finetune(config, tmp_path / "m", model=base, train=table, validation=table)
    values = [(point["accuracy"]["value"], -point["validation_loss"]) for point in metrics["curve"]]
    best = values.index(max(values))
    assert metrics["best_step"] == metrics["curve"][best]["step"]
    assert len(values) == best + 3 or metrics["curve"][-1]["step"] == metrics["steps"]
    saved = FineTuned.load(tmp_path / "m")
    rows = list(read_table(table, "classify", saved.description.columns)[1])
    encoded = replace(saved.encode(rows), targets=saved.labels.targets(rows, "it"))
    member = saved.members["gpt1"]
    assert isinstance(member, TaskModel)
    loss = member.predict(encoded, saved.labels)[1]
    assert [loss == pytest.approx(point["validation_loss"], abs=1e-5) for point in metrics["curve"]] == [
        point["step"] == metrics["best_step"] for point in metrics["curve"]
    ]


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({}, "all"),
        ({"from_scratch": True}, "none"),
        ({"transfer_layers": 2}, "all"),
        ({"transfer_layers": 1}, "first"),
        ({"transfer_layers": 0}, "rows"),
    ],
)
def test_ablations_keep_their_weights(base: Path, settings: dict[str, Any], kept: str) -> None:
    loaded = load_model(base)
    with torch.no_grad():
        loaded.final_norm.weight.fill_(2.0)
    before = {name: tensor.clone() for name, tensor in loaded.state_dict().items()}
    config = FinetuneConfig(seed=11, **settings)
    opened = open_base(config, SimpleNamespace(model=loaded, tokenizer=Tokenizer.load(base)))
    model, tokenizer = opened.model, opened.tokenizer
    rows = len(before["tokens.weight"])
    assert model.config.vocabulary == rows + 3 == tokenizer.vocabulary_size
    equal = {
        name
        for name, tensor in model.state_dict().items()
        if tensor.dim() > 1 and torch.equal(tensor[:rows] if name == "tokens.weight" else tensor, before[name])
    }
    matrices = {name for name, tensor in before.items() if tensor.dim() > 1}
    first = {n for n in matrices if n.startswith(("tokens.", "positions.", "blocks.0."))}
    expected = {"all": matrices, "none": set(), "first": first, "rows": {"tokens.weight", "positions.weight"}}
    assert equal == expected[kept]
    assert bool((model.final_norm.weight == 2.0).all()) == (kept == "all")


def test_task_rows_head_and_a_fresh_base_are_drawn_apart(base: Path, tokenizer: Tokenizer) -> None:
    config = FinetuneConfig(task="entail", from_scratch=True, steps=1, precision="fp32")
    rows = [Raw((f"a{n}", "b"), "abc"[n % 3], n) for n in range(30)]
    opened = open_base(config, SimpleNamespace(model=load_model(base), tokenizer=tokenizer))
    before = opened.model.tokens.weight.detach().clone()
    fitted = fit(encode(arrange_rows(config, {"train": ("rows", rows)}), opened, config), config)
    member = fitted.model.members["gpt1"]  # its one update has rate 0
    assert isinstance(member, TaskModel)
    drawn = torch.cat([before[:3], before[-3:], member.head.weight.detach()])
    likeness = torch.corrcoef(drawn) - torch.eye(9)
    assert likeness.abs().max() < 0.7  # of 32 numbers drawn at random


def test_an_lstm_fine_tunes_through_the_same_path(table: Path, tmp_path: Path, tokenizer: Tokenizer) -> None:
    shape = preset("lstm-nano", vocabulary=tokenizer.vocabulary_size, width=16, units=24, context=40)
    (tmp_path / "lstm").mkdir()
    save_model(build_model(shape, seed=2), tmp_path / "lstm", tokenizer=tokenizer)
    config = FinetuneConfig(steps=3, batch_size=8, precision="fp32", learning_rate=1e-3)
    metrics = finetune(config, tmp_path / "m", model=tmp_path / "lstm", train=table)
    assert metrics["counts"]["train"] == 54
    with pytest.raises(UsageError, match="blocks of a Transformer"):
        open_base(FinetuneConfig(transfer_layers=1), tmp_path / "lstm")


def test_show_prints_examples_as_the_model_sees_them(
    base: Path, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["finetune", "--model", str(base), "--task", "classify", "--train", str(table)]
    assert main([*command, "--show", "2"]) == 0
    assert "[start]" not in capsys.readouterr().out  # the default of few rows reads the texts alone
    assert main([*command, "--show", "2", "--set", "recipe=gpt1"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("[start]") == printed.count("[classify]") == 2
    assert main(command) == 2
    assert "--out is missing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--task", "classify"], 2, "--train"),
        (["--task", "sort", "--train", "TABLE"], 2, "'sort' is not one of"),
        (["--task", "classify", "--train", "missing.csv"], 1, "missing.csv does not exist"),
        (["--task", "entail", "--train", "TABLE"], 1, "no column for the premise of task entail"),
        (["--task", "classify", "--train", "TABLE", "--text", "reviw"], 1, "Did you mean 'review'"),
        (["--task", "classify", "--train", "TABLE", "--set", "transfer_layers=9"], 2, "9 layers"),
        (["--task", "classify", "--train", "TABLE", "--set", "epoch=2"], 2, "'epochs'"),
        (["--task", "classify", "--train", "TABLE", "--epochs", "inf"], 2, "finite number"),
        (["--task", "classify", "--train", "TABLE", "--seed", "1" * 30], 2, "less than"),
        (["--task", "classify", "--train", "TABLE", "--epochs", "3", "--set", "steps=2"], 2, "epochs and steps"),
        (
            ["--task", "classify", "--train", "TABLE", "--column", "premise=review"],
            2,
            "does not read a column 'premise'",
        ),
        (
            ["--task", "classify", "--train", "TABLE", "--column", "answers="],
            2,
            "does not read a column 'answers'",
        ),
        (
            ["--task", "classify", "--train", "TABLE", "--set", "target=answer"],
            2,
            "not a target of task 'classify'",
        ),
        (
            ["--task", "classify", "--train", "TABLE", "--set", "metric=pearson"],
            2,
            "accuracy or f1 or macro_f1 or matthews",
        ),
        (["--task", "classify", "--train", "TABLE", "--set", "class_weight=heavy"], 2, "'balanced'"),
    ],
)
def test_mistakes_leave_one_message_and_no_file(
    base: Path,
    table: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    status: int,
    message: str,
) -> None:
    given = [str(table) if a == "TABLE" else a for a in arguments]
    assert main(["finetune", "--model", str(base), "--out", str(tmp_path / "out"), *given]) == status
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_predict_refuses_a_base_model_and_its_own_input_file(
    base: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", str(table), "--model", str(base), "--out", str(tmp_path / "p.csv")]) == 1
    assert "task.json" in capsys.readouterr().err
    missing = tmp_path / "my model"
    assert main(["predict", str(table), "--model", str(missing), "--out", str(tmp_path / "p.csv")]) == 1
    assert f"--task classify --train FILE --out '{missing}'" in capsys.readouterr().err
    before = table.read_bytes()
    assert main(["predict", str(table), "--model", str(base), "--out", str(table)]) == 2
    assert "is the file to read" in capsys.readouterr().err
    assert table.read_bytes() == before


@pytest.mark.parametrize(("faithful", "rows"), [("code", "all"), ("paper", "vocabulary")])
def test_faithful_decides_the_softmax_of_a_gpt1_base(faithful: Any, rows: str) -> None:
    tokenizer = Tokenizer.load("gpt1")
    shape = preset("gpt1-nano", vocabulary=tokenizer.vocabulary_size, width=24, layers=1, faithful="paper")
    given = SimpleNamespace(model=build_model(shape, seed=1), tokenizer=tokenizer)
    model = open_base(FinetuneConfig(faithful=faithful), given).model
    assert model.config.softmax_rows == rows
    assert (len(model.output_matrix()) > model.config.vocabulary) == (faithful == "code")


@pytest.mark.parametrize("option", ["--limit", "--show"])
def test_a_limit_beyond_64_bits_is_refused(
    base: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    asked = ["finetune", "--model", str(base), "--task", "classify", "--train", str(table)]
    assert main([*asked, "--out", str(tmp_path / "out"), option, "9" * 23]) == 2
    assert "less than or equal to" in capsys.readouterr().err
    with pytest.raises(UsageError, match="less than or equal to"):
        FinetuneConfig.build({"task": "classify", "limit": 10**23})
