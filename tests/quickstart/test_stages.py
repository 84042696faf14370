"""The public calls of the flow: each is there under its name, spells its options, and writes its folder."""

from __future__ import annotations

import importlib
import inspect
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater import shipped
from headwater.storage import open_folder


def test_the_whole_flow_in_calls(tmp_path: Path, sample_text: str) -> None:
    (tmp_path / "text.txt").write_text(sample_text, encoding="utf-8")
    corpus = hw.build_corpus(tmp_path / "text.txt", tmp_path / "corpus")
    hw.train_tokenizer(corpus, tmp_path / "tokenizer", vocab_size=300)
    importlib.import_module("headwater.pretraining.tokens.pack").pack(
        corpus, tmp_path / "tokenizer", tmp_path / "tokens", 0.1
    )
    lines: list[dict[str, Any]] = []
    small = {"context": 32, "precision": "fp32", "model": {"width": 32, "layers": 1}}
    model = hw.pretrain(
        tmp_path / "tokens",
        tmp_path / "run",
        preset="gpt2-pico",
        steps=3,
        batch_size=2,
        settings=small,
        on_update=lines.append,
    )
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert "loss" in lines[0]
    results = hw.evaluate(model, "heldout", tmp_path / "tokens", tmp_path / "results", limit=2, device="cpu")
    assert results.results[0].metric == "bits per byte"
    for name, kind in {"corpus": "corpus", "tokenizer": "tokenizer", "run": "run", "results": "results"}.items():
        open_folder(tmp_path / name, kind)


def test_a_hub_model_is_evaluated_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = shipped.resolve(shipped.DEFAULT)
    monkeypatch.setattr("headwater.shipped.catalogue.from_hub", lambda name, download: folder)
    (tmp_path / "wsc273.txt").write_text("One saw two when [MASK] came .\n[MASK]\none,two\none\n")
    assert hw.evaluate("owner/name", "wsc273.full", tmp_path, tmp_path / "results").results


@pytest.mark.parametrize("name", ["build_corpus", "evaluate", "pretrain", "train_tokenizer", "load"])
def test_public_calls_spell_their_options(name: str) -> None:
    importlib.import_module("headwater.evaluation.evaluation")  # a module of the same name does not hide the call
    importlib.import_module("headwater.pretraining.pretraining")
    call = getattr(hw, name)
    parameters = inspect.signature(call).parameters.values()
    assert call.__doc__
    assert all(parameter.annotation is not parameter.empty for parameter in parameters)
    assert not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)


def test_the_package_has_its_version() -> None:
    assert hw.__version__ == version("headwater")
