"""An installed distribution adds commands through its entry points."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.cli.main import main
from headwater.evaluation import all_tasks
from headwater.plugins import GROUP

CODE = '''
"""A command for this test."""


def greet(name: str) -> None:
    """Greet somebody."""
    print(f"Hello, {name}.")
'''


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with an installed distribution that has two commands, one of them without code."""
    info = tmp_path / "greetings-1.0.dist-info"
    info.mkdir()
    (tmp_path / "greetings.py").write_text(CODE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: greetings\nVersion: 1.0\nSummary: Say hello.\n")
    ours = f"[{GROUP}]\ngreet = greetings:greet\nbroken=greetings:nothing\n"
    (info / "entry_points.txt").write_text(f"[console_scripts]\nother = a:b\n\n{ours}\n[z]\nx = y:z\n")
    return tmp_path


def headwater(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(site), *sys.path])
    command = [sys.executable, "-m", "headwater", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})


def test_an_entry_point_adds_a_command(site: Path) -> None:
    assert headwater(site, "greet", "you").stdout == "Hello, you.\n"
    assert "Greet somebody." in headwater(site, "greet", "--help").stdout
    assert ["greet", "Say", "hello."] in [line.split() for line in headwater(site, "--help").stdout.splitlines()]


def test_a_damaged_command_is_one_paragraph(site: Path) -> None:
    result = headwater(site, "broken")
    assert result.returncode == 1
    assert result.stderr.startswith("Error: greetings:nothing cannot be imported")


def test_a_missing_distribution_is_named(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("headwater.cli.main.plugins", dict)
    assert main(["reproduce", "--list"]) == 1
    assert "pip install ./papers" in capfd.readouterr().err
    monkeypatch.setattr("headwater.evaluation.tasks.plugins", lambda group: {})
    all_tasks.cache_clear()
    try:
        assert main(["evaluate", "--list"]) == 0
        said = capfd.readouterr().out
        assert "lambada.openai.whole-word" in said
        assert "coqa.greedy" not in said
        assert "headwater-papers has cbt, cnndm, cola, coqa" in said
        assert main(["evaluate", "--list", "--tasks", "coqa.greedy"]) == 1
        assert "the task coqa.greedy belongs to headwater-papers" in capfd.readouterr().err
    finally:
        all_tasks.cache_clear()
