"""docs/corpus.md: its code blocks are the example files, and these run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.cli.main import LazyGroup

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"<!-- (examples/\S+) -->\n```\w+\n(.*?)```\n", re.S)
BLOCKS = BLOCK.findall((ROOT / "docs" / "corpus.md").read_text("utf-8"))


def test_every_block_is_its_file() -> None:
    assert len(BLOCKS) == (ROOT / "docs" / "corpus.md").read_text("utf-8").count("```") / 2 > 0
    for name, text in BLOCKS:
        assert text == (ROOT / name).read_text("utf-8"), name


@pytest.mark.parametrize("name", [name for name, _ in BLOCKS if name.endswith(".py")])
def test_the_examples_run(name: str, tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(ROOT / name)], cwd=tmp_path, check=True)


@pytest.mark.parametrize("name", [name for name, _ in BLOCKS if name.endswith(".sh")])
def test_the_commands_exist_with_their_options(name: str) -> None:
    lines = [line for line in (ROOT / name).read_text("utf-8").splitlines() if line.startswith("headwater ")]
    assert lines
    for line in lines:
        words = shlex.split(line)[1:]
        command = LazyGroup(name="headwater").get_command(None, words[0])
        if hasattr(command, "commands"):
            command = command.commands[words[1]]
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known
