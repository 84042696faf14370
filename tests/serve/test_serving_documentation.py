"""docs/serving.md: its clients run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["client.py", "curl.sh"])
def test_examples_run(server: Any, name: str) -> None:
    if name.endswith(".sh") and shutil.which("curl") is None:
        pytest.skip("needs curl")
    program = [sys.executable] if name.endswith(".py") else ["sh", "-e"]
    environment = {**os.environ, "HEADWATER_URL": server.url, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    ran = subprocess.run(
        [*program, str(ROOT / "examples" / "serving" / name)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert ran.returncode == 0, ran.stderr
    assert "error" not in ran.stdout
