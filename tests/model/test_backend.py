"""Each backend gives what torch gives, forward and backward, and a model keeps to the backend that it holds."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from headwater.device import processor_vendor
from headwater.inference.backends import choose_precision as chosen_precision
from headwater.model import Backend, build_model, cross_entropy, default_backend, preset
from headwater.model.attention import attend_plainly
from headwater.model.backend import TORCH
from headwater.model.loss import cross_entropy_plainly
from headwater.pretraining import TokenBatch, l1
from headwater.training import TrainConfig, Trainer, compute_dtype

CPU = torch.device("cpu")


def results(function: Callable[..., Tensor], *operands: Tensor) -> list[Tensor]:
    operands = tuple(operand.detach().clone().requires_grad_() for operand in operands)
    output = function(*operands)
    weights = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view(output.shape)
    return [output.detach(), *torch.autograd.grad((output * weights).sum(), operands)]


def assert_close(got: list[Tensor], expected: list[Tensor], tolerance: float = 1e-5) -> None:
    for a, b in zip(got, expected, strict=True):
        assert (a - b).abs().max() <= tolerance * b.abs().max() + 1e-7


@pytest.mark.parametrize("time", [7, 257])
def test_full_attention_of_short_and_long_texts(time: int) -> None:
    operands = torch.randn(3, 2, 4, time, 16, generator=torch.Generator().manual_seed(0)).bfloat16().unbind()
    mask = (torch.arange(time) < torch.tensor([[time], [time - 3]]))[:, None, None, :]

    def attend(*qkv: Tensor) -> Tensor:
        return Backend().attend(*qkv, mask, causal=False)

    expected = results(lambda *qkv: attend_plainly(*qkv, mask), *(operand.float() for operand in operands))
    assert_close(results(attend, *operands), expected, tolerance=2e-2)


@settings(max_examples=20, deadline=None)
@given(rows=st.integers(1, 70), inner=st.integers(1, 90), columns=st.integers(1, 70), seed=st.integers(0, 99))
def test_products_through_onednn(rows: int, inner: int, columns: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    shapes = ((2, rows, inner), (columns, inner), (columns,))
    operands = [torch.randn(shape, generator=generator) for shape in shapes]
    got = results(Backend(matmul="onednn").linear, *operands)
    assert_close(got, results(functional.linear, *operands))


@pytest.mark.parametrize("backend", [Backend("onednn"), Backend(native=True)])
@pytest.mark.parametrize("name", ["gpt2-pico", "gpt1-nano"])
def test_a_whole_model_on_each_backend(name: str, backend: Backend) -> None:
    if backend.native and not default_backend().native:
        pytest.skip("the native kernels are not built here")
    model = build_model(preset(name, vocabulary=301, context=150, width=48, heads=3, dropout=0.0), seed=2)
    ids = torch.randint(0, 301, (3, 150), generator=torch.Generator().manual_seed(0))

    def gradients(loss: Callable[..., Tensor], backend: Backend) -> list[Tensor]:
        backend.assign_to(model)
        hidden = model.hidden(ids[:, :-1]).flatten(0, 1)
        targets = ids[:, 1:].flatten()
        value = loss(hidden, model.output_matrix(), targets, torch.full(targets.shape, 1 / len(targets)))
        return [value.detach(), *torch.autograd.grad(value, list(model.parameters()), materialize_grads=True)]

    expected = gradients(cross_entropy_plainly, TORCH)
    got = gradients(lambda *operands: cross_entropy(*operands, backend), backend)
    for (name, _), a, b in zip([("loss", None), *model.named_parameters()], got, expected, strict=True):
        if name.endswith("query_key_value.bias"):  # the keys' part has no gradient but rounding
            a, b = a.view(3, -1)[[0, 2]], b.view(3, -1)[[0, 2]]
        assert (a - b).abs().max() <= 2e-5 * b.abs().max(), name


def test_training_one_model_leaves_anothers_logits_bit_equal() -> None:
    ids = torch.randint(0, 300, (2, 40), generator=torch.Generator().manual_seed(0))
    bystander = build_model(preset("gpt2-pico", vocabulary=300, context=40), seed=1).eval()
    before = bystander(ids)
    for backend in (TORCH, Backend("onednn"), None):
        model = build_model(preset("gpt2-pico", vocabulary=300, context=40), seed=2)
        trainer = Trainer(model, l1, TrainConfig(steps=2, precision="bf16"), backend=backend)
        trainer.update([TokenBatch(ids, ids, torch.full(ids.shape, 1 / ids.numel()))])
        assert model.backend == (backend or default_backend())
        assert torch.equal(bystander(ids), before)
        assert bystander.backend == default_backend()


def test_a_copy_of_a_model_computes_as_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = torch.arange(30)[None]
    model = build_model(preset("gpt2-pico", vocabulary=64, context=40), seed=1).eval()
    TORCH.assign_to(model)
    twin = copy.deepcopy(model)
    assert twin.backend == TORCH
    assert torch.equal(twin(ids), model(ids))


def test_no_clock_is_read_where_the_arithmetic_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object) -> float:
        raise AssertionError("a clock was read")

    for clock in ("perf_counter", "perf_counter_ns", "monotonic", "process_time", "process_time_ns", "time"):
        monkeypatch.setattr(time, clock, read)
    default_backend.cache_clear()
    processor_vendor.cache_clear()
    model = build_model(preset("gpt2-pico", vocabulary=64, context=40), seed=1)
    Trainer(model, l1, TrainConfig(steps=2))
    assert compute_dtype("auto", CPU) == compute_dtype("auto", CPU)
    assert chosen_precision("auto", preset("gpt2-small"), CPU) == chosen_precision(
        "auto", preset("gpt2-small"), CPU
    )


@pytest.mark.parametrize(
    ("vendor", "matmul"), [("AuthenticAMD", "onednn"), ("GenuineIntel", "torch"), ("", "torch")]
)
def test_the_rule_for_float32_products(vendor: str, matmul: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.model.backend.processor_vendor", lambda: vendor)
    monkeypatch.setattr("sys.platform", "linux")
    assert default_backend.__wrapped__().matmul == matmul
