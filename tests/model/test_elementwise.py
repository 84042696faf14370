"""Each compiled piece gives what its twin in torch gives, forward and backward, whatever the shape."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from headwater import native
from headwater.model import Backend, default_backend
from headwater.model.attention import attend_in_blocks, attend_plainly

LENGTHS = st.sampled_from([1, 2, 15, 16, 17, 33, 300, 4096, 5000])
BACKEND = Backend(native=True)
DTYPES = st.sampled_from([torch.float32, torch.bfloat16])


@pytest.fixture(autouse=True)
def _native() -> None:
    if native.kernels() is None:
        pytest.skip("no compiler: everything runs in torch")


def results(function: Callable[..., Tensor], *operands: Tensor) -> list[Tensor]:
    operands = tuple(operand.detach().clone().requires_grad_() for operand in operands)
    output = function(*operands)
    weights = torch.linspace(-1, 2, output.numel(), dtype=output.dtype).view(output.shape)
    return [output.detach(), *torch.autograd.grad((output * weights).sum(), operands)]


def assert_close(got: list[Tensor], expected: list[Tensor], dtype: torch.dtype = torch.float32) -> None:
    """To 1e-5 of the largest and 1e-6 where terms cancel, or to a rounding of bfloat16."""
    for a, b in zip(got, expected, strict=True):
        assert a.dtype == b.dtype
        tolerance = 1e-5 if dtype == torch.float32 else 2**-7
        assert (a.double() - b.double()).abs().max() <= tolerance * b.double().abs().max() + 1e-6


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@settings(max_examples=20, deadline=None)
@given(length=LENGTHS, dtype=DTYPES, scale=st.sampled_from([1.0, 30.0]), seed=st.integers(0, 99))
def test_gelu(length: int, dtype: torch.dtype, scale: float, seed: int) -> None:
    x = (scale * drawn(seed, length)).to(dtype)
    got = results(lambda x: BACKEND.activate(x, "gelu-tanh"), x)
    assert_close(got, results(lambda x: functional.gelu(x, approximate="tanh"), x), dtype)


@settings(max_examples=20, deadline=None)
@given(
    rows=st.sampled_from([1, 2, 31, 70]),
    width=st.sampled_from([15, 16, 17, 33, 300]),
    dtype=DTYPES,
    seed=st.integers(0, 99),
)
def test_norm(rows: int, width: int, dtype: torch.dtype, seed: int) -> None:
    x, gain, bias = 3 + drawn(seed, 2, rows, width), 1 + drawn(seed + 1, width), drawn(seed + 2, width)

    def plain(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
        return functional.layer_norm(x, (width,), gain, bias, 1e-3).to(dtype)

    got = results(lambda *operands: BACKEND.norm(*operands, 1e-3, dtype), x, gain, bias)
    assert_close(got, results(plain, x, gain, bias), dtype)


@settings(max_examples=10, deadline=None)
@given(length=LENGTHS, seed=st.integers(0, 99))
def test_the_sum_with_the_residual_stream(length: int, seed: int) -> None:
    x, branch = drawn(seed, 3, length).t(), drawn(seed + 1, length, 3).bfloat16()
    got, expected = results(BACKEND.add, x, branch), results(torch.add, x, branch)
    assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


@settings(max_examples=20, deadline=None)
@given(
    time=st.sampled_from([2, 3, 127, 128, 129, 300]), head_dim=st.sampled_from([1, 5, 64]), seed=st.integers(0, 99)
)
def test_the_softmax_of_attention(time: int, head_dim: int, seed: int) -> None:
    operands = [drawn(seed + number, 2, 2, time, head_dim) for number in range(3)]
    got = results(lambda *operands: attend_in_blocks(*operands, kernels=native.kernels()), *operands)
    assert_close(got, results(attend_plainly, *operands))


@settings(max_examples=20, deadline=None)
@given(rows=st.integers(1, 40), vocabulary=st.integers(1, 90), dtype=DTYPES, seed=st.integers(0, 99))
def test_the_gradient_of_the_loss(rows: int, vocabulary: int, dtype: torch.dtype, seed: int) -> None:
    logits = (20 * drawn(seed, rows, vocabulary)).to(dtype)
    targets = torch.randint(0, vocabulary, (rows,), generator=torch.Generator().manual_seed(seed))
    weights = drawn(seed + 1, rows).abs()
    exact = logits.double().requires_grad_()
    expected = (functional.cross_entropy(exact, targets, reduction="none") * weights).sum()
    (gradient,) = torch.autograd.grad(expected, exact)
    padded = torch.full((rows, vocabulary + 3), 7.0, dtype=dtype)
    padded[:, :vocabulary] = logits
    loss = native.kernels().loss_gradient_(padded[:, :vocabulary], targets, weights)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5, abs=1e-6)
    assert_close([padded[:, :vocabulary].float()], [gradient.float()], dtype)
    assert (padded[:, vocabulary:] == 7).all()  # nothing is written next to it


def test_what_is_not_a_number_stays_so() -> None:
    for position in (0, 20):
        x = torch.zeros(1, 21)
        x[0, position] = float("nan")
        assert BACKEND.activate(x, "gelu-tanh")[0, position].isnan()
        assert BACKEND.activate(x.bfloat16(), "gelu-tanh")[0, position].isnan()
        assert native.kernels().loss_gradient_(x.clone(), torch.tensor([3]), torch.ones(1)).isnan()
        assert BACKEND.norm(x, torch.ones(21), torch.zeros(21), 1e-5, torch.float32).isnan().all()
        assert native.kernels().sum_of_squares(x).isnan()


def test_results_do_not_depend_on_the_threads() -> None:
    x, gain, bias = drawn(1, 70, 300), drawn(2, 300), drawn(3, 300)
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append(
                [
                    *results(lambda *operands: BACKEND.norm(*operands, 1e-5, torch.bfloat16), x, gain, bias),
                    *results(lambda x: BACKEND.activate(x, "gelu-tanh"), x),
                    native.kernels().sum_of_squares(x),
                ]
            )
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_without_native_kernels_everything_runs_in_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "kernels", lambda: None)
    assert not default_backend.__wrapped__().native
