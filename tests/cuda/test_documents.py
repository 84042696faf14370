"""Attention within documents: FlexAttention's blocks give what the mask gives, and a GPU can compute them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters
from torch.nn.attention import flex_attention

from headwater.model import attend, build_model, document_mask, loss, preset
from headwater.model.backend import TORCH
from headwater.pretraining import TokenBatch, l1, objectives
from headwater.training import Ranks, TrainConfig, Trainer, compile, compile_checked

END = 7


@pytest.fixture
def trains_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU torch only refuses to train with FlexAttention; its readable implementation has a gradient."""
    monkeypatch.setattr(flex_attention, "_validate_device", lambda *_: None)
    monkeypatch.setattr(compile, "_COMPILER", "aot_eager")
    torch._dynamo.reset()
    counters.clear()


@pytest.mark.usefixtures("trains_on_a_cpu")
def test_blocks_give_what_the_mask_gives_and_are_compiled_once() -> None:
    generator = torch.Generator().manual_seed(0)
    in_blocks = torch.compile(attend, backend="aot_eager", fullgraph=True)
    for _ in range(3):  # the time is not a multiple of a block
        ids = torch.randint(0, 60, (2, 300), generator=generator)
        ids[0, 20:170] = 1  # a document over a whole block
        inputs = [torch.randn(2, 3, 300, 16, generator=generator, requires_grad=True) for _ in range(3)]
        query, key, value = inputs
        expected = attend(query, key, value, document_mask(ids, END))
        got = in_blocks(query, key, value, document_mask(ids, END, blocks=True))
        torch.testing.assert_close(got, expected)
        upstream = torch.randn(expected.shape, generator=generator)
        wanted = torch.autograd.grad(expected, inputs, upstream)
        torch.testing.assert_close(torch.autograd.grad(got, inputs, upstream), wanted)
    assert counters["stats"]["unique_graphs"] == 1


@pytest.mark.usefixtures("trains_on_a_cpu")
@pytest.mark.filterwarnings("ignore:The .grad attribute")
@pytest.mark.parametrize("recompute", ["full", pytest.param("none", marks=pytest.mark.slow)])
def test_a_compiled_run_trains_in_blocks(monkeypatch: pytest.MonkeyPatch, recompute: Any) -> None:
    def as_on_cuda(ids: torch.Tensor, end_of_text: int, *, blocks: bool) -> Any:
        made.append(model.backend.compiler is not None)
        return document_mask(ids, end_of_text, blocks=made[-1])

    made: list[bool] = []
    monkeypatch.setattr(objectives, "document_mask", as_on_cuda)
    tokens = torch.randint(0, 61, (4, 141), generator=torch.Generator().manual_seed(0))
    batch = TokenBatch(tokens[:, :-1], tokens[:, 1:], torch.full((4, 140), 1 / 560))
    notes: list[str] = []
    losses = []
    for mode in ("off", "on"):
        model = build_model(preset("gpt2-pico", vocabulary=61, context=140, width=32), seed=3)
        settings = TrainConfig(steps=5, precision="fp32")
        trainer = Trainer(model, l1(END), settings, recompute=recompute)
        compile_checked(trainer, [batch], mode, notes.append)
        losses.append([trainer.update([batch]).loss for _ in range(3)])
    assert notes == ["compiled: the first batch gives the eager loss"]
    assert (made[0], made[-1]) == (False, True)
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert not counters["graph_break"]


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_an_update_within_documents_is_one_that_a_gpu_takes(
    fake_cuda: Any,
    on_device: Any,
    device: torch.device,
    monkeypatch: pytest.MonkeyPatch,
    precision: Any,
    dropout: float,
) -> None:
    monkeypatch.setattr(loss, "_gradient_by", lambda compiler: loss._softmax_gradient_)
    model = build_model(preset("gpt2-small", layers=2, context=256, dropout=dropout), device="meta")
    ids = torch.zeros(2, 256, dtype=torch.int64)
    batch = TokenBatch(ids, ids, torch.ones(ids.shape))
    with fake_cuda(masks=dropout > 0) as contract:  # FlexAttention has no dropout
        settings = TrainConfig(steps=5, precision=precision, dropout=dropout)
        backend = replace(TORCH, compiler="inductor")
        ranks = Ranks(device=device)
        trainer = Trainer(on_device(model), l1(END), settings, ranks=ranks, backend=backend)
        trainer.update([batch.to(device)])
    assert contract.waits == ["tolist"]
    assert contract.operators["flex_attention"] == (0 if dropout else 2)
