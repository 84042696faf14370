"""What a run will cost and which rate suits it, measured without leaving files."""

from __future__ import annotations

import json
import math
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch

from headwater import device
from headwater.cli.main import main
from headwater.errors import FolderError, ResourceError, TrainingError, UsageError
from headwater.model import build_model, preset, save_model
from headwater.pretraining import (
    PretrainConfig,
    cost,
    find_rate,
    forecast,
    forecasting,
    pretrain,
    rate_search,
)
from headwater.pretraining.pretraining import build_run
from headwater.pretraining.rate_search import Point, search_rate, suggestion
from headwater.pretraining.recipe import resolve
from headwater.storage import SILENT, read_manifest, write_text
from headwater.storage.provenance import MANIFEST
from headwater.tokenizer import Tokenizer
from headwater.training import Measurement, Ranks, read_journal

TINY = {"preset": "gpt2-pico", "context": 32, "batch_size": 8, "steps": 30, "precision": "fp32"}


def test_a_forecast_counts_what_the_run_is_made_of(tokens: Path, tmp_path: Path) -> None:
    result = forecast(PretrainConfig.build(TINY, {"micro_batch": 4}), tokens, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert result.tokens == 30 * 8 * 32
    # float32: the weights are their own masters; plus two moments and a gradient.
    assert result.memory.weights == 4 * result.parameters
    assert result.memory.optimizer == 8 * result.parameters
    assert result.memory.gradients == 4 * result.parameters
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
    assert "0.0005 after a rise over 6 updates, schedule cosine; warmup_steps = 100 was shortened" in shortened
    kept = told(**long, steps=100)
    assert "0.0005 after a rise over 100 updates, schedule cosine\n" in kept


@pytest.mark.parametrize(("load", "used"), [(0.1, 0.0), (63.5, 1.5), (90.0, 2.0)])
def test_a_busy_machine_is_warned_of(
    load: float, used: float, tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "available_cores", lambda: 2)
    monkeypatch.setattr(forecasting, "available_cores", lambda: 2)
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    monkeypatch.setattr("os.getloadavg", lambda: (load, 0.0, 0.0), raising=False)
    monkeypatch.setattr(forecasting, "time_updates", lambda *_, **__: 1.0)
    result = forecast(PretrainConfig.build(TINY), tokens, tmp_path / "run")
    assert result.cores_in_use == used
    assert (f"other programs use {used} of 2 cores" in result.as_text()) == (used > 0)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_what_is_counted_beforehand_is_what_training_holds(precision: str, tokens: Path, tmp_path: Path) -> None:
    config = PretrainConfig.build(TINY, {"precision": precision})
    config = resolve(config, tokens, Ranks())
    run = build_run(config, tokens, tmp_path / "run", Ranks(), SILENT)
    trainer = run.trainer
    matrices = sum(master.numel() for master in trainer.optimizer.masters if master.dim() >= 2)
    vectors = sum(master.numel() for master in trainer.optimizer.masters if master.dim() < 2)
    memory = cost.estimate_memory(trainer, run.read(0)[0], 1)
    held = memory.weights + memory.optimizer + memory.gradients
    # Masters, two moments and a gradient in float32, and a bfloat16 copy of the matrices.
    assert held == matrices * (16 if precision == "fp32" else 18) + 16 * vectors
    tensors = [*trainer.optimizer.state().values(), *trainer.optimizer.gradients]
    copies = [p for p in trainer.optimizer.parameters if p.dtype == torch.bfloat16]
    assert held == sum(tensor.nbytes for tensor in [*tensors, *copies])


def test_what_cannot_fit_is_not_tried(tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecasting, "time_updates", lambda *_, **__: 1.0)
    with monkeypatch.context() as patched, pytest.raises(UsageError, match="Train a smaller model, or use"):
        patched.setattr(cost, "available_memory", lambda device: 8 * 1024**3)
        forecast(PretrainConfig.build({"preset": "gpt2-xl", "precision": "bf16"}), tokens, tmp_path / "run")
    monkeypatch.setattr(forecasting, "available_memory", lambda device: 20_000_000)
    result = forecast(
        PretrainConfig.build(TINY, {"batch_size": 256, "micro_batch": 256}), tokens, tmp_path / "run"
    )
    assert result.seconds is None
    smaller = int(result.advice.split("micro_batch=")[1])
    fitting = forecast(
        PretrainConfig.build(TINY, {"batch_size": 256, "micro_batch": smaller}), tokens, tmp_path / "run"
    )
    assert fitting.advice == "It fits"


def test_a_gpu_too_small_gets_the_settings_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Ranks(device=torch.device("cuda:0"))
    monkeypatch.setattr(cost, "available_memory", lambda device: 24e9)
    cost.require_memory(preset("gpt2-medium"), gpu, sharded=False, optimizer="adam")
    with pytest.raises(UsageError, match=r"28\.\d GB, and cuda:0 has 24\.0 GB.*over 2 ranks"):
        cost.require_memory(preset("gpt2-xl"), gpu, sharded=False, optimizer="adam")
    cost.require_memory(preset("gpt2-xl"), Ranks(0, 2, gpu.device), sharded=True, optimizer="adam")
    monkeypatch.setattr(cost, "available_memory", lambda device: 4e9)
    with pytest.raises(UsageError, match="shard=true --set optimizer=adam over"):  # Muon cannot be sharded
        cost.require_memory(preset("bert-large"), gpu, sharded=False, optimizer="muon")
    # Several ranks that are not sharded have a copy of the gradients.
    monkeypatch.setattr(cost, "available_memory", lambda device: 30e9)
    cost.require_memory(preset("gpt2-xl"), gpu, sharded=False, optimizer="adam")
    with pytest.raises(UsageError, match=r"34\.\d GB"):
        cost.require_memory(preset("gpt2-xl"), Ranks(0, 2, gpu.device), sharded=False, optimizer="adam")
    # The number of ranks comes from the whole state, however many ranks have a part of it now.
    monkeypatch.setattr(cost, "available_memory", lambda device: 8e9)
    with pytest.raises(UsageError, match=r"14\.\d GB.*or use 6 ranks"):
        cost.require_memory(preset("gpt2-xl"), Ranks(0, 2, gpu.device), sharded=True, optimizer="adam")
    cost.require_memory(preset("gpt2-xl"), Ranks(0, 6, gpu.device), sharded=True, optimizer="adam")


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


def test_the_range_test_finds_a_rate_that_learns(
    tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = find_rate(PretrainConfig.build(TINY), tokens, tmp_path / "rates")
    assert 1e-5 < found < 0.5
    points = [json.loads(line) for line in (tmp_path / "rates" / "points.jsonl").read_text().splitlines()]
    assert points[0]["learning_rate"] < points[-1]["learning_rate"]
    assert (tmp_path / "rates" / "curve.svg").read_text().lstrip().startswith("<?xml")
    # Again it is read, not made; and without the means to draw it is refused before the time is spent.
    monkeypatch.setattr(rate_search, "search_rate", lambda *_, **__: pytest.fail("searched"))
    assert find_rate(PretrainConfig.build(TINY), tokens, tmp_path / "rates") == found
    # So it is on a device with less memory.
    elsewhere = PretrainConfig.build(TINY, {"device": "cpu", "micro_batch": 2})
    assert find_rate(elsewhere, tokens, tmp_path / "rates") == found
    # Earlier versions also recorded the keys that do not decide the rates.
    path = tmp_path / "rates" / MANIFEST
    manifest = read_manifest(path.parent)
    older = manifest.model_copy(update={"config": {**manifest.config, "micro_batch": 8, "device": "auto"}})
    write_text(path, json.dumps(older.sealed().to_dict()))
    assert find_rate(PretrainConfig.build(TINY), tokens, tmp_path / "rates") == found
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ResourceError, match=r"headwater\[plots\]"):
        find_rate(PretrainConfig.build(TINY), tokens, tmp_path / "others")


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
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ResourceError, match=r"headwater\[track\]"):
        pretrain(PretrainConfig.build(TINY, {"steps": 3, "track": ["wandb"]}), tokens, tmp_path / "other")


