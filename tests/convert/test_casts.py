"""A conversion that would make weights infinite or zero is refused, by the name of the tensor."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from headwater.convert import convert
from headwater.errors import DataError
from headwater.model import build_model, preset, save_model
from headwater.tokenizer import Tokenizer


@pytest.fixture
def source(tmp_path: Path) -> Path:
    tokenizer = Tokenizer.train(["one two three four " * 50], vocab_size=300)
    model = build_model(preset("gpt2-pico", layers=1, width=32, heads=2, vocabulary=300), seed=1)
    (tmp_path / "source").mkdir()
    save_model(model, tmp_path / "source", tokenizer=tokenizer)
    return tmp_path / "source"


def change(source: Path, value: float, rows: int) -> None:
    from headwater.model import load_model

    model = load_model(source)
    with torch.no_grad():
        model.tokens.weight[:rows] = value
    save_model(model, source, tokenizer=Tokenizer.load(source))


@pytest.mark.parametrize("destination", ["folder", "m.gguf"])
@pytest.mark.parametrize(("value", "rows", "what"), [(7e4, 1, "32 values infinite"), (1e-9, 200, "values zero")])
def test_f16_that_loses_values_is_refused(
    source: Path, destination: str, value: float, rows: int, what: str
) -> None:
    pytest.importorskip("gguf")
    change(source, value, rows)
    out = source.parent / destination
    with pytest.raises(DataError, match=f"float16 would make .*{what}.* in .*--precision f32"):
        convert(source, out, precision="f16")
    assert not out.exists()
    convert(source, out, precision="f32")


def test_bf16_holds_what_f16_does_not(source: Path) -> None:
    change(source, 70_000.0, 1)
    convert(source, source.parent / "out", precision="bf16")
