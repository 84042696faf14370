"""The chunked loss equals the plain one, forward and backward, and never holds the logits."""

from __future__ import annotations

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headwater.model import IGNORE, cross_entropy, loss, project
from headwater.model.loss import cross_entropy_plainly


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of 16 positions, so that small inputs have many and a last one that is not full."""
    monkeypatch.setattr(loss, "_CHUNK_BYTES", 1)
    monkeypatch.setattr(loss, "_SOFTMAX_BYTES", 1)


def inputs(
    positions: int, vocabulary: int, width: int, seed: int, ignored: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(positions, width, generator=generator)
    matrix = torch.randn(vocabulary, width, generator=generator)
    targets = torch.randint(0, vocabulary, (positions,), generator=generator)
    targets[torch.rand(positions, generator=generator) < ignored] = IGNORE
    weights = torch.rand(positions, generator=generator)
    return hidden.requires_grad_(), matrix.requires_grad_(), targets, weights


def results(function, hidden, matrix, targets, weights, factor=1.0):  # type: ignore[no-untyped-def]
    value = function(hidden, matrix, targets, weights) * factor
    return [value.detach(), *torch.autograd.grad(value, (hidden, matrix))]


@pytest.mark.parametrize("chunked", [False, True])
@given(
    positions=st.integers(0, 70),
    vocabulary=st.integers(2, 90),
    width=st.integers(1, 20),
    ignored=st.sampled_from([0.0, 0.3, 1.0]),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=40, deadline=None)
@example(positions=70, vocabulary=2, width=1, ignored=0.0, seed=2)  # rows that nearly cancel
def test_loss_and_gradients_equal_the_plain_ones(
    chunked: bool, positions: int, vocabulary: int, width: int, ignored: float, seed: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if chunked:
            patch.setattr(loss, "_CHUNK_BYTES", 1)
            patch.setattr(loss, "_SOFTMAX_BYTES", 1)
        given_inputs = inputs(positions, vocabulary, width, seed, ignored)
        fast = results(cross_entropy, *given_inputs, factor=3.0)
        plain = results(cross_entropy_plainly, *given_inputs, factor=3.0)
    hidden, matrix = (tensor.detach() for tensor in given_inputs[:2])
    # Terms of this size may cancel in a gradient, and each is rounded.
    for value, expected, terms in zip(fast, plain, (plain[0], 3.0 * matrix, 3.0 * hidden), strict=True):
        sizes = [tensor.abs().max().item() if tensor.numel() else 0.0 for tensor in (expected, terms)]
        atol = max(1e-5 * sizes[0], 1e-6 * sizes[1], 1e-35)
        torch.testing.assert_close(value, expected, atol=atol, rtol=1e-5)


@pytest.mark.usefixtures("small_chunks")
def test_bfloat16_matrices_get_gradients_as_good_as_plain_ones() -> None:
    hidden, matrix, targets, weights = inputs(100, 300, 64, 1, 0.2)
    exact = results(cross_entropy_plainly, hidden, matrix, targets, weights)
    half = [tensor.detach().bfloat16().requires_grad_() for tensor in (hidden, matrix)]
    fast = results(cross_entropy, *half, targets, weights)
    plain = results(cross_entropy_plainly, *half, targets, weights)
    for ours, theirs, reference in zip(fast, plain, exact, strict=True):
        error = (ours.float() - reference).norm()
        assert error <= 1.5 * (theirs.float() - reference).norm() + 0.002 * reference.norm()


def sum_without_dimension(tensor: torch.Tensor, dim: int | None = None) -> torch.Tensor:
    assert dim is None, "the bias's gradient was made"
    return torch.sum(tensor)


def test_only_what_needs_a_gradient_gets_one(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, matrix, targets, weights = inputs(20, 30, 8, 1, 0.0)
    value = cross_entropy(hidden.detach(), matrix, targets, weights)
    (gradient,) = torch.autograd.grad(value, (matrix,))
    assert gradient.shape == matrix.shape
    bias = torch.ones(30, requires_grad=True)
    with torch.no_grad():
        plain = cross_entropy_plainly(hidden, matrix, targets, weights, bias)
        monkeypatch.setattr(loss, "_row_gradient", lambda *_: pytest.fail("a matrix's gradient was made"))
        monkeypatch.setattr(torch.Tensor, "sum", sum_without_dimension)
        torch.testing.assert_close(cross_entropy(hidden, matrix, targets, weights, bias=bias), plain)


def test_no_tensor_grows_with_positions_times_vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    monkeypatch.setattr(loss, "_CHUNK_BYTES", 1 << 16)
    largest = 0

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            nonlocal largest
            out = function(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor):
                largest = max(largest, out.untyped_storage().nbytes())
            return out

    hidden, matrix, targets, weights = inputs(4000, 1000, 8, 1, 0.0)
    with Watch():
        results(cross_entropy, hidden, matrix, targets, weights)
    assert largest <= 4 * 4000 * 8  # hidden's own gradient; all logits would be 16 MB


@given(positions=st.integers(0, 70), vocabulary=st.integers(1, 90), seed=st.integers(0, 2**31))
@settings(max_examples=20, deadline=None)
def test_logits_in_parts_equal_the_whole(positions: int, vocabulary: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(2, positions, 8, generator=generator)
    matrix = torch.randn(vocabulary, 8, generator=generator).bfloat16()
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(loss, "_PROJECT_BYTES", 1)
        logits = project(hidden, matrix)
    assert logits.dtype == torch.float32
    expected = hidden.bfloat16() @ matrix.T
    torch.testing.assert_close(logits, expected.float(), atol=0.01, rtol=0.02)


def test_without_gradients_none_of_the_bias_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, matrix, targets, weights = inputs(9, 20, 4, 1, 0.0)
    bias = torch.zeros(20, requires_grad=True)
    wanted = []
    zeros = torch.zeros
    monkeypatch.setattr(torch, "zeros", lambda *size, **more: wanted.append(size) or zeros(*size, **more))
    with torch.no_grad():
        cross_entropy(hidden, matrix, targets, weights, bias=bias)
    assert (20,) not in wanted
    cross_entropy(hidden, matrix, targets, weights, bias=bias)
    assert (20,) in wanted
