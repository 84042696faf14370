"""`headwater doctor` describes the machine."""

from __future__ import annotations

import json

import pytest

from headwater.cli.main import main


def test_the_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    machine = json.loads(capsys.readouterr().out)
    assert machine["cores"] >= 1
    assert machine["memory"] > 0
    assert machine["precision"]["cpu"] in {"fp32", "bf16"}
    assert set(machine["extras"]) >= {"export", "gpt1", "hub"}
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert f"{machine['precision']['cpu']} on cpu" in text
    assert f"set OMP_NUM_THREADS={machine['cores']} and GOMP_SPINCOUNT=1000 before" in text
