"""Every variant of the forward pass that this machine runs gives what torch gives, for any shape, in any
layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from headwater import native
from headwater.model import Block, Embeddings, Transformer, build_model, preset
from headwater.native import (
    PAGE,
    PANEL,
    Affine,
    Forward,
    PackedMatrix,
    Shape,
    TransformerWeights,
    to_int8,
)
from headwater.native.matrix import KINDS, MatrixKind

VARIANTS = native.available()
# (width, heads): heads of 64, 32, 48, 80, 96, 128, 20 and 5, of widths that are multiples of 64 and not.
SHAPES = [(128, 2), (96, 3), (144, 3), (160, 2), (96, 1), (128, 1), (60, 3), (15, 3)]
TOLERANCE: dict[MatrixKind, float] = {"fp32": 1e-5, "bf16": 1e-2, "int8": 2e-2}


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def handle(variant: str) -> native.Kernels:
    found = native.kernels(variant)
    assert found is not None
    assert found.variant == variant
    return found


def built(width: int, heads: int, *, norm: str = "pre", **changes: Any) -> Transformer:
    """Return a small model with random biases and norms."""
    name = "gpt2-pico" if norm == "pre" else "gpt1-nano"
    shape = {"vocabulary": 101, "context": 40, "width": width, "heads": heads, "layers": 2, "dropout": 0.0}
    model = build_model(preset(name, **shape, **changes), seed=3)
    assert isinstance(model, Transformer)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter + 0.02 * drawn(parameter.numel(), *parameter.shape))
    return model


def affine(module: nn.Module) -> Affine:
    return Affine(module.weight.detach(), module.bias.detach())  # type: ignore[arg-type]


def weights_of(model: Transformer, kernels: native.Kernels, kind: MatrixKind) -> TransformerWeights:
    config = model.config
    shape = Shape(
        config.layers, config.width, config.heads, config.context, len(model.tokens.weight), config.norm == "pre",
        config.norm_epsilon,
    )  # fmt: skip
    layers = [
        [
            affine(block.attention.query_key_value), affine(block.attention.projection), affine(block.mlp.expand),
            affine(block.mlp.contract), affine(block.norm_1), affine(block.norm_2),
        ]
        for block in model.blocks if isinstance(block, Block)
    ]  # fmt: skip
    embeddings = Embeddings(model.tokens.weight.detach(), model.positions.weight.detach())
    final = affine(model.final_norm) if isinstance(model.final_norm, nn.LayerNorm) else None
    return TransformerWeights(kernels, shape, kind, layers, *embeddings, final, model.output_matrix(embeddings))


def forward_of(weights: TransformerWeights, slots: int = 1) -> Forward:
    size = slots * weights.shape.pages * weights.shape.page_elements
    caches = [[torch.zeros(size, dtype=weights.dtype) for _ in range(weights.shape.layers)] for _ in range(2)]
    return Forward(weights, *caches)


def tables(slots: int, pages: int) -> np.ndarray:
    return np.arange(slots * pages, dtype=np.int32).reshape(slots, pages)


def logits_of(weights: TransformerWeights, ids: list[int]) -> Tensor:
    out = torch.empty(len(ids), weights.output.structure.outputs)
    count = len(ids)
    forward_of(weights)(ids, [0] * count, range(count), tables(1, weights.shape.pages), count, out)
    return out[:, : weights.output.outputs]


class TorchMatrix:
    """A matrix of kind int8 in torch: weights and inputs are rounded as in the kernels."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        values, scale = to_int8(weight)
        self.weight, self.bias = values * scale, bias

    def __call__(self, x: Tensor) -> Tensor:
        groups = torch.nn.functional.pad(x, (0, -x.shape[1] % PANEL)).view(len(x), -1, PANEL)
        values, scale = to_int8(groups)
        return torch.nn.functional.linear((values * scale).flatten(1)[:, : x.shape[1]], self.weight, self.bias)


