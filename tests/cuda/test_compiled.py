"""Compilation without graph breaks and with one graph for all blocks."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch._dynamo.utils import counters

from headwater.finetuning import Batch, Encoded, ExampleSampler, TaskModel
from headwater.finetuning.model.batches import inference_batches
from headwater.finetuning.model.heads import l3
from headwater.model import IGNORE, build_model, preset
from headwater.pretraining import TokenBatch, l1, masked
from headwater.training import TrainConfig, Trainer
from headwater.training import trainer as trainer_module

DELIMITER = 5
SMALL: dict[str, Any] = {"vocabulary": 61, "context": 12, "width": 32}


@pytest.mark.filterwarnings("ignore:The .grad attribute")
@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("gpt2-pico", "bf16"),
        ("bert-nano", "fp32"),
        ("lstm-nano", "bf16"),
        *(
            pytest.param(name, precision, marks=pytest.mark.slow)
            for name, precision in (
                ("gpt2-pico", "fp32"),
                ("gpt1-nano", "fp32"),
                ("gpt1-nano", "bf16"),
                ("bert-nano", "bf16"),
                ("lstm-nano", "fp32"),
            )
        ),
    ],
)
def test_one_graph_serves_every_block(monkeypatch: pytest.MonkeyPatch, name: str, precision: Any) -> None:
    monkeypatch.setattr(trainer_module, "_COMPILER", "aot_eager")
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
    trainer = Trainer(build_model(config, seed=3), masked if config.is_masked else l1, settings)
    notes: list[str] = []
    trainer.compile_blocks(batch, "on", notes.append)
    assert notes == ["compiled"]
    for _ in range(2):
        assert trainer.update([batch]).loss > 0
    blocks = 0 if name.startswith("lstm") else 1
    loss = 0 if trainer.backend.native else 1  # a native kernel computes it
    assert counters["stats"]["unique_graphs"] == blocks + loss
    assert not counters["graph_break"]


def fine_tuning(name: str, **changes: Any) -> tuple[Trainer, list[list[Batch]], list[Batch]]:
    """A task model's trainer, its updates of pairs of different lengths, and the batches of a validation."""
    random = np.random.default_rng(1)
    lengths = random.integers(3, 30, 24)
    ends = np.cumsum(lengths)
    ids = random.integers(10, 40, ends[-1]).astype(np.int32)
    ids[ends - lengths + 1] = DELIMITER
    encoded = Encoded(ids, np.concatenate([[0], ends]), np.arange(25), np.zeros(24))
    targets = np.full((24, 2), 0.5, dtype=np.float32)
    shape: dict[str, Any] = {"vocabulary": 61, "context": 40, "width": 32, "heads": 2, "layers": 3}
    config = preset(name, **shape | changes)
    model = TaskModel(build_model(config, seed=3), "entail", 2, dropout=0.0, delimiter=DELIMITER)
    settings = TrainConfig(steps=5, precision="fp32", dropout=config.dropout)
    sampler = ExampleSampler(encoded, targets, batch_size=6, seed=1, micro_batch=3)
    trainer = Trainer(model, l3(0.0 if config.is_masked else 0.5), settings)
    validation = [batch for _, batch in inference_batches(encoded, targets)]
    return trainer, [sampler.micro_batches(step) for step in range(4)], validation


@pytest.mark.filterwarnings("ignore:The .grad attribute")
@pytest.mark.parametrize(
    ("name", "dropout"),
    [
        ("bert-nano", 0.0),
        pytest.param("gpt1-nano", 0.0, marks=pytest.mark.slow),
        pytest.param("bert-nano", 0.1, marks=pytest.mark.slow),
        pytest.param("gpt2-pico", 0.1, marks=pytest.mark.slow),
    ],
)
def test_one_graph_serves_every_block_and_length_of_fine_tuning(
    monkeypatch: pytest.MonkeyPatch, name: str, dropout: float
) -> None:
    """BERT's blocks have a key mask, from the lengths; its pairs have segments."""
    monkeypatch.setattr(trainer_module, "_COMPILER", "aot_eager")
    torch._dynamo.reset()
    changes = {"dropout": dropout, "segments": 2 if name.startswith("bert") else 0}
    (eager, updates, validation), (trainer, _, _) = fine_tuning(name, **changes), fine_tuning(name, **changes)
    shapes = {batch.ids.shape for update in updates for batch in update}
    assert len(shapes) > 4
    counters.clear()
    notes: list[str] = []
    trainer.compile_blocks(updates[0][0], "on", notes.append, dynamic=True)
    assert notes == ["compiled"]
    for update in updates:
        losses = [one.update(update).loss for one in (trainer, eager)]
        assert losses[0] == pytest.approx(losses[1], rel=0.2 if dropout else 1e-5)  # other masks
    trainer.model.eval()
    with torch.no_grad():
        for batch in validation:
            assert trainer.model(batch).logits.isfinite().all()
    assert counters["stats"]["unique_graphs"] == 2  # with gradients, and without
    assert not counters["graph_break"]


@pytest.mark.filterwarnings("ignore:The .grad attribute")
def test_a_second_training_in_a_process_is_compiled_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer_module, "_COMPILER", "eager")
    torch._dynamo.reset()
    with torch._dynamo.config.patch(recompile_limit=1):
        for width in (32, 48):
            trainer, updates, _ = fine_tuning("gpt2-pico", width=width)
            notes: list[str] = []
            trainer.compile_blocks(updates[0][0], "on", notes.append, dynamic=True)
            assert notes == ["compiled"]
            assert trainer.update(updates[1]).loss > 0
            trainer.compute_eagerly()
            pickle.dumps(trainer.model)


def test_the_loss_gradient_is_one_graph_for_all_full_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    from headwater.model import Backend, loss

    monkeypatch.setattr(loss, "_DEVICE_CHUNK_BYTES", 16 * 61 * 4)  # 16 positions a chunk
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


def test_many_models_of_a_process_share_no_limit_of_compilations(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch compiles one code object at most eight times; logits of each dtype and vocabulary have their own."""
    from headwater.model import Backend, loss

    monkeypatch.setattr(loss, "_DEVICE_CHUNK_BYTES", 16 * 61 * 4)
    torch._dynamo.reset()
    generator = torch.Generator().manual_seed(1)
    for vocabulary in range(61, 67):
        for dtype in (torch.float32, torch.bfloat16):
            for positions in (16, 40, 9):
                hidden, matrix = (
                    torch.randn(n, 8, generator=generator).to(dtype) for n in (positions, vocabulary)
                )
                targets = torch.randint(0, vocabulary, (positions,), generator=generator)
                weights = torch.rand(positions, generator=generator)
                found = loss.cross_entropy(
                    hidden.requires_grad_(), matrix, targets, weights, Backend(compiler="eager")
                )
                torch.testing.assert_close(
                    found, loss.cross_entropy_plainly(hidden, matrix, targets, weights), rtol=2e-2, atol=1e-2
                )
