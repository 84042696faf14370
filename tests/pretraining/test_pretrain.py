"""A whole run: what it writes, and that no way of stopping it changes what comes out."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from headwater.cli.main import main
from headwater.errors import DataError, FolderError, MismatchError, TrainingError, UsageError
from headwater.inference import load
from headwater.model import IGNORE, load_config, load_model
from headwater.pretraining import PretrainConfig, TokenBatch, TokenStream, pack, pretrain, require_one_model
from headwater.pretraining.pretraining import build_run, held_out_loss
from headwater.pretraining.recipe import resolve
from headwater.storage import SILENT, Progress, Stage, folder_lock, open_folder, read_manifest
from headwater.tokenizer import Tokenizer, train_tokenizer
from headwater.training import Ranks, read_journal, transfer_rate
from headwater.training.checkpoint import Checkpoints

Launched = Callable[[list[str], Path], AbstractContextManager[subprocess.Popen[bytes]]]

TINY: dict[str, Any] = {
    "preset": "gpt2-pico",
    "context": 32,
    "model": {"width": 32},
    "steps": 24,
    "batch_size": 4,
    "validate_every": 8,
    "checkpoint_every": 4,
    "precision": "fp32",
}


class Notes(Progress):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def note(self, text: str) -> None:
        self.texts.append(text)


def weights_of(run: Path) -> dict[str, torch.Tensor]:
    return load_model(run / "model").state_dict()


def assert_same_weights(one: Path, other: Path) -> None:
    expected = weights_of(one)
    for name, weight in weights_of(other).items():
        assert torch.equal(weight, expected[name]), name


def command(tokens: Path, out: Path, settings: dict[str, Any]) -> list[str]:
    flat = {k: v for k, v in settings.items() if k not in {"preset", "model"}}
    flat |= {f"model.{k}": v for k, v in settings.get("model", {}).items()}
    arguments = [f"--set={key}={value}" for key, value in flat.items()]
    return ["pretrain", f"--preset={settings['preset']}", f"--tokens={tokens}", f"--out={out}", *arguments]


@pytest.fixture(scope="module")
def undisturbed(tokens: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "undisturbed"
    pretrain(PretrainConfig.build(TINY), tokens, out)
    return out


def test_a_run_learns_and_writes_its_documented_files(undisturbed: Path) -> None:
    open_folder(undisturbed, "run")
    lines = read_journal(undisturbed / "metrics.jsonl")
    assert [line["step"] for line in lines] == list(range(1, 25))
    named = {"step", "tokens", "loss", "learning_rate", "gradient_norm", "tokens_per_second", "seconds"}
    assert named <= set(lines[0])
    assert lines[-1]["tokens"] == 24 * 4 * 32
    assert [line["step"] for line in lines if "validation_loss" in line] == [8, 16, 24]
    assert lines[-1]["validation_loss"] < lines[0]["loss"] - 0.3
    assert PretrainConfig.load(undisturbed / "config.toml").steps == 24
    lm = load(undisturbed / "model")
    texts = {seed: lm.generate("The", max_tokens=12, temperature=1.0, seed=seed) for seed in (1, 2)}
    assert texts[1] != texts[2]
    assert load(undisturbed / "model").generate("The", max_tokens=12, temperature=1.0, seed=1) == texts[1]


def test_training_continues_from_a_trained_model(undisturbed: Path, tokens: Path, tmp_path: Path) -> None:
    given = ["--set=steps=4", "--set=batch_size=4", "--set=context=16", "--set=precision=fp32"]
    command = ["pretrain", "--from", str(undisturbed / "model"), "--tokens", str(tokens), *given, "--out"]
    assert main([*command, str(tmp_path / "more")]) == 0
    first = read_journal(tmp_path / "more/metrics.jsonl")[0]
    assert first["loss"] < read_journal(undisturbed / "metrics.jsonl")[0]["loss"] - 0.3
    assert first["learning_rate"] == transfer_rate(32)
    assert load_config(tmp_path / "more/model") == load_config(undisturbed / "model")
    assert {entry.role for entry in open_folder(tmp_path / "more", "run").inputs} == {"tokens", "model"}
    # The same command again, and --resume from anywhere, find it complete.
    assert main([*command, str(tmp_path / "more")]) == 0
    assert main(["pretrain", "--resume", "--out", str(tmp_path / "more")]) == 0


def test_a_model_continues_only_with_its_tokenizer_and_shape(
    undisturbed: Path, tokens: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    initial = str(undisturbed / "model")
    config = PretrainConfig(init_from=initial, steps=1, model={"layers": 9})
    with pytest.raises(UsageError, match=r"model\.layers = 9 is not as in"):
        pretrain(config, tokens, tmp_path / "run")
    corpus = tokens.parent / "corpus"
    train_tokenizer([corpus], tmp_path / "other", vocab_size=290)
    pack(corpus, tmp_path / "other", tmp_path / "tokens", 0.1)
    with pytest.raises(MismatchError, match=f"headwater pack CORPUS --tokenizer {initial} --out DIR"):
        pretrain(PretrainConfig(init_from=initial, steps=1), tmp_path / "tokens", tmp_path / "run")
    assert not (tmp_path / "run").exists()
    for key, option in (("preset", "--preset=gpt2-pico"), ("faithful", "--set=faithful=paper")):
        assert main(["pretrain", "--from", initial, option, "--tokens", str(tokens), "--out", "run"]) == 2
        assert f"{key} = " in capsys.readouterr().err
    with pytest.raises(UsageError, match="faithful = paper is for a new model"):
        require_one_model({"init_from": initial}, {"faithful": "paper"})


@pytest.mark.parametrize("preset", ["lstm-nano", "bilstm-nano"])
def test_recomputation_is_refused_for_an_lstm(preset: str, tokens: Path) -> None:
    with pytest.raises(UsageError, match=r"recompute = full .*--set recompute=none"):
        resolve(PretrainConfig.build({"preset": preset, "context": 32, "recompute": "full"}), tokens, Ranks())


def test_the_same_command_again_changes_nothing(undisturbed: Path, tokens: Path, tmp_path: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in undisturbed.rglob("*.safetensors")}
    pretrain(PretrainConfig.build(TINY), tokens, undisturbed)
    assert {p: p.stat().st_mtime_ns for p in undisturbed.rglob("*.safetensors")} == before
    with pytest.raises(FolderError, match="learning_rate"):
        pretrain(PretrainConfig.build(TINY, {"learning_rate": 0.5}), tokens, undisturbed)
    shutil.copytree(undisturbed, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints"))
    with (tmp_path / "run" / "metrics.jsonl").open("a") as journal:
        journal.write("{}\n")
    with pytest.raises(FolderError, match=r"metrics\.jsonl has"):
        pretrain(PretrainConfig.build(TINY), tokens, tmp_path / "run")


def test_a_damaged_checkpoint_gives_way_to_the_one_before(undisturbed: Path, tokens: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(undisturbed, run)
    manifest = json.loads((run / "headwater.json").read_text())
    half_done(run, manifest, tokens)
    newest = max((run / "checkpoints").iterdir()) / "state.safetensors"
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    notes = Notes()
    pretrain(PretrainConfig.build(TINY), tokens, run, progress=notes)
    assert any("step-00000024 is damaged" in note and "altered" in note for note in notes.texts)
    assert any("resuming from step 20" in note for note in notes.texts)
    assert_same_weights(undisturbed, run)


def test_a_damaged_checkpoint_does_not_replace_a_good_one(tmp_path: Path) -> None:
    tmp_path /= "checkpoints"

    def checkpoints() -> Checkpoints:
        return Checkpoints(tmp_path, keep=1, ranks=Ranks(), note=lambda text: None)

    def save(step: int) -> None:
        made = checkpoints()
        made.save(step, {"weight": torch.full((2,), float(step))}, {"step": step}, None)
        made.wait()

    save(30)
    (tmp_path / "step-00000030" / "state.json").write_text("{}")
    shutil.copytree(tmp_path / "step-00000030", tmp_path / "step-00000030-mine")
    save(20)
    save(25)  # on its way to 30 again
    resumed = checkpoints()
    found = resumed.newest()
    assert found is not None
    assert found[0].name == "step-00000025"
    save(30)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000030", "step-00000030-mine"]
    assert checkpoints().newest() == (tmp_path / "step-00000030", {"step": 30})


def test_a_checkpoint_has_the_state_of_its_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path /= "checkpoints"
    trained = threading.Event()

    def slow(state: dict[str, torch.Tensor], path: Path) -> None:
        assert trained.wait(60)
        save_file(state, path)

    monkeypatch.setattr("headwater.training.checkpoint.save_file", slow)
    checkpoints = Checkpoints(tmp_path, keep=1, ranks=Ranks(), note=lambda text: None)
    weight = torch.zeros(2)
    checkpoints.save(1, {"weight": weight}, {"step": 1}, None)
    weight.fill_(1.0)
    trained.set()
    checkpoints.wait()
    checkpoints.load(checkpoints.path_of(1), {"weight": weight})
    assert weight.tolist() == [0.0, 0.0]


def test_an_error_while_a_checkpoint_is_written_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path /= "checkpoints"

    def broken(state: Any, path: Path) -> None:
        raise TypeError("not a warning: no file system raises this")

    monkeypatch.setattr("headwater.training.checkpoint.save_file", broken)
    checkpoints = Checkpoints(tmp_path, keep=1, ranks=Ranks(), note=lambda text: None)
    checkpoints.save(1, {"weight": torch.zeros(2)}, {"step": 1}, None)
    with pytest.raises(TypeError, match="not a warning"):
        checkpoints.wait()


def test_a_checkpoint_of_any_size_is_checked_by_its_hashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path /= "checkpoints"
    monkeypatch.setattr("headwater.storage.provenance.HASH_WHEN_BELOW", 0)  # as if these were many gigabytes
    notes: list[str] = []
    checkpoints = Checkpoints(tmp_path, keep=2, ranks=Ranks(), note=notes.append)
    for step in (10, 20):
        checkpoints.save(step, {"weight": torch.full((2,), float(step))}, {"step": step}, None)
    checkpoints.wait()
    newest = tmp_path / "step-00000020"
    content = bytearray((newest / "state.safetensors").read_bytes())
    content[-1] ^= 1
    (newest / "state.safetensors").write_bytes(content)
    found = checkpoints.newest()
    assert found is not None
    assert found[0].name == "step-00000010"
    assert "step-00000020 is damaged" in notes[0]
    with pytest.raises(FolderError, match="altered"):  # as the best checkpoint is opened at the end
        open_folder(newest, "checkpoint", hashes=True)
    with monkeypatch.context() as patched, pytest.raises(FolderError, match="is damaged"):
        patched.setattr(checkpoints, "is_good", lambda path: False)
        checkpoints.newest()
    checkpoints.save(20, {"weight": torch.full((2,), 20.0)}, {"step": 20}, None)  # written again
    checkpoints.wait()
    open_folder(newest, "checkpoint", hashes=True)


def test_held_out_windows_are_evenly_spaced() -> None:
    asked: list[int] = []

    def batch(indices: Any) -> tuple[torch.Tensor, torch.Tensor]:
        asked.extend(int(index) for index in indices)
        return torch.zeros(len(indices), 1, dtype=torch.long), torch.zeros(len(indices), 1, dtype=torch.long)

    count = (1 << 25) + 4
    stream: Any = SimpleNamespace(windows=count, batch=batch)
    model = SimpleNamespace(eval=lambda: None)
    trainer: Any = SimpleNamespace(ranks=Ranks(), model=model, loss=lambda batch: (torch.ones(()), {}))
    held_out_loss(trainer, stream, PretrainConfig.build({"micro_batch": 100}))
    assert (asked[0], asked[-1], len(asked)) == (0, count - 1, 256)


def test_the_held_out_loss_counts_each_target_once() -> None:
    targets = torch.tensor([[1, 1], [IGNORE, 1]])  # the second window overlaps the first
    stream: Any = SimpleNamespace(windows=2, batch=lambda indices: (targets[indices], targets[indices]))

    def loss(batch: TokenBatch) -> Any:
        return (3.0 * batch.weights * (batch.targets != IGNORE)).sum(), {}

    trainer: Any = SimpleNamespace(ranks=Ranks(), model=SimpleNamespace(eval=lambda: None), loss=loss)
    assert held_out_loss(trainer, stream, PretrainConfig.build({"micro_batch": 1})) == 3.0


def test_the_seed_decides_the_initial_weights(tokens: Path, tmp_path: Path) -> None:
    def initial(**changes: Any) -> torch.Tensor:
        config = resolve(PretrainConfig.build(TINY, {"micro_batch": 1} | changes), tokens, Ranks())
        return build_run(config, tokens, tmp_path / "run", Ranks(), SILENT).trainer.model.tokens.weight

    assert torch.equal(initial(), initial())
    assert not torch.equal(initial(), initial(seed=2))


def test_the_model_has_the_weights_with_the_lowest_held_out_loss(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = iter([3.0, 1.0, 2.0])
    monkeypatch.setattr(sys.modules[pretrain.__module__], "held_out_loss", lambda *_: next(losses))
    every = {"steps": 3, "validate_every": 1, "checkpoint_every": 1}
    model = load_model(pretrain(PretrainConfig.build(TINY, every), tokens, tmp_path / "run"))

    def has(step: int) -> bool:
        state = load_file(tmp_path / "run" / "checkpoints" / f"step-{step:08d}" / "state.safetensors")
        return any(torch.equal(tensor, model.tokens.weight) for tensor in state.values())

    assert [has(step) for step in (1, 2, 3)] == [False, True, False]


def half_done(run: Path, manifest: dict[str, Any], tokens: Path) -> None:
    """Make a finished run one that has its checkpoints and no model yet."""
    shutil.rmtree(run / "model")
    (run / "headwater.json").unlink()
    for path in run.iterdir():
        if path.name != "checkpoints":
            path.unlink()
    checkpoints = run / "checkpoints"
    aside = run.with_name("aside")
    checkpoints.rename(aside)
    run.rmdir()
    config = manifest["config"]
    Stage(run, kind="run", config=config, inputs={"tokens": tokens}).begin()
    aside.rename(checkpoints)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_killed_runs_end_bit_for_bit_where_undisturbed_ones_do(
    launched: Launched, tokens: Path, tmp_path: Path, ended: Any, ranks: int, precision: str
) -> None:
    settings = TINY | {"precision": precision, "steps": 60}
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"] if ranks > 1 else []

    def run(out: Path, program: Sequence[str] = ("-m", "headwater")) -> int:
        arguments = [sys.executable, *launcher, *program, *command(tokens, out, settings)]
        with launched(arguments, out.with_suffix(".log")) as process:
            return process.wait(timeout=300)

    killed = tmp_path / "killed"
    assert run(tmp_path / "whole") == 0, (tmp_path / "whole.log").read_text()
    for step in (2, 9, 24, 43):  # no checkpoint; one being written; after a validation; a new one
        # torchrun's own status is 1.
        assert run(killed, ended(signal.SIGKILL, step)) == (1 if launcher else -signal.SIGKILL)
        assert read_journal(killed / "metrics.jsonl")[-1]["step"] == step
    assert run(killed) == 0, killed.with_suffix(".log").read_text()
    open_folder(killed, "run")
    assert_same_weights(tmp_path / "whole", killed)


@pytest.mark.slow
def test_ctrl_c_writes_a_checkpoint_and_the_resume_command(tokens: Path, tmp_path: Path, ended: Any) -> None:
    run = tmp_path / "run"
    result = subprocess.run(
        [sys.executable, *ended(signal.SIGINT, 3), *command(tokens, run, TINY | {"checkpoint_every": 5_000})],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 130
    assert "Run the same command again to resume" in result.stderr
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["step-00000004"]


def test_a_full_disk_during_a_checkpoint_is_a_warning(tokens: Path, tmp_path: Path) -> None:
    limit = 60_000  # bytes a file: less than a checkpoint, more than anything else the run writes

    def cap_file_size() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    settings = TINY | {"model": {"width": 64}, "steps": 6}
    result = subprocess.run(
        [sys.executable, "-m", "headwater", *command(tokens, tmp_path / "run", settings)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        preexec_fn=cap_file_size,
        capture_output=True,
        text=True,
    )
    assert "no checkpoint was written at step 4" in result.stderr
    assert len(read_journal(tmp_path / "run" / "metrics.jsonl")) == 6
    # The model itself cannot be written either: that is an error, in one paragraph.
    assert result.returncode == 1
    assert "no space is left" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.slow
def test_bfloat16_and_float32_learn_along_the_same_curve(tokens: Path, tmp_path: Path) -> None:
    settings = TINY | {"model": {}, "steps": 200, "batch_size": 8, "learning_rate": 1e-3, "warmup_steps": 20}
    curves = []
    for precision in ("fp32", "bf16"):
        out = tmp_path / precision
        pretrain(PretrainConfig.build(settings, {"precision": precision, "validate_every": 200}), tokens, out)
        curves.append([line["loss"] for line in read_journal(out / "metrics.jsonl")])
    assert curves[0][-1] < curves[0][0] - 1
    assert max(abs(a - b) for a, b in zip(*curves, strict=True)) < 0.005


def test_bad_input_is_named(tokens: Path, tmp_path: Path) -> None:
    def attempt(**changes: Any) -> None:
        pretrain(PretrainConfig.build(TINY, changes), tokens, tmp_path / "run")

    with pytest.raises(UsageError, match=r"learning_rat.*Did you mean 'learning_rate'"):
        PretrainConfig.build({"learning_rat": 1})
    with pytest.raises(UsageError, match="learning_rate = -1"):
        PretrainConfig.build({"learning_rate": -1})
    with pytest.raises(MismatchError, match="10 vocabulary rows"):
        attempt(model={"vocabulary": 10})
    with pytest.raises(UsageError, match=r"longer than model\.context"):
        attempt(model={"context": 16})
    with pytest.raises(UsageError, match=r"no preset 'gpt2-smal'.*'gpt2-small'"):
        attempt(preset="gpt2-smal")
    with pytest.raises(UsageError, match=r"dropout = 0\.1 and model\.dropout = 0\.2"):
        attempt(dropout=0.1, model={"dropout": 0.2})
    with pytest.raises(DataError, match=r"less than one window.*smaller --set context"):
        attempt(context=1_000_000)
    (tmp_path / "config.toml").write_text("title = 'a page of mine'")
    with pytest.raises(FolderError, match=r"already contains files that are not Headwater's"):
        pretrain(PretrainConfig.build(TINY), tokens, tmp_path)
    assert not (tmp_path / "run").exists()  # where the next attempt, repaired, would be something else


def test_shard_refuses_nothing_on_one_rank(tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = PretrainConfig.build(TINY, {"shard": True, "optimizer": "muon"})
    assert resolve(config, tokens, Ranks()).shard
    with pytest.raises(UsageError, match="needs whole matrices"):
        resolve(config, tokens, Ranks(count=2))
    run = ["pretrain", "--preset", "gpt2-pico", "--tokens", str(tokens), "--out", str(tmp_path / "run")]
    assert main([*run, "--set", "shard=true", "--set", "context=16", "--set", "steps=1"]) == 0


def test_weights_that_the_last_update_spoilt_become_no_model(tokens: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    for _ in range(2):  # nor when the command is run again
        with pytest.raises(TrainingError, match="validation loss is nan after update 1"):
            pretrain(PretrainConfig.build(TINY, {"steps": 1, "learning_rate": 1e30}), tokens, run)
        assert not (run / "model").exists()


def test_a_run_that_diverged_fails_and_keeps_its_checkpoints(tokens: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    for _ in range(2):  # also when the command is run again
        with pytest.raises(
            TrainingError,
            match=r"diverged: its held-out loss is .* about the loss of guessing .*learning_rate=0\.0003 ",
        ):
            pretrain(PretrainConfig.build(TINY, {"steps": 8, "learning_rate": 30.0}), tokens, run)
        assert not (run / "model").exists()
    assert list((run / "checkpoints").iterdir())


def test_a_run_that_diverges_is_ended_early(tokens: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="diverged: its training loss is"):
        pretrain(PretrainConfig.build(TINY, {"steps": 500, "learning_rate": 5.0}), tokens, tmp_path / "run")
    assert len(read_journal(tmp_path / "run" / "metrics.jsonl")) < 60


def test_a_text_learned_by_heart_leaves_its_best_model(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The held-out loss rises, here above that of guessing from the start; the training loss does not."""
    losses = iter([8.0, 9.0])
    monkeypatch.setattr(sys.modules[pretrain.__module__], "held_out_loss", lambda *_: next(losses))
    keys = {**TINY, "steps": 4, "validate_every": 2}
    settings = [f"--set={key}={value}" for key, value in keys.items() if key not in ("preset", "model")]
    out = tmp_path / "run"
    command = ["pretrain", "--preset", "gpt2-pico", "--tokens", str(tokens), "--out", str(out), *settings]
    assert main([*command, "--set=model.width=32"]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "Warning: the text is learned by heart: the training loss is 5." in said
    assert "the held-out loss 9.00. The model is the best state that was measured, with 8.00" in said
    assert read_manifest(out / "model").config["step"] == 2


def test_a_checkpoint_of_another_run_is_refused(tokens: Path, tmp_path: Path) -> None:
    """Two machines share a folder: the checkpoints of one seed, the manifest of the other."""

    def stop(line: dict[str, Any]) -> None:
        if line["step"] == 6:
            raise RuntimeError("killed")

    for seed in (1, 2):
        with pytest.raises(RuntimeError, match="killed"):
            config = PretrainConfig.build(TINY, {"seed": seed, "checkpoint_every": 2})
            pretrain(config, tokens, tmp_path / f"run-{seed}", on_update=stop)
    shutil.rmtree(tmp_path / "run-1" / "checkpoints" / "step-00000004")
    shutil.copytree(
        tmp_path / "run-2" / "checkpoints" / "step-00000004", tmp_path / "run-1" / "checkpoints" / "step-00000004"
    )
    with pytest.raises(MismatchError, match=r"step-00000004 belongs to another run than .*run-1.*Move it"):
        pretrain(PretrainConfig.build(TINY, {"seed": 1, "checkpoint_every": 2}), tokens, tmp_path / "run-1")
    shutil.rmtree(tmp_path / "run-1" / "checkpoints" / "step-00000004")
    pretrain(PretrainConfig.build(TINY, {"seed": 1, "checkpoint_every": 2}), tokens, tmp_path / "run-1")
    assert read_manifest(tmp_path / "run-1" / "model").seed == 1


def test_a_run_that_has_begun_takes_no_other_recipe(undisturbed: Path, tmp_path: Path) -> None:
    (tmp_path / "same.toml").write_text("batch_size = 4")
    (tmp_path / "other.toml").write_text("learning_rate = 0.5")
    assert main(["pretrain", str(tmp_path / "same.toml"), "--out", str(undisturbed), "--resume"]) == 0
    assert main(["pretrain", str(tmp_path / "other.toml"), "--out", str(undisturbed), "--resume"]) == 1
    assert main(["pretrain", "--out", str(undisturbed), "--resume", "--set=dropout=0.3"]) == 2


def test_a_run_killed_before_its_recipe_was_saved_resumes(undisturbed: Path, tokens: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    manifest = open_folder(undisturbed, "run")
    Stage(run, kind="run", config=manifest.config, inputs={"tokens": tokens}).begin()
    (run / "log.txt").write_text("what this process said so far")
    assert main(["pretrain", "--out", str(run), "--resume"]) == 0
    assert_same_weights(undisturbed, run)
    (run / "log.txt").write_text("and its last words, which are none of the run's files")
    assert open_folder(run, "run").files.keys() == manifest.files.keys()


def test_the_last_layer_that_sets_a_length_decides(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text("epochs = 2.0")
    assert PretrainConfig.load(recipe, {"steps": 7}).epochs is None
    assert PretrainConfig.load(recipe, {"steps": 7}).steps == 7
    assert PretrainConfig.build(TINY, {"epochs": 0.5}).epochs == 0.5
    with pytest.raises(UsageError, match=r"steps = 7 and epochs = 2 both set"):
        PretrainConfig.build({"steps": 7, "epochs": 2})


def test_epochs_become_updates_and_a_run_keeps_its_micro_batch(tokens: Path) -> None:
    asked = PretrainConfig.build(TINY, {"epochs": 1.5, "batch_size": 7})
    resolved = resolve(asked, tokens, Ranks())
    windows = TokenStream(tokens, "train", 32).windows
    assert (resolved.steps - 1) * 7 < 1.5 * windows < resolved.steps * 7
    begun = resolved.model_copy(update={"micro_batch": 1})
    assert (resolved.micro_batch, resolve(asked, tokens, Ranks(), begun).micro_batch) == (7, 1)


def test_a_run_in_use_is_refused(undisturbed: Path) -> None:
    in_use = pytest.raises(FolderError, match="in use by a running process")
    with folder_lock(undisturbed), in_use, folder_lock(undisturbed):
        pass


def test_weights_that_were_never_trained_get_the_rate_of_pre_training(tokens: Path, tmp_path: Path) -> None:
    import transformers

    vocabulary = Tokenizer.load(tokens / "tokenizer").vocabulary_size
    shape = transformers.GPT2Config(vocab_size=vocabulary, n_positions=32, n_embd=32, n_layer=1, n_head=2)
    transformers.GPT2LMHeadModel(shape).save_pretrained(tmp_path / "drawn")
    config = PretrainConfig.build({"init_from": str(tmp_path / "drawn"), "steps": 2, "batch_size": 2})
    assert resolve(config, tokens, Ranks()).learning_rate == PretrainConfig().learning_rate
    pretrain(config, tokens, tmp_path / "run")
    # A model that was trained has a rate of its own, in its folder.
    trained = json.loads((tmp_path / "run" / "model" / "config.json").read_text())["headwater"]
    assert trained["transfer_rate"] == transfer_rate(32)
    further = PretrainConfig.build({"init_from": str(tmp_path / "run"), "steps": 2, "batch_size": 2})
    assert resolve(further, tokens, Ranks()).learning_rate == transfer_rate(32)