def rounded_weight(weight: Tensor, kind: MatrixKind) -> Tensor:
    if kind == "int8":
        values, scale = to_int8(weight)
        return values * scale
    return weight if kind == "fp32" else weight.bfloat16().float()


def twin(weight: Tensor, bias: Tensor, kind: MatrixKind, x: Tensor) -> Tensor:
    """What a packed matrix returns."""
    if kind == "int8":
        return TorchMatrix(weight, bias)(x)
    return torch.nn.functional.linear(rounded_weight(x, kind), rounded_weight(weight, kind), bias)


@torch.no_grad()
def expected_logits(model: Transformer, ids: list[int], kind: MatrixKind) -> Tensor:
    """Torch's logits with the weights that the kind has; inputs are not rounded."""
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2 and "blocks" in name:
            parameter.copy_(rounded_weight(parameter, kind))
    return model.logits(model.hidden(torch.tensor([ids])))[0].float()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", list(KINDS))
def test_a_matrix_gives_what_its_twin_gives(variant: str, kind: MatrixKind) -> None:
    for seed, (rows, inputs, outputs) in enumerate([(1, 64, 64), (2, 100, 70), (3, 33, 1), (4, 256, 64), (5, 65,
    130), (6, 128, 64), (197, 96, 64)]):  # fmt: skip
        weight, bias, x = drawn(seed, outputs, inputs), drawn(seed + 1, outputs), drawn(seed + 2, rows, inputs)
        x[:, 5] *= 30
        got = PackedMatrix(handle(variant), weight, bias, kind)(x)
        expected = twin(weight, bias, kind, x)
        # Without bfloat16 products the inputs are not rounded: a difference of 2^-9 of each.
        tolerance = 1e-5 if kind != "bf16" else 4e-3
        assert (got - expected).abs().max() <= tolerance * expected.abs().max()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_row_that_is_not_finite_stays_so(variant: str, value: float) -> None:
    """Else a model that diverged would continue a text without an error."""
    for kind in KINDS:
        matrix, x = PackedMatrix(handle(variant), drawn(1, 64, 128), None, kind), drawn(2, 128, 128)
        x.fill_diagonal_(value)
        found = matrix(torch.cat([x, drawn(3, 1, 128)]))
        assert not found[:-1].isfinite().any(dim=1).any(), kind
        assert found[-1].isfinite().all()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("width", "heads"), SHAPES)
def test_a_model_of_any_shape_gives_torchs_logits(variant: str, width: int, heads: int) -> None:
    ids = [int(i) for i in torch.randint(0, 101, (37,), generator=torch.Generator().manual_seed(width))]
    for kind in KINDS:
        for norm in ("pre", "post"):
            model = built(width, heads, norm=norm)
            got = logits_of(weights_of(model, handle(variant), kind), ids)
            expected = expected_logits(model, ids, kind)
            error = (got[:, :101] - expected[:, :101]).square().mean().sqrt() / expected.std()
            assert error <= TOLERANCE[kind], (kind, norm)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_final_norm_is_applied_if_the_model_has_one(norm: str) -> None:
    ids = list(range(20))
    for kind in KINDS:
        for final_norm in (True, False):
            model = built(60, 3, norm=norm, final_norm=final_norm)
            weights = weights_of(model, handle(VARIANTS[0]), kind)
            got, expected = logits_of(weights, ids), expected_logits(model, ids, kind)
            assert (got - expected).square().mean().sqrt() <= TOLERANCE[kind] * expected.std(), (kind, final_norm)
            hidden = forward_of(weights)(ids, [0] * 20, range(20), tables(1, weights.shape.pages), 20, None)
            torch.testing.assert_close(weights.output(hidden), got, atol=0, rtol=0)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize(("width", "heads"), [(128, 2), (60, 3)])
