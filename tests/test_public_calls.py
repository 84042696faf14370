"""The public calls: each spells its options, and a model of the hub has the hub's name."""

from __future__ import annotations

import inspect
from importlib.metadata import version
from pathlib import Path

import pytest

import headwater as hw
from headwater import shipped
from headwater.cli.main import main


def test_a_hub_model_is_evaluated_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = shipped.resolve(shipped.DEFAULT)
    monkeypatch.setattr("headwater.shipped.catalogue.from_hub", lambda name, download: folder)
    (tmp_path / "lambada_test.jsonl").write_text('{"text": "One saw two when three came"}\n')
    options = ["--tasks", "lambada.openai.whole-word", "--data", ".", "--out", "results"]
    assert main(["evaluate", "--model", "owner/name", *options]) == 0


def test_public_calls_spell_their_options() -> None:
    for call in (hw.load, *(getattr(hw.LanguageModel, name) for name in ("generate", "score", "embed", "fill"))):
        parameters = inspect.signature(call).parameters.values()
        assert call.__doc__
        assert all(one.annotation is not one.empty for one in parameters if one.name != "self")
        options = [one.annotation for one in parameters if one.kind is one.VAR_KEYWORD]
        assert options in ([], ["Unpack[GenerateOptions]"])


def test_the_package_has_its_version() -> None:
    assert hw.__version__ == version("headwater")
