"""Compilation without graph breaks and with one graph for all blocks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters

from headwater.model import build_model, preset
from headwater.model.loss import IGNORE
from headwater.pretrain.objectives import l1, masked
from headwater.pretrain.tokens.sampler import TokenBatch
from headwater.train import compile
from headwater.train.compile import compile_checked
from headwater.train.loop import TrainConfig, Trainer

SMALL: dict[str, Any] = {"vocabulary": 61, "context": 12, "width": 32}


@pytest.mark.filterwarnings("ignore:The .grad attribute")
@pytest.mark.parametrize("name", ["gpt2-pico", "gpt1-nano", "bert-nano", "lstm-nano"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_one_graph_serves_every_block(monkeypatch: pytest.MonkeyPatch, name: str, precision: Any) -> None:
    monkeypatch.setattr(compile, "_COMPILER", "aot_eager")
    torch._dynamo.reset()
    counters.clear()
    width = {} if name.startswith("lstm") else {"heads": 2}
    config = preset(name, **SMALL, **width)
    tokens = torch.randint(0, 61, (4, 13), generator=torch.Generator().manual_seed(0))
    ids, targets = tokens[:, :-1], tokens[:, 1:].clone()
    if config.is_masked:
        targets[:, ::2] = IGNORE
    weights = (targets != IGNORE).float()
    batch = TokenBatch(ids, targets, weights / weights.sum())
    settings = TrainConfig(steps=5, precision=precision, dropout=config.dropout)
    trainer = Trainer(build_model(config, seed=3), masked if config.is_masked else l1(), settings)
    notes: list[str] = []
    compile_checked(trainer, [batch], "on", notes.append)
    assert notes == ["compiled: the first batch gives the eager loss"]
    for _ in range(2):
        assert trainer.update([batch]).loss > 0
    modes = 0 if name.startswith("lstm") else 2 if config.dropout else 1  # with and without dropout
    loss = 0 if trainer.backend.native else 1  # a native kernel computes it
    assert counters["stats"]["unique_graphs"] == modes + loss
    assert not counters["graph_break"]


def test_the_loss_gradient_is_one_graph_for_all_full_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    from headwater.model import loss
    from headwater.model.backend import Backend

    monkeypatch.setattr(loss, "_CHUNK_BYTES", 16 * 61 * 4)  # 16 positions a chunk
    torch._dynamo.reset()
    counters.clear()
    generator = torch.Generator().manual_seed(1)
    hidden, matrix = (torch.randn(n, 8, generator=generator, requires_grad=True) for n in (64, 61))
    targets, weights = torch.randint(0, 61, (64,), generator=generator), torch.rand(64, generator=generator)
    expected = loss.cross_entropy_plainly(hidden, matrix, targets, weights)
    wanted = torch.autograd.grad(expected, (hidden, matrix))
    found = loss.cross_entropy(hidden, matrix, targets, weights, Backend(compiler="aot_eager"))
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found, (hidden, matrix)), wanted)
    assert counters["stats"]["unique_graphs"] == 1
