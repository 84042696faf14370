"""Runs that were stopped are models, and can be lengthened and branched."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from headwater import shipped
from headwater.cli.lineage import tree_lines
from headwater.cli.main import main
from headwater.config import read_toml
from headwater.errors import FolderError, UsageError
from headwater.inference import load
from headwater.model import load_model
from headwater.pretraining import PretrainConfig, pretrain
from headwater.report import report
from headwater.report.content import read_content
from headwater.shipped import find_checkpoint
from headwater.storage import folder_lock, lineage, read_manifest
from headwater.storage.provenance import FROM_PYTHON
from headwater.training import read_journal

TINY: dict[str, Any] = {
    "preset": "gpt2-pico",
    "context": 32,
    "model": {"width": 32},
    "steps": 8,
    "batch_size": 4,
    "validate_every": 4,
    "checkpoint_every": 2,
    "keep": 9,
    "precision": "fp32",
    "schedule": "constant",
    "compile": "off",
}


def train(tokens: Path, out: Path, stop_after: int | None = None, **changes: Any) -> Path:
    """Train; end as if killed after the update `stop_after`."""

    def stop(line: dict[str, Any]) -> None:
        if line["step"] == stop_after:
            raise RuntimeError("killed")

    config = PretrainConfig.build(TINY, changes)
    if stop_after is None:
        return pretrain(config, tokens, out)
    with pytest.raises(RuntimeError, match="killed"):
        pretrain(config, tokens, out, on_update=stop)
    return out


@pytest.fixture(scope="module")
def whole(tokens: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "run"
    train(tokens, out)
    return out


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_model(shipped.find(folder)).state_dict()


def assert_equal(one: Path, other: Path) -> None:
    expected = weights(other)
    for name, tensor in weights(one).items():
        assert torch.equal(tensor, expected[name]), name


def test_a_stopped_run_is_the_model_of_its_newest_checkpoint(tokens: Path, tmp_path: Path) -> None:
    run = train(tokens, tmp_path / "run", stop_after=5)
    newest = run / "checkpoints" / "step-00000004"
    assert find_checkpoint(run) == newest
    lm = load(run)
    again = load(run / "checkpoints" / "4")
    for text in (lm.generate("a", max_tokens=5, seed=1), again.generate("a", max_tokens=5, seed=1)):
        assert text == load(tmp_path / "run@4").generate("a", max_tokens=5, seed=1)
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    load(run)
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before
    train(tokens, run)  # it resumes, and is its own model then
    assert find_checkpoint(run) is None


def test_a_checkpoint_below_the_working_folder_is_not_a_hub_name(
    whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(whole.parent.parent)
    run = f"{whole.parent.name}/{whole.name}"
    assert shipped.resolve(f"{run}@4") == Path(run) / "checkpoints" / "step-00000004"
    with pytest.raises(FolderError, match="no checkpoint of update 5; expected one of 2, 4, 6, 8"):
        shipped.resolve(f"{run}@5")
    monkeypatch.chdir(whole)
    assert shipped.resolve("checkpoints/4").name == "step-00000004"


def test_the_weights_of_a_checkpoint_are_those_of_the_run(whole: Path) -> None:
    last = whole / "checkpoints" / "step-00000008"
    best = read_manifest(whole / "model").config["step"]
    assert_equal(whole / "checkpoints" / f"step-{best:08d}", whole / "model")
    assert json.loads((last / "config.json").read_text())["model_type"] == "gpt2"


@pytest.mark.parametrize("command", ["convert", "evaluate", "generate"])
def test_commands_take_a_stopped_run(command: str, tokens: Path, tmp_path: Path) -> None:
    run = train(tokens, tmp_path / "run", stop_after=5)
    arguments = {
        "convert": ["convert", str(run), str(tmp_path / "copy")],
        "evaluate": [
            "evaluate",
            "--model",
            str(run),
            "--tasks",
            "heldout",
            "--data",
            str(tokens),
            "--limit",
            "2",
            "--set",
            "yardstick_bytes=0",
            "--out",
            str(tmp_path / "scores"),
        ],
        "generate": ["generate", "a", "--model", str(run), "--max-tokens", "3"],
    }
    assert main(arguments[command]) == 0


@pytest.mark.parametrize("damage", ["cut", "altered"])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(
    damage: str, tokens: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = train(tokens, tmp_path / "run", stop_after=5)
    assert find_checkpoint(run) == run / "checkpoints" / "step-00000004"
    file = run / "checkpoints" / "step-00000004" / "state.safetensors"
    content = file.read_bytes()
    file.write_bytes(b"cut" if damage == "cut" else content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    assert main(["generate", "a", "--model", str(run), "--max-tokens", "3"]) == 0
    assert find_checkpoint(run) == run / "checkpoints" / "step-00000002"
    assert caplog.text.count("step-00000004 is damaged and is skipped") == 1


@pytest.mark.parametrize("finished", [True, False])
def test_a_lengthened_run_is_the_long_run(finished: bool, tokens: Path, tmp_path: Path) -> None:
    long = train(tokens, tmp_path / "long", steps=12).parent
    short = tmp_path / "short"
    train(tokens, short, stop_after=None if finished else 5)
    train(tokens, short, steps=12)
    assert_equal(short / "checkpoints" / "step-00000012", long / "checkpoints" / "step-00000012")
    done = 8 if finished else 4
    assert read_manifest(short).config["changes"] == [{"at": done, "command": FROM_PYTHON, "steps": 8}]
    assert (short / "model-8").is_dir() == finished
    train(tokens, short, steps=12)  # complete: nothing happens
    assert len(read_manifest(short).config["changes"]) == 1


def test_the_lineage_has_every_command_of_a_run(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As commands, in order, they make the folder again; one that only resumes it is not among them."""
    first = f"headwater pretrain --preset gpt2-pico --tokens {tokens} --out run --set steps=8"
    longer = "headwater pretrain run --set steps=12"
    for command, stop_after, steps in ((first, 5, 8), (longer, 9, 12), ("headwater pretrain run", None, 12)):
        monkeypatch.setattr("sys.argv", command.split())
        train(tokens, tmp_path / "run", stop_after=stop_after, steps=steps)
    assert lineage(tmp_path / "run")["commands"] == [f"{first}  # until update 4", longer]
    shown = "\n".join(tree_lines(lineage(tmp_path / "run"), "", ""))
    assert shown.index(first) < shown.index(longer)
    assert first in report([tmp_path / "run"], tmp_path / "page.html").read_text()