@pytest.mark.parametrize("name", ["gpt1", "gpt2-small", "lstm"])
def test_operations_are_counted_from_the_weights_there_are(name: str) -> None:
    config = preset(name)
    model = build_model(config, device="meta")
    inner = [p for place, p in model.named_parameters() if not place.startswith(("tokens", "positions"))]
    assert cost.inner_weights(config) == sum(p.numel() for p in inner if p.dim() > 1)


def test_a_masked_model_predicts_only_the_masked_tokens() -> None:
    causal, masked = preset("gpt1-nano"), preset("bert-nano")
    spared = 0.85 * 6 * causal.vocabulary * causal.width
    difference = cost.training_flops_per_token(causal, 32) - cost.training_flops_per_token(masked, 32)
    assert difference == pytest.approx(spared, abs=1)


@pytest.mark.parametrize(("best", "suggested"), [(9.7e-3, 1e-3), (1.0, 0.1), (2.6e-3, 3e-4)])
def test_the_suggested_rate_is_the_nearest_round_number(best: float, suggested: float) -> None:
    assert suggestion([Point(best, 1.0, 1.0)]) == suggested


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


def test_a_range_test_belongs_to_the_model_to_continue_from(
    tmp_path: Path, tokens: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        rate_search, "search_rate", lambda *_, **__: [Point(1e-3, 1.0, 1.0), Point(1e-2, 2.0, 2.0)]
    )
    model = tmp_path / "model"
    model.mkdir()
    shape = preset(
        "gpt2-pico", vocabulary=Tokenizer.load(tokens / "tokenizer").vocabulary_size, context=32, width=32
    )
    for seed in (1, 2):
        save_model(build_model(shape, seed=seed), model, tokenizer=Tokenizer.load(tokens / "tokenizer"))
        config = PretrainConfig.build({"init_from": str(model), "batch_size": 2, "precision": "fp32"})
        if seed == 1:
            find_rate(config, tokens, tmp_path / "rates")
    with pytest.raises(FolderError, match=r"another input \(model\)"):
        find_rate(config, tokens, tmp_path / "rates")


