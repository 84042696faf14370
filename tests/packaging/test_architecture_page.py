"""Generated pages of the architecture show what the source has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import public_names
import pytest

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.mark.parametrize("tool", ["architecture.py", "public_names.py"])
def test_a_page_shows_what_the_source_has(tool: str) -> None:
    checked = subprocess.run(
        [sys.executable, TOOLS / tool, "--check"], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_public_name_is_described() -> None:
    names = {
        (folder.name, name): text
        for folder in public_names.packages()
        for name, text in public_names.public(folder).items()
    }
    assert [name for name, text in names.items() if not text] == []
