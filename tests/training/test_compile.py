"""Compiled training gives the eager losses; a compiler that is missing does not stop a run."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from headwater.model import build_model, preset
from headwater.pretraining import TokenBatch, l1
from headwater.training import Measurement, Ranks, Run, TrainConfig, Trainer
from headwater.training import trainer as trainer_module
from headwater.training.trainer import arithmetic

Forward = Callable[..., Any]


def tiny(dropout: float = 0.0) -> tuple[Trainer, list[TokenBatch]]:
    model = build_model(preset("gpt2-pico", vocabulary=61, context=12, width=32, dropout=dropout), seed=3)
    tokens = torch.randint(0, 61, (4, 13), generator=torch.Generator().manual_seed(0))
    batch = TokenBatch(tokens[:, :-1], tokens[:, 1:], torch.full((4, 12), 1 / 48))
    return Trainer(model, l1, TrainConfig(steps=5, precision="fp32", dropout=dropout)), [batch]


@pytest.mark.parametrize(
    ("error", "said"),
    [(RuntimeError("no compiler\nand a page of trace"), "no compiler"), (AssertionError(), "AssertionError")],
)
def test_a_compiler_that_is_not_there_is_a_note(
    monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    def fail(forward: Forward, dynamic: Any) -> Forward:
        raise error

    monkeypatch.setattr(trainer_module, "_compile", fail)
    trainer, batches = tiny()
    notes: list[str] = []
    trainer.compile_blocks(batches[0], "on", notes.append)
    assert notes == [f"not compiled: compilation failed ({said})"]
    assert trainer.update(batches).loss > 0


def test_on_a_cpu_auto_stays_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer_module, "_compile", lambda forward, dynamic: pytest.fail("compiled"))
    trainer, batches = tiny()
    trainer.compile_blocks(batches[0], "auto", pytest.fail)


def test_the_trial_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer_module, "_compile", lambda forward, dynamic: forward)
    trainer, batches = tiny(dropout=0.1)
    expected, before = tiny(dropout=0.1)[0].update(batches), torch.get_rng_state()
    trainer.compile_blocks(batches[0], "on", (notes := []).append)
    assert notes == ["compiled"]
    assert torch.equal(torch.get_rng_state(), before)
    assert trainer.update(batches) == expected


def test_a_device_that_is_full_is_not_a_missing_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(forward: Forward, dynamic: Any) -> Forward:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(trainer_module, "_compile", fail)
    trainer, batches = tiny()
    with pytest.raises(torch.OutOfMemoryError):
        trainer.compile_blocks(batches[0], "on", pytest.fail)


def test_one_rank_that_cannot_compile_keeps_all_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer_module, "_compile", lambda forward, dynamic: forward)
    monkeypatch.setattr(Ranks, "any", lambda self, flag: True)
    trainer, batches = tiny()
    trainer.compile_blocks(batches[0], "on", (notes := []).append)
    assert notes == ["not compiled: another rank could not"]
    assert all("forward" not in vars(block) for block in trainer.model.blocks)


def test_the_compiler_can_read_that_matmuls_use_tf32() -> None:
    with arithmetic(torch.device("cuda"), deterministic=False):
        assert torch.get_float32_matmul_precision() == "high"
    assert torch.get_float32_matmul_precision() == "highest"


def test_a_run_compiles_under_the_settings_that_it_trains_with(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, batches = tiny()
    source: Any = SimpleNamespace(micro_batches=lambda step: batches, tokens=lambda step: 48)
    seen: list[bool] = []
    monkeypatch.setattr(
        Trainer, "compile_blocks", lambda *_, **__: seen.append(torch.are_deterministic_algorithms_enabled())
    )
    settings = TrainConfig(steps=1, deterministic=True)
    Run(trainer, settings, source, lambda: Measurement({"validation_loss": 1.0}, (0.0,))).train()
    assert seen == [True]
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_the_compiled_step_trains_as_the_eager_one(dropout: float) -> None:
    compiled, batches = tiny(dropout)
    eager, _ = tiny(dropout)
    notes: list[str] = []
    compiled.compile_blocks(batches[0], "on", notes.append)
    assert notes == ["compiled"]
    for _ in range(4):
        tolerance = 0.05 if dropout else 1e-5  # another mask
        assert compiled.update(batches).loss == pytest.approx(eager.update(batches).loss, rel=tolerance)
