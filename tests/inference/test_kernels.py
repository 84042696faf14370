from __future__ import annotations

from pathlib import Path

import pytest
import torch

from headwater.inference import kernels
from headwater.inference.compiled import supported
from headwater.inference.matrices import Int8
from headwater.inference.panels import PanelInt8
from headwater.model import build_model, preset
from headwater.model.transformer import Transformer


@pytest.mark.parametrize("compiler", ["/nowhere/cc", "false"])
def test_without_a_compiler_that_works_there_are_no_kernels_and_no_complaint(
    compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", compiler)
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path))
    assert kernels.library.__wrapped__() is None


def test_a_model_of_another_shape_runs_in_torch() -> None:
    model = build_model(preset("gpt2-pico", width=48, heads=3), seed=1)
    assert isinstance(model, Transformer)
    assert not supported(model)


def test_int8_with_a_scale_for_every_64_inputs_is_closer_beside_large_values() -> None:
    library = kernels.library()
    if library is None:
        pytest.skip("no compiler, or a processor without AVX-512: everything runs in torch")
    generator = torch.Generator().manual_seed(1)
    weight, bias = torch.randn(100, 256, generator=generator), torch.randn(100, generator=generator)
    x = torch.randn(9, 256, generator=generator)
    x[:, 5] *= 100
    exact = x @ weight.t() + bias
    grouped = (PanelInt8(library, weight, bias)(x) - exact).square().mean()
    plain = (Int8(weight, bias)(x) - exact).square().mean()
    assert grouped < plain / 2
