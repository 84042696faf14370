"""Every variant of the element-wise kernels that this machine runs gives what its twin in torch gives."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from headwater import native
from headwater.native import AdamStep
from headwater.native.elementwise import _alike

FLOAT, HALF = torch.float32, torch.bfloat16
LENGTHS = [1, 3, 4, 7, 8, 9, 15, 16, 17, 300, 4096, 5000]
STEP = AdamStep(scale=0.5, keep=0.999, betas=(0.9, 0.98), rate=1e-2, correction=1.3, epsilon=1e-6)


class Twin:
    """The same methods in torch: what each kernel means."""

    def gelu(self, x: Tensor, gradient: Tensor | None = None) -> Tensor:
        if gradient is None:
            return functional.gelu(x, approximate="tanh")
        return torch.ops.aten.gelu_backward(gradient, x, approximate="tanh")

    def norm(
        self, x: Tensor, weight: Tensor, bias: Tensor, epsilon: float, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor, Tensor]:
        variance, mean = torch.var_mean(x.flatten(0, -2), dim=-1, correction=0)
        return (
            functional.layer_norm(x, weight.shape, weight, bias, epsilon).to(dtype),
            mean,
            (variance + epsilon).rsqrt(),
        )

    def norm_gradient(
        self, gradient: Tensor, x: Tensor, weight: Tensor, means: Tensor, deviations: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        flat = gradient.float().flatten(0, -2)
        y = (x.flatten(0, -2) - means[:, None]) * deviations[:, None]
        weighted = flat * weight
        along = weighted - weighted.mean(-1, keepdim=True) - y * (weighted * y).mean(-1, keepdim=True)
        return (deviations[:, None] * along).view(x.shape), (flat * y).sum(0), flat.sum(0)

    def sum_to(self, total: Tensor, part: Tensor, out: Tensor) -> Tensor:
        return out.copy_((total.flatten() + part.flatten()).view(out.shape))

    def softmax_(self, scores: Tensor, scale: float) -> None:
        queries, keys = scores.shape[-2:]
        hidden = torch.ones(queries, keys, dtype=torch.bool).triu(keys - queries + 1)
        scores.copy_((scale * scores.float()).masked_fill(hidden, float("-inf")).softmax(-1))

    def softmax_gradient_(self, gradient: Tensor, weights: Tensor, scale: float) -> None:
        mean = (gradient.float() * weights.float()).sum(-1, keepdim=True)
        gradient.copy_(scale * weights.float() * (gradient.float() - mean))

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        scores = query.float() @ key.float().transpose(2, 3) / query.shape[-1] ** 0.5
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
        return (scores.softmax(-1) @ value.float()).to(value.dtype), scores.logsumexp(-1)

    def attend_gradient(
        self, gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, sums: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v, upstream = (x.float() for x in (query, key, value, gradient))
        scale = query.shape[-1] ** -0.5
        weights = (scale * q @ k.transpose(2, 3) - sums[..., None]).exp().tril()
        slopes = scale * weights * (upstream @ v.transpose(2, 3) - (upstream * out.float()).sum(-1, keepdim=True))
        grads = (slopes @ k, slopes.transpose(2, 3) @ q, weights.transpose(2, 3) @ upstream)
        first, second, third = (grad.to(query.dtype) for grad in grads)
        return first, second, third

    def loss_gradient_(self, logits: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        probabilities = logits.float().log_softmax(-1)
        loss = -(probabilities.gather(1, targets[:, None])[:, 0] * weights).sum()
        one_hot = functional.one_hot(targets, logits.shape[1])
        logits.copy_(weights[:, None] * (probabilities.exp() - one_hot))
        return loss

    def log_sums(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        return logits.logsumexp(1), logits.amax(1)

    def sum_of_squares(self, x: Tensor) -> Tensor:
        return x.double().square().sum()

    def adam_(
        self, weight: Tensor, gradient: Tensor, moments: tuple[Tensor, Tensor], copy: Tensor | None, step: AdamStep
    ) -> None:
        first, second = moments
        scaled = step.scale * gradient.float()
        first.lerp_(scaled, 1 - step.betas[0])
        second.mul_(step.betas[1]).addcmul_(scaled, scaled, value=1 - step.betas[1])
        denominator = second.sqrt() * step.correction + step.epsilon
        weight.mul_(step.keep).addcdiv_(first, denominator, value=-step.rate)
        if copy is not None:
            copy.copy_(weight)


TWIN = Twin()


@pytest.fixture(params=native.available())
def kernels(request: pytest.FixtureRequest) -> native.Kernels:
    found = native.kernels(request.param)
    assert found is not None
    return found


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def assert_close(got: Tensor, expected: Tensor) -> None:
    assert got.dtype == expected.dtype
    tolerance = 2e-5 if got.dtype == FLOAT else 2**-7
    assert (got.double() - expected.double()).abs().max() <= tolerance * expected.double().abs().max() + 1e-7


@pytest.mark.parametrize("dtype", [FLOAT, HALF])
def test_gelu_sums_and_squares(kernels: native.Kernels, dtype: torch.dtype) -> None:
    for length in LENGTHS:
        x, gradient = (5 * drawn(1, length)).to(dtype), drawn(2, length).to(dtype)
        assert_close(kernels.gelu(x), TWIN.gelu(x))
        assert_close(kernels.gelu(x, gradient), TWIN.gelu(x, gradient))
        assert kernels.sum_of_squares(x).item() == pytest.approx(TWIN.sum_of_squares(x).item(), rel=1e-5)
        total, part = drawn(3, length), drawn(4, length).bfloat16()
        out = [torch.empty(length) for _ in range(2)]
        assert torch.equal(kernels.sum_to(total, part, out[0]), TWIN.sum_to(total, part, out[1]))


@pytest.mark.parametrize("dtype", [FLOAT, HALF])
def test_norm(kernels: native.Kernels, dtype: torch.dtype) -> None:
    for rows, width in [(1, 1), (2, 5), (31, 16), (70, 33), (3, 300)]:
        x, weight, bias = 3 + drawn(1, rows, width), 1 + drawn(2, width), drawn(3, width)
        got, expected = (k.norm(x, weight, bias, 1e-3, dtype) for k in (kernels, TWIN))
        for a, b in zip(got, expected, strict=True):
            assert_close(a, b)
        gradient = drawn(4, rows, width).to(dtype)
        got, expected = (k.norm_gradient(gradient, x, weight, *expected[1:]) for k in (kernels, TWIN))
        for a, b in zip(got, expected, strict=True):
            assert (a - b).abs().max() <= 5e-5 * max(1.0, b.abs().max().item())


@pytest.mark.parametrize("dtype", [FLOAT, HALF])
def test_softmax_and_loss(kernels: native.Kernels, dtype: torch.dtype) -> None:
    for queries, keys in [(1, 1), (1, 7), (5, 5), (16, 33), (3, 130)]:
        scores = (3 * drawn(1, 2, queries, keys)).to(dtype)
        found = [scores.clone(), scores.clone()]
        kernels.softmax_(found[0], 0.3)
        TWIN.softmax_(found[1], 0.3)
        assert_close(*found)
        gradient = drawn(2, 2, queries, keys).to(dtype)
        gradients = [gradient.clone(), gradient.clone()]
        kernels.softmax_gradient_(gradients[0], found[1], 0.3)
        TWIN.softmax_gradient_(gradients[1], found[1], 0.3)
        assert_close(*gradients)
    for rows, columns in [(1, 1), (3, 5), (4, 16), (5, 77)]:
        logits, weights = (9 * drawn(3, rows, columns)).to(dtype), drawn(4, rows).abs()
        targets = torch.arange(rows) % columns
        both = [logits.clone(), logits.clone()]
        losses = [k.loss_gradient_(x, targets, weights) for k, x in zip((kernels, TWIN), both, strict=True)]
        assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-5, abs=1e-6)
        assert_close(*both)


@pytest.mark.skipif("amx" not in native.available(), reason="this processor has no AMX")
@pytest.mark.parametrize("time", [1, 31, 64, 65, 200])
def test_attention_over_whole_texts_and_its_gradient(time: int) -> None:
    kernels = native.kernels("amx")
    assert kernels is not None
    for texts, heads, size in [(1, 3, 64), (2, 1, 32), (1, 2, 128)]:
        fused = (2 * drawn(time, texts, time, 3, heads, size)).bfloat16()
        query, key, value = fused.permute(2, 0, 3, 1, 4)
        assert kernels.attends(query)
        gradient = drawn(1, texts, time, heads, size).bfloat16().transpose(1, 2)
        (out, sums), (twin_out, twin_sums) = (k.attend(query, key, value) for k in (kernels, TWIN))
        assert_close(out, twin_out)
        assert_close(sums, twin_sums)
        found, expected = (k.attend_gradient(gradient, query, key, value, out, sums) for k in (kernels, TWIN))
        for got, wanted in zip(found, expected, strict=True):
            assert (got - wanted).abs().max() <= 2**-6 * max(1.0, wanted.abs().max().item())
        one = (x[:1, :1].contiguous() for x in (query, key, value))
        assert torch.equal(kernels.attend(*one)[0], out[:1, :1])


def test_a_gradient_that_the_kernel_can_read_is_not_copied() -> None:
    """Autograd gives the gradient of (text, time, head, dimension) rows with the middle two exchanged."""
    gradient = drawn(1, 2, 5, 3, 32).bfloat16().transpose(1, 2)
    assert _alike(gradient)[0] is gradient
    with_gaps = drawn(1, 2, 3, 5, 64).bfloat16()[..., ::2]
    (packed,) = _alike(with_gaps)
    assert packed.is_contiguous()
    assert torch.equal(packed, with_gaps)


def test_log_sums(kernels: native.Kernels) -> None:
    for rows, columns in [(1, 1), (3, 5), (4, 16), (5, 77)]:
        logits = 30 * drawn(1, rows, columns + 3)[:, :columns]
        for found, expected in zip(kernels.log_sums(logits), TWIN.log_sums(logits), strict=True):
            torch.testing.assert_close(found, expected)
    logits = drawn(1, 3, 40)
    logits[0, 7], logits[1, 3] = float("nan"), float("inf")
    assert kernels.log_sums(logits)[0].isfinite().tolist() == [False, False, True]


@pytest.mark.parametrize("dtype", [FLOAT, HALF])
def test_adam(kernels: native.Kernels, dtype: torch.dtype) -> None:
    for length in LENGTHS:
        gradient = drawn(1, length).to(dtype)
        start = (drawn(2, length), drawn(3, length), drawn(4, length).abs(), torch.zeros(length, dtype=HALF))
        states = [[tensor.clone() for tensor in start] for _ in range(2)]
        for k, (weight, first, second, copy) in zip((kernels, TWIN), states, strict=True):
            k.adam_(weight, gradient, (first, second), copy, STEP)
        for a, b in zip(*states, strict=True):
            assert_close(a, b)


def test_a_target_beyond_the_vocabulary_is_refused_first(kernels: native.Kernels) -> None:
    buffer = torch.full((3, 16), 7.0)
    for target in (16, 40, -1):
        with pytest.raises(IndexError):
            kernels.loss_gradient_(buffer[:1], torch.tensor([target]), torch.ones(1))
    assert (buffer == 7).all()


def test_wrong_shapes_dtypes_and_layouts_are_refused(kernels: native.Kernels) -> None:
    x = torch.zeros(4, 8)
    for call in [
        lambda: kernels.gelu(x.t()),
        lambda: kernels.gelu(x.double()),
        lambda: kernels.gelu(x, x[:2]),
        lambda: kernels.norm(x, torch.ones(7), torch.ones(8), 1e-5, FLOAT),
        lambda: kernels.norm(x, torch.ones(8), torch.ones(8), 1e-5, torch.float16),
        lambda: kernels.norm_gradient(x, x, torch.ones(8), torch.ones(3), torch.ones(4)),
        lambda: kernels.sum_to(x, x.bfloat16()[:2], x),
        lambda: kernels.softmax_(torch.zeros(9, 8), 1.0),
        lambda: kernels.softmax_gradient_(x, x.bfloat16(), 1.0),
        lambda: kernels.loss_gradient_(x, torch.zeros(3, dtype=torch.int64), torch.ones(4)),
        lambda: kernels.loss_gradient_(x.t(), torch.zeros(8, dtype=torch.int64), torch.ones(8)),
        lambda: kernels.adam_(x, x, (x, x[:2]), None, STEP),
        lambda: kernels.adam_(x, x, (x, x), x, STEP),
    ]:
        with pytest.raises(ValueError, match="expected"):
            call()
