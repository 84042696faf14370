from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from headwater.inference import kernels
from headwater.inference.compiled import supported
from headwater.inference.matrices import Int8
from headwater.inference.panels import PanelInt8
from headwater.model import build_model, preset
from headwater.model.transformer import Transformer


def test_a_model_of_another_shape_runs_in_torch() -> None:
    model = build_model(preset("gpt2-pico", width=48, heads=3), seed=1)
    assert isinstance(model, Transformer)
    assert not supported(model)


COMPUTING_AT_THE_END = """
import ctypes
import threading

import torch

from headwater.inference.compiled import NativeNetwork
from headwater.model import build_model, preset

weights = NativeNetwork(build_model(preset("gpt2-nano", vocabulary=50_000), seed=1), "fp32")
matrix, rows = weights.output, 512
tensors = torch.ones(rows, matrix.inputs), torch.empty(rows, matrix.inputs), torch.empty(rows, matrix.outputs)
x, rounded, y = (tensor.data_ptr() for tensor in tensors)
begun = threading.Event()


def compute():
    while True:
        begun.set()
        weights.library.headwater_product(ctypes.byref(matrix), 0, x, rows, rounded, None, None, y, 1)


threading.Thread(target=compute, daemon=True).start()
begun.wait()
"""


def test_a_thread_in_the_kernels_outlives_the_interpreters_end() -> None:
    if kernels.library() is None:
        pytest.skip("a processor without AVX-512: everything runs in torch")
    assert subprocess.run([sys.executable, "-c", COMPUTING_AT_THE_END], check=False, timeout=100).returncode == 0


def test_int8_with_a_scale_for_every_64_inputs_is_closer_beside_large_values() -> None:
    library = kernels.library()
    if library is None:
        pytest.skip("a processor without AVX-512: everything runs in torch")
    generator = torch.Generator().manual_seed(1)
    weight, bias = torch.randn(100, 256, generator=generator), torch.randn(100, generator=generator)
    x = torch.randn(9, 256, generator=generator)
    x[:, 5] *= 100
    exact = x @ weight.t() + bias
    grouped, twin = PanelInt8(library, weight, bias)(x), Int8(weight, bias)(x)
    torch.testing.assert_close(grouped, twin, rtol=1e-5, atol=1e-5)  # one scheme on every machine
    step = x.abs().amax(dim=1, keepdim=True) / 127
    whole = (x / step).round() * step @ weight.t() + bias
    assert (twin - exact).square().mean() < (whole - exact).square().mean() / 2


def test_int8_in_torch_takes_any_width_and_no_rows() -> None:
    generator = torch.Generator().manual_seed(1)
    weight, x = torch.randn(30, 100, generator=generator), torch.randn(3, 100, generator=generator)
    assert Int8(weight, None)(x[:0]).shape == (0, 30)
    assert ((Int8(weight, None)(x) - x @ weight.t()) / 10).abs().max() < 0.05
