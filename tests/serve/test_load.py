"""The benchmark's crowd, smaller and shorter: no request is lost, memory does not grow, nothing stays open."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "serve.py"


@pytest.mark.slow
def test_a_crowd_whose_connections_break_is_answered(base_folder: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--load", "--model", str(base_folder), "--precision", "fp32", "--json"]
    command += ["--seconds", "15", "--clients", "150", "--tokens", "40", "--threads", "1"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    result = json.loads(ran.stdout)
    print(result)
    assert result["wrong"] == 0
    assert result["outcome answered"] > 50
    assert result["outcome left"] > 5
    assert result["still open"] == 0
    assert result["growth"] < 1.1
    assert result["exit status"] == 0
