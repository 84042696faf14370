"""Compilation is taken only when it gives the eager loss, and never stands in the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from headwater.model import build_model, preset
from headwater.pretrain import l1
from headwater.tokens.sampler import TokenBatch
from headwater.train.compile import compile_checked
from headwater.train.loop import TrainConfig, Trainer


def tiny(dropout: float = 0.0) -> tuple[Trainer, list[TokenBatch]]:
    model = build_model(preset("gpt2-pico", vocabulary=61, context=12, width=32), seed=3)
    tokens = torch.randint(0, 61, (4, 13), generator=torch.Generator().manual_seed(0))
    batch = TokenBatch(tokens[:, :-1], tokens[:, 1:], torch.full((4, 12), 1 / 48))
    return Trainer(model, l1(), TrainConfig(steps=5, precision="fp32", dropout=dropout)), [batch]


def compiled_as(forward: Callable[..., Any]) -> Callable[[nn.Module], None]:
    def compile_block(block: nn.Module) -> None:
        block._compiled_call_impl = lambda *args, **kwargs: forward(block, *args, **kwargs)

    return compile_block


@pytest.mark.parametrize(
    ("error", "said"),
    [(RuntimeError("no compiler\nand a page of trace"), "no compiler"), (AssertionError(), "AssertionError")],
)
def test_a_compiler_that_is_not_there_is_a_note(
    monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    def fail(block: nn.Module) -> None:
        raise error

    monkeypatch.setattr(nn.Module, "compile", fail)
    trainer, batches = tiny()
    notes: list[str] = []
    compile_checked(trainer, batches, "on", notes.append)
    assert notes == [f"not compiled: compilation failed ({said})"]
    assert trainer.update(batches).loss > 0


def test_a_compiled_step_that_differs_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = compiled_as(lambda block, *args, **kwargs: block.forward(*args, **kwargs) * 1.5)
    monkeypatch.setattr(nn.Module, "compile", wrong)
    trainer, batches = tiny()
    expected = tiny()[0].update(batches).loss
    notes: list[str] = []
    compile_checked(trainer, batches, "on", notes.append)
    assert "is not the eager" in notes[0]
    assert trainer.update(batches).loss == expected


def test_on_a_cpu_auto_stays_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nn.Module, "compile", lambda block: pytest.fail("compiled"))
    trainer, batches = tiny()
    compile_checked(trainer, batches, "auto", pytest.fail)


def test_what_was_asked_for_and_cannot_be_is_said() -> None:
    trainer, batches = tiny(dropout=0.1)
    notes: list[str] = []
    compile_checked(trainer, batches, "on", notes.append)
    assert notes == ["not compiled: with dropout no two losses can be compared"]
    compile_checked(trainer, batches, "auto", pytest.fail)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_compiled_step_trains_as_the_eager_one() -> None:
    compiled, batches = tiny()
    eager, _ = tiny()
    notes: list[str] = []
    compile_checked(compiled, batches, "on", notes.append)
    assert notes == ["compiled: the first batch gives the eager loss"]
    for _ in range(4):
        assert compiled.update(batches).loss == pytest.approx(eager.update(batches).loss, rel=1e-5)
