"""Models that ship: found by name wherever a model is named, told apart from folders, listed when none fits."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import headwater
from headwater import shipped
from headwater.cli.lineage import tree_lines
from headwater.cli.main import main
from headwater.errors import FolderError, ResourceError
from headwater.inference import LanguageModel
from headwater.model import build_model, preset
from headwater.shipped import hub_name
from headwater.tokenizer import Tokenizer


@pytest.fixture
def shelf(tmp_path: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of shipped models with one of some thousand weights on it; the working directory is another."""
    tokenizer = Tokenizer.load(tokens / "tokenizer")
    config = preset("gpt2-pico", layers=1, width=16, heads=2, context=64, vocabulary=tokenizer.vocabulary_size)
    LanguageModel(build_model(config, seed=1), tokenizer).save(tmp_path / "shelf" / "gpt2-mini")
    monkeypatch.setattr("headwater.shipped.catalogue.FOLDER", tmp_path / "shelf")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "shelf"


def test_a_name_is_a_model_for_every_command(shelf: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rows = [{"text": f"{word} {n}", "label": word} for n in range(20) for word in ("good", "bad")]
    Path("rows.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    for command in (
        "generate --prompt one --max-tokens 3",
        "lineage gpt2-mini",
        "finetune --model gpt2-mini --task classify --train rows.jsonl --out tuned --epochs 1",
        "convert gpt2-mini copied",
    ):
        assert main([*command.split(), "--json"]) == 0, command
    assert headwater.Tokenizer.load("gpt2-mini").vocabulary_size == 300
    assert '"model": "gpt2-mini"' in capfd.readouterr().out
    clf = headwater.Classifier(base="gpt2-mini", epochs=1).fit(*zip(*[r.values() for r in rows], strict=True))
    assert len(clf.predict(["good 1"])) == 1


def test_scores_are_reported_under_its_name(shelf: Path, tokens: Path, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ["--model", "gpt2-mini", "--tasks", "heldout", "--data", str(tokens), "--out", "results", "--json"]
    assert main(["evaluate", *arguments]) == 0
    assert json.loads(capfd.readouterr().out)["model"] == "gpt2-mini"


def test_a_local_folder_wins_and_is_marked(shelf: Path, capfd: pytest.CaptureFixture[str]) -> None:
    headwater.load("gpt2-mini").save("gpt2-mini")
    (shelf / "gpt2-mini" / "model.safetensors").unlink()  # who reads the shipped one now, fails
    assert main(["generate", "--model", "gpt2-mini", "--prompt", "one", "--max-tokens", "3"]) == 0
    assert "gpt2-mini is the local folder, not the model of this name" in capfd.readouterr().err
    assert not shipped.is_shadowed("gpt2-nano")


def test_an_unknown_name_lists_what_ships(shelf: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(FolderError, match=r"gpt2-min does not exist; .* Did you mean 'gpt2-mini'\?"):
        headwater.load("gpt2-min")
    with pytest.raises(FolderError, match=r"gpt2-min does not exist; .* Did you mean 'gpt2-mini'\?"):
        headwater.Classifier(base="gpt2-min").fit([f"text {n}" for n in range(40)], [0, 1] * 20)
    assert main(["predict", __file__, "--model", "nope", "--out", "labels.jsonl"]) == 1
    assert "headwater finetune --model gpt2-mini --task classify --train FILE --out nope" in capfd.readouterr().err
    assert main(["predict", __file__, "--model", "gpt2-mini", "--out", "labels.jsonl"]) == 1
    assert "headwater finetune --model gpt2-mini" in capfd.readouterr().err


@pytest.mark.parametrize("inner", ["model", "run/model"])
def test_a_run_and_a_quickstart_mean_their_model(tmp_path: Path, inner: str) -> None:
    (tmp_path / inner).mkdir(parents=True)
    (tmp_path / inner / "config.json").write_text("{}")
    assert shipped.find(tmp_path) == tmp_path / inner


@pytest.mark.parametrize(
    "arguments",
    [
        ["generate", "one"],
        ["serve", "--port=0"],
        ["evaluate", "--tasks=heldout", "--data=.", "--out=out"],
        ["finetune", "--task=classify", f"--train={__file__}", "--out=out"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_every_command_describes_its_model_option(
    shelf: Path, arguments: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    expected = (
        "Error: nope does not exist; expected a model folder (config.json and model.safetensors), gpt2-mini, "
        "minilm, or a hub name (OWNER/NAME). Check the path.\n"
    )
    assert main([*arguments, "--model=nope"]) == 1
    assert capfd.readouterr().err == expected
    if arguments[0] == "generate":  # and where it is no option
        assert main(["convert", "nope", "out"]) == 1
        assert capfd.readouterr().err == expected
        assert main(["pretrain", "--from=nope", "--tokens=tokens", "--out=run"]) == 1
        assert capfd.readouterr().err == expected


def test_lineage_takes_the_name_of_a_shipped_model(shelf: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["lineage", "gpt2-mini"]) == 0
    assert f"{shelf / 'gpt2-mini'}  [model " in capfd.readouterr().out


def test_a_hub_name_gives_a_tokenizer_and_hides_the_cache_path(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = tmp_path / "hub" / "models--someone--river-1" / "snapshots" / "0a1b"
    shutil.copytree(tokens / "tokenizer", cached)
    refs = cached.parents[1] / "refs"
    refs.mkdir()
    (refs / "main").write_text("0a1b")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    assert headwater.Tokenizer.load("someone/river-1").identity == headwater.Tokenizer.load(cached).identity
    with pytest.raises(ResourceError, match="local cache"):
        headwater.Tokenizer.load("someone/sea")
    assert hub_name(cached) == "someone/river-1"
    assert hub_name(tmp_path) is None
    entry = {"role": "weights", "path": str(cached), "kind": "folder", "identity": "c" * 64, "state": "source"}
    assert tree_lines(entry | {"inputs": []}, "", "") == ["weights: someone/river-1  [folder cccccccccccc]"]
