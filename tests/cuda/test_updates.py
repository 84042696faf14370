"""Updates on a CUDA device without data: CUDA has every kernel that they need, and the host waits once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from headwater.finetuning import Encoded, ExampleSampler, TaskModel, TaskName
from headwater.finetuning.model.heads import l3
from headwater.model import IGNORE, PRESETS, ModelConfig, build_model, preset
from headwater.pretraining import TokenBatch, l1, masked
from headwater.training import Ranks, TrainConfig, Trainer
from headwater_papers.relatives.bilstm import both_directions
from headwater_papers.relatives.frozen import FrozenTaskModel
from headwater_papers.scale import load_scale

TRANSFORMERS = ("gpt1", "gpt2-small", "gpt2-medium", "gpt2-large", "gpt2-xl", "bert-base", "bert-large")
RECURRENT: dict[str, dict[str, int]] = {"lstm": {"layers": 1}, "bilstm-mini": {"layers": 2}}
# Frozen bases, which the papers' task model reads.
FROZEN = {f"frozen {name}": name for name in ("gpt1", "bert-base", "bilstm-mini")}
ALIGNMENT = 16  # bytes
# Every preset, and the models of the scales that need a GPU.
preset("bilstm-mini")  # registers those of headwater-papers
SHAPES = {name: preset(name) for name in PRESETS} | {
    f"{scale}, {name}": preset(plan.recipe["preset"], **plan.recipe.get("model", {}))
    for scale in ("small", "paper")
    for name, plan in load_scale(scale).models.items()
}
OUTPUTS: dict[TaskName, int] = {"classify": 2, "entail": 3, "similarity": 2, "choice": 1}
TASKS = tuple(OUTPUTS)
BASES = ("gpt1", "gpt2-small", "bert-base", *RECURRENT, *FROZEN)
SETTINGS = (("bf16", 0.1), ("fp32", 0.1), ("bf16", 0.0), ("fp32", 0.0))


def slow_unless(fast: bool, *values: Any) -> Any:
    """The values as one case of a test, which runs in `make test-all` only unless it is a fast one."""
    return pytest.param(*values, marks=() if fast else pytest.mark.slow)


# Each base with each task in bf16 with dropout, and with each other setting in one task. GPT-1 with each task and
# each other base with one task is enough to see an operator that a GPU lacks.
FINE_TUNED = [
    slow_unless(base == "gpt1" or first % len(TASKS) == place, base, task, "bf16", 0.1)
    for first, base in enumerate(BASES)
    for place, task in enumerate(TASKS)
] + [
    slow_unless(first % len(SETTINGS[1:]) == place, base, TASKS[(first + place) % len(TASKS)], precision, dropout)
    for first, base in enumerate(BASES)
    for place, (precision, dropout) in enumerate(SETTINGS[1:])
]
# Larger shapes run the same operators.
UPDATED = [
    slow_unless(
        name in ("gpt1", "gpt2-small", "bert-base", *RECURRENT) and setting in (("bf16", 0.1), ("fp32", 0.0)),
        name,
        *setting,
    )
    for name in (*TRANSFORMERS, *RECURRENT)
    for setting in SETTINGS
]


def batch(context: int, config: ModelConfig) -> TokenBatch:
    """A batch as a sampler makes it, on the CPU."""
    ids = torch.zeros(256 // context, context, dtype=torch.int64)
    targets = ids.clone()
    if config.is_masked:
        targets[:, ::2] = IGNORE
    return TokenBatch(ids, targets, torch.ones(ids.shape))


@pytest.mark.parametrize(("name", "precision", "dropout"), UPDATED)
def test_an_update_is_one_that_a_gpu_takes(
    fake_cuda: Any, on_device: Any, device: torch.device, name: str, precision: Any, dropout: float
) -> None:
    # Every block does the same, and so does every position.
    changes = RECURRENT.get(name, {"layers": 2})
    context = 8 if name in RECURRENT else 64
    config = preset(name, context=context, dropout=dropout, **changes)
    model = build_model(config, device="meta")
    settings = TrainConfig(steps=5, precision=precision, dropout=dropout)
    objective = masked if config.is_masked else both_directions if name == "bilstm-mini" else l1
    batches = [batch(context, config) for _ in range(2)]
    with fake_cuda() as contract:
        trainer = Trainer(on_device(model), objective, settings, ranks=Ranks(device=device))
        moved = [part.to(device) for part in batches]
        assert not contract.waits
        contract.operators.clear()
        trainer.update(moved)
    assert contract.waits == ["tolist"]
    assert contract.operators["_fused_adamw_"] == 2  # matrices; gains and biases
    assert {master.dtype for master in trainer.optimizer.masters} == {torch.float32}
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    assert {p.dtype for p in trainer.optimizer.parameters if p.dim() >= 2} == {dtype}
    kernel = "flash" if precision == "bf16" else "efficient"
    attentions = 0 if config.is_recurrent else 2 * config.layers
    assert contract.operators[f"_scaled_dot_product_{kernel}_attention"] == attentions


@pytest.mark.parametrize("name", SHAPES)
def test_rows_of_every_matrix_are_aligned_in_bfloat16(name: str) -> None:
    config = SHAPES[name]
    for part in build_model(config, device="meta").modules():
        for key, matrix in part.named_parameters(recurse=False):
            # The number of an embedding's rows does not matter: matmuls with it are padded.
            sizes = matrix.shape[1:] if isinstance(part, torch.nn.Embedding) else matrix.shape
            for size in sizes if matrix.dim() > 1 else ():
                assert size * torch.bfloat16.itemsize % ALIGNMENT == 0, f"{key} {tuple(matrix.shape)}"


@pytest.mark.parametrize(("base", "task", "precision", "dropout"), FINE_TUNED)
def test_a_fine_tuning_update_is_one_that_a_gpu_takes(
    fake_cuda: Any, on_device: Any, device: torch.device, base: str, task: TaskName, precision: Any, dropout: float
) -> None:
    name = FROZEN.get(base, base)
    config = preset(name, context=32, dropout=dropout, **RECURRENT.get(name, {"layers": 2}))
    random, each = np.random.default_rng(1), 3 if task == "choice" else 2 if task == "similarity" else 1
    recurrent = name in RECURRENT or base in FROZEN  # each position is an operator of its own
    lengths = random.integers(3, 5 if recurrent else 30, 4 * each)
    encoded = Encoded(
        random.integers(0, 40, lengths.sum()).astype(np.int32),
        np.concatenate([[0], np.cumsum(lengths)]),
        np.arange(0, 4 * each + 1, each),
        np.zeros(4),
    )
    targets = np.full((4, 3 if task == "choice" else OUTPUTS[task]), 0.5, dtype=np.float32)
    batches = ExampleSampler(encoded, targets, batch_size=4, seed=1, micro_batch=2 * each).micro_batches(0)
    plain = build_model(config, device="meta")
    if base in FROZEN:
        model: TaskModel = FrozenTaskModel(plain, task, OUTPUTS[task], delimiter=5, dropout=dropout)
    else:
        model = TaskModel(plain, task, OUTPUTS[task], dropout=dropout)
    lambda_lm = 0.5 if base in ("gpt1", "gpt2-small", "lstm") else 0.0
    with fake_cuda(masks=config.is_masked) as contract:
        settings = TrainConfig(steps=5, precision=precision, dropout=dropout)
        trainer = Trainer(on_device(model), l3(lambda_lm), settings, ranks=Ranks(device=device))
        moved = [part.to(device) for part in batches]
        assert not contract.waits
        trainer.update(moved)
        assert contract.waits == ["tolist"]
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        assert {master.dtype for master in trainer.optimizer.masters} == {torch.float32}
        assert {p.dtype for p in trainer.optimizer.parameters if p.dim() >= 2} == {dtype}
        with torch.no_grad():
            trainer.model.eval()
            assert trainer.model(moved[0]).logits.shape == targets[:2].shape
        assert contract.waits == ["tolist"]


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("torch.nn.functional.layer_norm(x, (8,), gain.bfloat16(), gain.bfloat16())", "mixes"),
        ("torch.ops.aten.mm(x, x.bfloat16())", "mixes"),
        ("torch.ops.aten.addmm(gain.bfloat16(), x, x)", "mixes"),
        ("lstm(x.bfloat16())", "LSTM"),
        ("torch.mm(wide[:, :1001], wide[:, :1001].t())", "strides"),
        ("torch.mm(wide[:, 1:1001], wide[:, :1000].t())", "strides"),
        ("x + torch.ones(8, device='cpu')", "cpu"),
        ("torch.ops.mkldnn._linear_pointwise(x, x, None, 'none', [], '')", "no CUDA kernel"),
        ("attend(x, x, x, x > 0)", "mask"),
        ("attend(x.mT, x.mT, x.mT)", "strides"),
    ],
)
def test_the_contract_refuses_what_cuda_would(
    fake_cuda: Any, device: torch.device, broken: str, said: str
) -> None:
    with fake_cuda(), pytest.raises((AssertionError, RuntimeError), match=said):
        x, gain = torch.ones(8, 8, device=device), torch.ones(8, device=device)
        wide = torch.ones(256, 1004, device=device, dtype=torch.bfloat16)
        attend = torch.nn.functional.scaled_dot_product_attention
        lstm = torch.nn.LSTM(8, 8, device=device, dtype=torch.bfloat16)
        lstm.bias_ih_l0 = torch.nn.Parameter(gain.repeat(4))
        names = {"x": x[None, None] if "attend" in broken else x, "gain": gain, "wide": wide, "attend": attend}
        eval(broken, {"torch": torch, "lstm": lstm, **names})


@pytest.mark.parametrize(
    "wait", ["x.sum().item()", "x.nonzero()", "x[x > 0]", "x.cpu()", "x.tolist()", "bool(x.any())"]
)
def test_the_contract_counts_waits(fake_cuda: Any, device: torch.device, wait: str) -> None:
    with fake_cuda() as contract:
        x = torch.ones(8, device=device)
        eval(wait, {"x": x})
    assert len(contract.waits) == 1
