"""What a run will cost and which rate suits it, measured without leaving files."""

from __future__ import annotations

import math
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch

from headwater.errors import ResourceError, UsageError
from headwater.model import preset
from headwater.pretraining import (
    PretrainConfig,
    cost,
    forecast,
    forecasting,
    pretrain,
)
from headwater.pretraining.pretraining import build_run
from headwater.pretraining.recipe import resolve
from headwater.storage import SILENT, read_manifest
from headwater.training import Ranks, read_journal

TINY = {"preset": "gpt2-pico", "context": 32, "batch_size": 8, "steps": 30, "precision": "fp32"}


def test_a_forecast_counts_what_the_run_is_made_of(tokens: Path, tmp_path: Path) -> None:
    result = forecast(PretrainConfig.build(TINY, {"micro_batch": 4}), tokens, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert "30 updates, 7,680 tokens" in result.as_text()
    # float32: the weights are their own masters; plus two moments, a gradient and a checkpoint's copy.
    assert result.memory.state == (4 + 8 + 4 + 12) * result.to_dict()["parameters"]
    assert result.seconds is not None
    assert result.seconds > 0
    assert "It fits" in result.as_text()


def test_a_forecast_counts_passes_and_names_the_rate(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecasting, "time_updates", lambda *_: 1.0)

    def told(**changes: Any) -> str:
        return forecast(PretrainConfig.build(TINY, changes), tokens, tmp_path / "run").as_text()

    count = read_manifest(tokens).config["counts"]["train"]["tokens"]
    once = math.ceil(count / (8 * 32))
    few = told(steps=once)
    assert f"1.0 passes over {count:,} tokens" in few
    assert "read" not in few
    many = told(steps=20 * once)
    assert re.search(r"warning +the text is read 20 times; beyond about 8 passes .*--set epochs=8", many)
    long = {"learning_rate": 5e-4, "warmup_steps": 100}
    shortened = told(**long, steps=60)
    assert "0.0005 after a rise over 6 updates, schedule cosine\n" in shortened
    assert re.search(
        rf"warning +60 updates read {count:,} tokens [\d.]+ times, fewer than the recipe's", shortened
    )
    kept = told(**long, steps=100)
    assert "0.0005 after a rise over 100 updates, schedule cosine\n" in kept
    assert "warmup_steps" not in kept


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_what_is_counted_beforehand_is_what_training_holds(precision: str, tokens: Path, tmp_path: Path) -> None:
    config = PretrainConfig.build(TINY, {"precision": precision})
    config = resolve(config, tokens, Ranks())
    run = build_run(config, tokens, tmp_path / "run", Ranks(), SILENT)
    trainer = run.trainer
    state = cost.estimate_memory(trainer, run.read(0)[0], 1).state
    saved = trainer.optimizer.state().values()  # masters and moments, which a checkpoint copies
    copies = [p for p in trainer.optimizer.parameters if p.dtype == torch.bfloat16]
    held = sum(tensor.nbytes for tensor in (*saved, *saved, *trainer.optimizer.gradients, *copies))
    # Gains and biases, less than 1 % of the parameters, have no bfloat16 copy: 2 of 30 bytes.
    assert state == (held if precision == "fp32" else pytest.approx(held, rel=1e-3))


def test_what_cannot_fit_is_not_tried(tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecasting, "time_updates", lambda *_, **__: 1.0)
    with monkeypatch.context() as patched, pytest.raises(UsageError, match="Train a smaller model, or use"):
        patched.setattr(cost, "available_memory", lambda device: 8 * 1024**3)
        forecast(PretrainConfig.build({"preset": "gpt2-xl", "precision": "bf16"}), tokens, tmp_path / "run")
    large = PretrainConfig.build(TINY, {"batch_size": 256, "micro_batch": 256})
    whole = forecast(large, tokens, tmp_path / "run")
    half = whole.total - whole.memory.activations // 2
    monkeypatch.setattr(forecasting, "available_memory", lambda device: half)
    result = forecast(large, tokens, tmp_path / "run")
    assert result.seconds is None
    smaller = int(result.advice.split("micro_batch=")[1])
    fitting = forecast(
        PretrainConfig.build(TINY, {"batch_size": 256, "micro_batch": smaller}), tokens, tmp_path / "run"
    )
    assert fitting.advice == "It fits"


def test_a_gpu_too_small_gets_the_settings_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Ranks(device=torch.device("cuda:0"))
    two = Ranks(0, 2, gpu.device)
    monkeypatch.setattr(cost, "available_memory", lambda device: 24e9)
    cost.require_memory(preset("gpt2-medium"), gpu, torch.bfloat16, sharded=False, optimizer="adam")
    with pytest.raises(UsageError, match=r"28\.\d GB, and cuda:0 has 24\.0 GB.*over 2 ranks"):
        cost.require_memory(preset("gpt2-xl"), gpu, torch.bfloat16, sharded=False, optimizer="adam")
    cost.require_memory(preset("gpt2-xl"), two, torch.bfloat16, sharded=True, optimizer="adam")
    monkeypatch.setattr(cost, "available_memory", lambda device: 4e9)
    with pytest.raises(UsageError, match="shard=true --set optimizer=adam over"):  # Muon cannot be sharded
        cost.require_memory(preset("bert-large"), gpu, torch.bfloat16, sharded=False, optimizer="muon")
    # Several ranks that are not sharded have a copy of the gradients.
    monkeypatch.setattr(cost, "available_memory", lambda device: 30e9)
    cost.require_memory(preset("gpt2-xl"), gpu, torch.bfloat16, sharded=False, optimizer="adam")
    with pytest.raises(UsageError, match=r"34\.\d GB"):
        cost.require_memory(
            preset("gpt2-xl"), Ranks(0, 2, gpu.device), torch.bfloat16, sharded=False, optimizer="adam"
        )
    # The number of ranks comes from the whole state, however many ranks have a part of it now.
    monkeypatch.setattr(cost, "available_memory", lambda device: 8e9)
    with pytest.raises(UsageError, match=r"14\.\d GB.*or use 6 ranks"):
        cost.require_memory(
            preset("gpt2-xl"), Ranks(0, 2, gpu.device), torch.bfloat16, sharded=True, optimizer="adam"
        )
    cost.require_memory(preset("gpt2-xl"), Ranks(0, 6, gpu.device), torch.bfloat16, sharded=True, optimizer="adam")


def test_the_default_micro_batch_depends_on_the_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """A T4, which has no bfloat16: in float32 a token keeps 1.7 times the bytes."""
    monkeypatch.setattr(cost, "available_memory", lambda device: 15e9)
    gpu, config = Ranks(device=torch.device("cuda:0")), preset("gpt2-small")
    kept = {}
    for dtype in (torch.bfloat16, torch.float32):
        tokens = cost.fitting_tokens(config, gpu, dtype, sharded=False)
        kept[dtype] = tokens * cost._KEPT_PER_WIDTH[dtype] * config.width * config.layers
        assert kept[dtype] + 18 * config.parameter_count < 0.75 * 15e9
        assert 2 * kept[dtype] > 0.5 * (15e9 - 18 * config.parameter_count)


def test_the_copy_of_a_checkpoint_must_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    config = preset("gpt2-large")  # 774 million parameters: 12.4 GB, and 9.3 GB for the copy
    cpu, gpu = Ranks(), Ranks(device=torch.device("cuda:0"))
    monkeypatch.setattr(cost, "available_memory", lambda device: 80e9 if device.type == "cuda" else 16e9)
    with pytest.raises(UsageError, match=r"weights and optimizer take 2\d\.\d GB, and cpu has 16\.0 GB"):
        cost.require_memory(config, cpu, torch.float32, sharded=False, optimizer="adam")
    cost.require_memory(config, gpu, torch.float32, sharded=False, optimizer="adam")
    monkeypatch.setattr(cost, "available_memory", lambda device: 80e9 if device.type == "cuda" else 8e9)
    with pytest.raises(UsageError, match="a checkpoint is copied to the machine's memory"):
        cost.require_memory(config, gpu, torch.float32, sharded=False, optimizer="adam")
    cost.require_memory(config, Ranks(1, 2, gpu.device), torch.float32, sharded=False, optimizer="adam")


def test_a_run_too_large_for_the_memory_is_refused(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost, "available_memory", lambda device: 1e6)
    with pytest.raises(UsageError, match=r"weights and optimizer take .* GB, and cpu has 0\.0 GB free"):
        pretrain(PretrainConfig.build(TINY), tokens, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_ranks_time_equally_many_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecasting, "_TIMINGS", 2)
    monkeypatch.setattr(forecasting, "_TIMED", 0.0)
    done: list[Any] = []
    another_needs = 9  # timings, by its own clock
    ranks = types.SimpleNamespace(
        any=lambda flag: flag or 3 <= len(done) < 3 + another_needs,
        minimum=lambda value: min(value, 5),
        device=torch.device("cpu"),
    )
    optimizer = types.SimpleNamespace(step=lambda rate: None)
    trainer: Any = types.SimpleNamespace(ranks=ranks, update=done.append, optimizer=optimizer)
    forecasting.time_updates(trainer, lambda step: [_windows(1)])
    assert len(done) - 3 >= another_needs


def _windows(count: int) -> Any:
    return types.SimpleNamespace(ids=[0] * count, first=_windows)


def test_a_long_update_is_timed_by_a_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])

    def update(batches: Any) -> None:
        now[0] += 0.5 + 2.0 * sum(len(batch.ids) for batch in batches)

    def step(rate: float) -> None:
        now[0] += 0.5

    optimizer = types.SimpleNamespace(step=step)
    trainer: Any = types.SimpleNamespace(ranks=Ranks(), update=update, optimizer=optimizer)
    batches = [_windows(8)] * 64
    assert forecasting.time_updates(trainer, lambda _: batches) == pytest.approx(0.5 + 2.0 * 512)
    assert now[0] < 30
    now[0] = 0.0  # a sequence that alone takes longer is timed once
    trainer.update = lambda batches: update(batches * 8)
    forecasting.time_updates(trainer, lambda _: batches)
    assert now[0] < 20