def test_fewer_steps_are_refused(tokens: Path, tmp_path: Path) -> None:
    run = train(tokens, tmp_path / "run", stop_after=5)
    with pytest.raises(UsageError, match=r"steps = 4, and the run in .*run has steps = 8"):
        train(tokens, run, steps=4)


def test_a_finished_run_without_checkpoints_is_not_lengthened(whole: Path, tokens: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(FolderError, match="its optimizer's state"):
        train(tokens, run, steps=12)
    assert load(run).generate("a", max_tokens=2, seed=1) == load(whole).generate("a", max_tokens=2, seed=1)


def test_a_short_run_reaches_its_rate_and_can_grow(tokens: Path, tmp_path: Path) -> None:
    run = train(tokens, tmp_path / "run", warmup_steps=100).parent
    rates = [line["learning_rate"] for line in read_journal(run / "metrics.jsonl")]
    assert max(rates) == PretrainConfig.build(TINY).learning_rate
    train(tokens, run, warmup_steps=100)  # the same command again
    train(tokens, run, warmup_steps=100, steps=12)
    assert [line["learning_rate"] for line in read_journal(run / "metrics.jsonl")][:8] == rates


def test_a_refused_command_changes_no_running_run(tokens: Path, tmp_path: Path) -> None:
    run = train(tokens, tmp_path / "run", stop_after=5)
    before = (run / "headwater.json").read_bytes()
    with folder_lock(run), pytest.raises(FolderError, match="in use"):
        train(tokens, run, steps=20)
    assert (run / "headwater.json").read_bytes() == before


def test_a_prompt_longer_than_the_context_is_refused(tokens: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"sample_prompt has [0-9,]+ tokens, and the context 32"):
        train(tokens, tmp_path / "run", sample_every=2, sample_prompt="a b c d " * 20)
    assert not (tmp_path / "run").exists()


def test_keys_that_change_the_result_are_refused_on_resume(whole: Path, tokens: Path) -> None:
    with pytest.raises(FolderError, match="learning_rate"):
        train(tokens, whole, learning_rate=1e-4)
    with pytest.raises(FolderError, match="schedule"):
        train(tokens, whole, schedule="cosine")


def test_a_branch_takes_tokens_and_keys_of_its_run(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "branch"
    assert main(["pretrain", "--from", f"{whole}@4", "--out", str(out), "--set", "learning_rate=1e-4"]) == 0
    run, branch = (read_toml(folder / "config.toml") for folder in (whole, out))
    changed = {key for key in run.keys() | branch.keys() if run.get(key) != branch.get(key)}
    assert changed <= {"learning_rate", "preset", "model", "init_from"}
    assert branch["learning_rate"] == 1e-4
    inputs = [{entry.role: entry.identity for entry in read_manifest(folder).inputs} for folder in (whole, out)]
    assert inputs[0]["tokens"] == inputs[1]["tokens"]


def begin_branch(tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, initial: str) -> tuple[Path, Path]:
    """Stop a branch after five updates; its source goes on and loses the checkpoint that it started from."""
    source = train(tokens, tmp_path / "source", stop_after=5)
    whole = tmp_path / "whole-branch"
    train(tokens, whole, init_from=initial, preset="gpt2-mini", model={})
    branch = train(tokens, tmp_path / "branch", stop_after=5, init_from=initial, preset="gpt2-mini", model={})
    train(tokens, source, steps=12)
    shutil.rmtree(source / "checkpoints" / "step-00000004")
    return branch, whole


@pytest.mark.parametrize("initial", ["{}@4", "{}"])
def test_a_branch_resumes_after_its_source_went_on(
    initial: str, tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    initial = initial.format(tmp_path / "source")
    branch, whole = begin_branch(tokens, tmp_path, monkeypatch, initial)
    copy = Path(shutil.copytree(branch, tmp_path / "copy"))
    train(tokens, branch, init_from=initial, preset="gpt2-mini", model={})
    assert_equal(branch / "model", whole / "model")
    assert lineage(branch / "model")["inputs"][1]["path"].endswith("step-00000004")
    # As a command, which takes what it does not name from the folder.
    command = ["--from", initial, "--out", str(copy)] if "@" in initial else [str(copy)]
    assert main(["pretrain", *command]) == 0
    assert_equal(copy / "model", whole / "model")


def test_another_source_is_refused_for_a_branch_that_has_begun(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    branch, whole = begin_branch(tokens, tmp_path, monkeypatch, f"{tmp_path / 'source'}@4")
    with pytest.raises(FolderError, match=r"made from another input \(model\)"):
        train(tokens, branch, init_from=str(whole / "model"), preset="gpt2-mini", model={})


def test_samples_are_kept_and_change_nothing(whole: Path, tokens: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(tokens, run, stop_after=5, sample_every=2, sample_prompt="a")
    train(tokens, run, sample_every=2, sample_prompt="a")
    lines = [json.loads(line) for line in (run / "samples.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [2, 4, 6, 8]
    assert lines[-1]["text"] == load(run / "checkpoints" / "8").generate("a", max_tokens=31, seed=1)
    assert_equal(run / "checkpoints" / "8", whole / "checkpoints" / "8")
    samples = read_content([run]).samples
    assert [sample.settings for sample in samples] == [f"run, update {step}" for step in (4, 6, 8)]


def test_a_step_without_a_checkpoint_is_named(whole: Path) -> None:
    with pytest.raises(FolderError, match="no checkpoint of update 3; expected one of 2, 4, 6, 8"):
        load(f"{whole}@3")


def test_a_wrong_value_in_a_runs_configuration_names_its_file(
    tokens: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = train(tokens, tmp_path / "run", stop_after=5)
    config = run / "config.toml"
    config.write_text(re.sub(r"learning_rate = .*", 'learning_rate = "much"', config.read_text()))
    assert main(["pretrain", str(run)]) == 2
    shown = capsys.readouterr().err
    assert str(config) in shown
    assert "--set" not in shown