def test_a_range_test_that_diverges_at_once_names_the_cause() -> None:
    class Diverging:
        def update(self, batches: Any, learning_rate: float) -> Any:
            raise TrainingError("the loss is not finite")

    trainer: Any = Diverging()
    with pytest.raises(TrainingError, match="not finite"):
        search_rate(trainer, lambda step: [], lambda: pytest.fail("measured"))


def test_the_range_test_chooses_by_the_held_out_loss() -> None:
    rates: list[float] = []

    class Memorising:
        def update(self, batches: Any, learning_rate: float) -> Any:
            rates.append(learning_rate)
            return types.SimpleNamespace(loss=5.0 - len(rates) / 50)  # of the training text: it only falls

    def validate() -> Measurement:
        return Measurement({"validation_loss": 5.0 + abs(math.log10(rates[-1] / 1e-3))}, rank=(0.0,))

    trainer: Any = Memorising()
    points = search_rate(trainer, lambda step: [], validate)
    lowest = min(points, key=lambda point: point.loss)
    assert lowest.learning_rate == pytest.approx(1e-3, rel=0.1)
    assert 1e-4 <= suggestion(points) <= 4e-4  # a tenth, and the lag of the smoothing


def test_two_kinds_of_measurement_are_refused_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["pretrain", "--tokens", str(tmp_path), "--out", str(tmp_path / "run"), "--dry-run", "--find-lr"]
    assert main(asked) == 2
    assert "--dry-run does not use --find-lr" in capsys.readouterr().err
