"""Every path that a page, a card, an example or a docstring names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("benchmarks", "docs", "examples", "papers", "recipes", "src", "tests", "tools")
NAMED = re.compile(rf"(?<![\w./~$}}-])(?:{'|'.join(FOLDERS)})/[\w./@-]*\w/?")
READ = ("*.md", "docs/**/*.md", "examples/**/*.*", "src/**/*.py", "src/**/*.toml", "src/**/*.md", "tools/*.py")
READ += ("benchmarks/*.py", "papers/**/*.py", "papers/**/*.toml", "papers/*.md")
PLACEHOLDER = re.compile(r"(?:^|/)[A-Z]{3,}(?=[./]|$)|^examples/s$")  # a name to fill in; a rate
MADE = {"tests/corpus/filters/test_shouting.py"}  # by the reader of the page


def named_paths() -> list[tuple[str, str]]:
    files = {path for pattern in READ for path in ROOT.glob(pattern) if path.is_file()}
    shown = sorted(path.relative_to(ROOT).as_posix() for path in files)
    found = [(name, re.findall(NAMED, (ROOT / name).read_text("utf-8", "replace"))) for name in shown]
    return [(name, path) for name, paths in found for path in paths]


def is_there(path: str) -> bool:
    """Return whether a path exists; of `gpt2-*.toml` the beginning of one counts."""
    start = ROOT / path
    if start.exists() or start.with_suffix(".py").exists() or path in MADE or PLACEHOLDER.search(path):
        return True
    return any(start.parent.glob(f"{start.name}-*"))


@pytest.mark.parametrize("suffix", [".md", ".py", ".sh", ".toml"])
def test_every_path_that_is_named_exists(suffix: str) -> None:
    named = [(name, path) for name, path in named_paths() if name.endswith(suffix)]
    assert len(named) > 3
    assert sorted({entry for entry in named if not is_there(entry[1])}) == []
