"""Every protocol whose files are available equals its computation through transformers, example by example."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType

import pytest

from headwater.evaluation import VERSION, all_tasks
from headwater.model import build_model, preset, save_model
from headwater.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    pytest.importorskip("transformers")
    pytest.importorskip("yaml")
    return importlib.import_module("headwater_papers.verification.verify")


@pytest.mark.slow
def test_every_example_has_the_log_probabilities_of_transformers(
    tool: ModuleType, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer = Tokenizer.load("gpt2")
    changes = {"layers": 2, "width": 128, "heads": 2, "init_deviation": 0.1}
    folder = tmp_path / "model"
    folder.mkdir()
    save_model(build_model(preset("gpt2-small", **changes), seed=1), folder, tokenizer=tokenizer)
    rows = list(tool.compare(folder, [data], "", 2, tmp_path))
    assert all(row.agrees for row in rows), capsys.readouterr().out
    assert {row.protocol for row in rows} == {*all_tasks()}
    assert all(row.examples for row in rows)


@pytest.mark.slow
def test_protocols_change_only_with_their_version(tool: ModuleType, data: Path, tmp_path: Path) -> None:
    golden = json.loads((Path(__file__).parents[2] / "tests/golden/protocols.json").read_text(encoding="utf-8"))
    found = tool.digests([data], tmp_path / "substitutes")
    changed = [protocol for protocol in all_tasks() if golden["digests"].get(protocol) != found[protocol]]
    repair = "raise VERSION of the tasks, then python -m headwater_papers.verification --digests FILE"
    assert not changed, f"{changed}: {repair}"
    assert golden["version"] == VERSION, repair