def test_a_slow_start_is_not_the_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first update of a short run took six seconds, each of the others a tenth of one."""
    now, updates = [0.0], [0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])

    def update(batches: Any) -> None:
        updates[0] += 1
        now[0] += 6.0 if updates[0] == 1 else 0.1

    optimizer = types.SimpleNamespace(step=lambda rate: None)
    trainer: Any = types.SimpleNamespace(ranks=Ranks(), update=update, optimizer=optimizer)
    assert forecasting.time_updates(trainer, lambda _: [_windows(16)]) == pytest.approx(0.1)


def test_trackers_get_the_journals_lines(tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[tuple[int, dict[str, Any]]] = []
    ended: list[bool] = []
    fake = types.ModuleType("trackio")
    fake.init = lambda **_: None  # type: ignore[attr-defined]
    fake.log = lambda figures, step: logged.append((step, figures))  # type: ignore[attr-defined]
    fake.finish = lambda: ended.append(True)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "trackio", fake)
    pretrain(PretrainConfig.build(TINY, {"steps": 3, "track": ["trackio"]}), tokens, tmp_path / "run")
    lines = read_journal(tmp_path / "run" / "metrics.jsonl")
    assert logged == [(line["step"], {k: v for k, v in line.items() if k != "step"}) for line in lines]
    assert ended == [True]
    # A run that resumes continues its curve.
    opened: list[dict[str, Any]] = []
    fake.init = lambda **given: opened.append(given)  # type: ignore[attr-defined]
    writer = types.SimpleNamespace(add_scalar=lambda *_: None, close=lambda: None)
    board = types.ModuleType("torch.utils.tensorboard")
    board.SummaryWriter = lambda folder, purge_step: opened.append({"purge": purge_step}) or writer  # type: ignore[attr-defined]
    for name, module in (("wandb", fake), ("torch.utils.tensorboard", board)):
        monkeypatch.setitem(sys.modules, name, module)
    changes = {"steps": 4, "checkpoint_every": 2, "track": ["trackio", "wandb", "tensorboard"]}

    def stop(line: dict[str, Any]) -> None:
        if len(opened) == 3 and line["step"] == 3:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        pretrain(PretrainConfig.build(TINY, changes), tokens, tmp_path / "stopped", on_update=stop)
    pretrain(PretrainConfig.build(TINY, changes), tokens, tmp_path / "stopped")
    assert opened[:2] == opened[3:5]
    assert opened[1]["id"].startswith(opened[0]["name"].removeprefix("stopped-"))
    assert (opened[1]["resume"], opened[2], opened[5]) == ("allow", {"purge": 1}, {"purge": 3})
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ResourceError, match=r"headwater\[track\]"):
        pretrain(PretrainConfig.build(TINY, {"steps": 3, "track": ["wandb"]}), tokens, tmp_path / "other")


def test_a_forecast_names_the_model_to_continue_from(
    tmp_path: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecasting, "time_updates", lambda *_, **__: 1.0)
    model = pretrain(PretrainConfig.build(TINY, {"steps": 1}), tokens, tmp_path / "run")
    config = PretrainConfig.build(TINY, {"init_from": str(model)})
    assert f"{model}, " in forecast(config, tokens, tmp_path / "next").as_text()


def test_a_continued_run_too_large_gets_no_advice_of_presets(
    tmp_path: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = pretrain(PretrainConfig.build(TINY, {"steps": 1}), tokens, tmp_path / "run")
    monkeypatch.setattr(forecasting, "available_memory", lambda device: 5_000_000)
    config = PretrainConfig.build(TINY, {"init_from": str(model)})
    assert "Train a smaller model" in forecast(config, tokens, tmp_path / "next").advice
