"""The pages of docs/ and the READMEs: their code is examples/, what they name exists, the site builds offline."""

from __future__ import annotations

import ast
import dataclasses
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import examples
import pages
import pytest

import headwater
from headwater.cli.main import COMMANDS
from headwater.corpus.web.links import COLUMNS
from headwater.evaluation import Result, Results
from headwater.evaluation.results import Skipped
from headwater.plugins import plugins
from headwater.storage import Manifest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("path", examples.pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_block_is_an_example_or_marked_as_output(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text == examples.filled(text, path), "make format puts the examples and the links in"
    assert list(examples.strangers(text)) == []


def test_every_example_is_on_a_page() -> None:
    shown = {name for path in examples.pages() for name in examples.shown(path.read_text(encoding="utf-8"))}
    files = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "examples").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert files == shown


def test_code_that_is_not_an_example_is_detected() -> None:
    assert list(examples.strangers("text\n\n```sh\nls\n```\n")) == [3]
    assert list(examples.strangers("text\n\n    ls\n")) == [3]
    assert list(examples.strangers("<!-- output -->\n```text\nfile\n```\n")) == []


def test_excerpts_are_of_objects_that_exist() -> None:
    wanted = [
        (match[1], name)
        for path in (ROOT / "docs").rglob("*.md")
        for match in pages.SOURCE.finditer(path.read_text(encoding="utf-8"))
        for name in match[2].split()
    ]
    assert len(wanted) > 50
    for file, name in wanted:
        assert pages.source_lines(file, name)


def test_every_extra_is_explained() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.M)) == set(project["optional-dependencies"])


def test_every_guarantee_has_a_test_that_always_runs(is_slow: dict[str, bool]) -> None:
    text = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    numbers = [int(number) for number in re.findall(r"^## (\d+)\.", text, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
    for section in text.split("\n## ")[1:-1]:  # the last one is the campaign
        named = re.findall(r"`(tests/[\w/]+\.py::\w+)`( \(slow\))?", section)
        assert not all(slow for _, slow in named), section
        for name, slow in named:
            assert is_slow[name] == bool(slow), name
            file, _, function = name.partition("::")
            tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
            found = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}[function]
            asked = {argument.arg for argument in found.args.args}
            assert "data" not in asked or "@given" in ast.unparse(found), f"{name} needs data that no clone has"


def test_every_command_option_and_public_name_is_documented() -> None:
    commands, calls = pages.command_pages(), pages.call_pages()
    assert "validation_share: the share" in calls["Similarity"]  # a parameter of the base class
    assert set(commands) == {"index", *COMMANDS, *plugins()}
    assert set(calls) == {"index", *headwater.__all__} - {"__version__"}
    assert "`--dry-run`" in commands["pretrain"]
    assert "## headwater corpus build" in commands["corpus"]


@pytest.mark.slow  # `make check` runs it
def test_the_site_builds_without_warnings_or_network(tmp_path: Path) -> None:
    pytest.importorskip("sphinx")
    pytest.importorskip("myst_parser")
    pytest.importorskip("furo")
    source, site = tmp_path / "pages", tmp_path / "site"
    subprocess.run([sys.executable, str(ROOT / "tools" / "pages.py"), str(source)], check=True)
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", str(source), str(site)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    calls = (site / "calls" / "LanguageModel.html").read_text(encoding="utf-8")
    assert 'id="headwater.LanguageModel.stream"' in calls
    loaded = re.compile(r"<(?:script|img|iframe|source)[^>]+src=\"(?:https?:)?//|<link[^>]+href=\"(?:https?:)?//")
    for page in site.rglob("*.html"):
        assert not loaded.search(page.read_text(encoding="utf-8")), page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import)\W*(?:https?:)?//", sheet.read_text(encoding="utf-8")), sheet


def test_the_formats_page_names_the_keys_of_the_code() -> None:
    page = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
    sections = {heading.split("\n")[0]: heading for heading in page.split("\n## ")[1:]}

    def named(section: str) -> set[str]:
        spans = re.findall(r"`([^`]+)`", sections[section])
        return {name for span in spans if re.fullmatch(r"[a-z_,\s]+", span) for name in re.findall(r"\w+", span)}

    results = (Results, Result, Skipped)
    assert named("results/") == {field.name for one in results for field in dataclasses.fields(one)}
    assert named("links/") == set(COLUMNS)
    assert named("headwater.json") == set(Manifest.model_fields)
