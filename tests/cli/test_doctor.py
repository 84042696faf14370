"""`headwater doctor` describes the machine, and a model without reading its weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headwater.cli.main import main
from headwater.model import build_model, preset, save_model
from headwater.storage import Stage


def test_the_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    machine = json.loads(capsys.readouterr().out)
    assert machine["cores"] >= 1
    assert machine["memory_available"] > 0
    assert machine["gflops"]["cpu"]["fp32"] > 0
    assert machine["precision"]["cpu"] in {"fp32", "bf16"}
    assert set(machine["extras"]) >= {"export", "gpt1", "hub"}
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert "matmul cpu" in text
    assert f"set OMP_NUM_THREADS={machine['cores']} and GOMP_SPINCOUNT=1000 before torch is imported" in text


@pytest.mark.parametrize("name", ["gpt2-nano", "gpt1-nano", "lstm-nano", "bilstm-nano", "bert-nano"])
def test_a_models_size_adds_up_and_names_its_origin(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = build_model(preset(name, vocabulary=50), seed=1)
    (tmp_path / "source.txt").write_text("text")
    stage = Stage(tmp_path / "model", kind="model", config={}, inputs={"text": tmp_path / "source.txt"})
    with stage.write() as work:
        save_model(model, work)
    assert main(["doctor", "--model", str(tmp_path / "model"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    count = sum(parameter.numel() for parameter in model.parameters())
    assert told["parameters"] == count
    assert told["stored"]["F32"] == 4 * count
    # The output matrix is in memory again, in the layout of the kernels.
    again = 50 * model.config.width if name.startswith("gpt") else 0
    assert told["memory"]["fp32"] == 4 * (count + again)
    small = sum(parameter.numel() for parameter in model.parameters() if parameter.dim() == 1)
    assert told["memory"]["bf16"] == 2 * (count - small + again) + 4 * small
    tables = again and again + model.config.context * model.config.width  # in bfloat16, the other matrices in int8
    int8 = count - small - tables + 2 * tables + again + 4 * small
    assert told["memory"].get("int8") == (int8 if again else None)
    assert told["config"]["vocabulary"] == 50
    assert bool(told["cache_per_token"]) == name.startswith("gpt")
    assert told["lineage"]["inputs"][0]["role"] == "text"
    assert main(["doctor", "--model", str(tmp_path / "model")]) == 0
    text = capsys.readouterr().out
    assert f"{count:,}" in text
    assert "source.txt" in text


def test_a_folder_that_is_not_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--model", str(tmp_path)]) == 1
    assert "has no config.json" in capsys.readouterr().err
