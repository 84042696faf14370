"""The dry run's estimate against the memory of an update, counted tensor by tensor on a device without data."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from headwater.model import build_model, preset
from headwater.pretraining import TokenBatch, l1
from headwater.pretraining.cost import estimate_memory
from headwater.training import Ranks, TrainConfig, Trainer


@pytest.mark.parametrize(
    ("name", "sequences", "precision", "recompute"),
    [
        ("gpt2-small", 8, "bf16", False),
        pytest.param("gpt2-small", 4, "fp32", False, marks=pytest.mark.slow),
        pytest.param("gpt2-small", 16, "bf16", True, marks=pytest.mark.slow),
        pytest.param("gpt1", 16, "bf16", False, marks=pytest.mark.slow),
    ],
)
def test_the_estimate_is_within_a_tenth_of_the_peak(
    fake_cuda: Any,
    on_device: Any,
    device: torch.device,
    name: str,
    sequences: int,
    precision: Any,
    recompute: bool,
) -> None:
    config = preset(name)
    ids = torch.zeros(sequences, config.context, dtype=torch.int64)
    batch = TokenBatch(ids, ids, torch.ones(ids.shape))
    settings = TrainConfig(steps=5, precision=precision, dropout=config.dropout)
    model = build_model(config, device="meta")
    with fake_cuda() as contract:
        trainer = Trainer(on_device(model), l1, settings, ranks=Ranks(device=device), recompute=recompute)
        moved = batch.to(device)
        estimate = estimate_memory(trainer, moved, sequences)
        trainer.update([moved.first(1)])  # makes the moments
        contract.peak = contract.held
        trainer.update([moved, moved])
    assert sum(estimate) == pytest.approx(contract.peak, rel=0.1), estimate
