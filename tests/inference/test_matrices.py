from __future__ import annotations

import torch

from headwater.inference.matrices import Int8
from headwater.native import TorchMatrix


def test_int8_in_torch_takes_any_width_and_no_rows() -> None:
    generator = torch.Generator().manual_seed(1)
    weight, x = torch.randn(30, 100, generator=generator), torch.randn(3, 100, generator=generator)
    assert Int8(weight, None)(x[:0]).shape == (0, 30)
    torch.testing.assert_close(Int8(weight, None)(x), TorchMatrix(weight, None, "int8")(x), rtol=1e-5, atol=1e-5)