def test_a_row_is_the_same_bit_for_bit_alone_and_in_any_company(
    variant: str, kind: MatrixKind, width: int, heads: int
) -> None:
    weights = weights_of(built(width, heads), handle(variant), kind)
    ids = [int(i) for i in torch.randint(0, 101, (21,), generator=torch.Generator().manual_seed(1))]
    together = logits_of(weights, ids)
    forward, pages = forward_of(weights, slots=3), weights.shape.pages
    places = tables(3, pages)
    out = torch.empty(3, weights.output.structure.outputs)
    for position, token in enumerate(ids):  # token by token, with two other texts
        others = [7, 9] if position else [1, 2]
        forward([token, *others], [1, 0, 2], [position] * 3, places, 3, out)
        assert torch.equal(out[0, :101], together[position, :101])


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_a_diverged_text_left_in_the_cache_changes_nothing(variant: str) -> None:
    for kind in KINDS:
        weights = weights_of(built(128, 2), handle(variant), kind)
        ids, pages = list(range(21)), weights.shape.pages
        expected, out = logits_of(weights, ids), torch.empty(21, weights.output.structure.outputs)
        size = pages * weights.shape.page_elements
        caches = [[torch.full((size,), float("nan"), dtype=weights.dtype) for _ in range(2)] for _ in range(2)]
        Forward(weights, *caches)(ids, [0] * 21, range(21), tables(1, pages), 21, out)
        assert torch.equal(out[:, :101], expected), kind


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", list(KINDS))
def test_a_rows_product_is_the_same_among_any_number_of_rows(variant: str, kind: MatrixKind) -> None:
    matrix, x = PackedMatrix(handle(variant), drawn(1, 130, 576), drawn(2, 130), kind), drawn(3, 300, 576)
    together = matrix(x)
    for first, rows in [(0, 1), (299, 1), (5, 7), (20, 16), (90, 17), (100, 33), (40, 256)]:
        assert torch.equal(matrix(x[first : first + rows]), together[first : first + rows]), (first, rows)


@pytest.mark.parametrize("variant", VARIANTS)
def test_threads_change_nothing(variant: str) -> None:
    weights = weights_of(built(96, 3), handle(variant), "int8")
    ids, before = list(range(30)), torch.get_num_threads()
    try:
        found = []
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append(logits_of(weights, ids))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*found)


def test_arguments_out_of_range_are_refused_before_any_write() -> None:
    weights = weights_of(built(60, 3), handle(VARIANTS[0]), "fp32")
    forward, pages = forward_of(weights), weights.shape.pages
    out = torch.full((2, weights.output.structure.outputs), 7.0)
    wrong, gap = tables(1, pages) + 1000, tables(1, pages)
    gap[0, 1] = pages  # a page before those of the last row's position
    for tokens, slots, positions, places, wanted in [
        ([101], [0], [0], tables(1, pages), 1),
        ([-1], [0], [0], tables(1, pages), 1),
        ([0], [1], [0], tables(1, pages), 1),
        ([0], [0], [40], tables(1, pages), 1),
        ([0], [0], [0], tables(1, pages), 2),
        ([0], [0], [PAGE], wrong, 1),
        ([0, 0], [0, 0], [0, 2 * PAGE], gap, 2),
    ]:
        with pytest.raises(IndexError):
            forward(tokens, slots, positions, places, wanted, out)
    with pytest.raises(ValueError, match="expected int32"):
        forward([0], [0], [0], tables(1, pages + 1), 1, out)
    with pytest.raises(ValueError, match="logits"):
        forward([0], [0], [0], tables(1, pages), 1, out[:, :7])
    with pytest.raises(ValueError, match="shapes"):
        forward([0, 1], [0], [0], tables(1, pages), 1, out)
    assert (out == 7).all()


def test_int8_scales_of_64_inputs_are_closer_near_outliers() -> None:
    weight, x = drawn(1, 100, 256), drawn(2, 9, 256)
    x[:, 5] *= 100
    exact = x @ weight.t()
    step = x.abs().amax(dim=1, keepdim=True) / 127
    whole = (x / step).round() * step @ weight.t()
    grouped = TorchMatrix(weight, None)(x)
    assert (grouped - exact).square().mean() < (whole - exact).square().mean() / 2
