"""The pages in the root of the repository: what they name exists, and their figures are those of their sources."""

from __future__ import annotations

import json
import re
from pathlib import Path

import publish_results
import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "headwater"
READMES = ("README.md", "README.ko.md")


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def section(text: str, begin: str) -> list[list[str]]:
    """The cells of the first table whose header has that first cell."""
    table = re.search(rf"^\| {re.escape(begin)} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", text, re.M)
    assert table is not None, begin
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table[1].splitlines()]


def test_the_front_page_is_short() -> None:
    assert len(read("README.md").encode()) <= 8_000
    assert len(read("README.ko.md")) <= 8_000


@pytest.mark.parametrize("name", [*READMES, "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"])
def test_every_link_of_the_top_pages_leads_to_a_file(name: str) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", read(name)):
        assert (ROOT / target).exists(), f"{name}: {target}"


def test_pages_quote_the_results_as_they_are() -> None:
    for path, text in publish_results.quoting_pages().items():
        assert path.read_text(encoding="utf-8") == text, "python papers/tools/publish_results.py papers/results"


def test_every_speed_is_one_that_the_benchmarks_report() -> None:
    results = [json.loads(path.read_text()) for path in sorted((ROOT / "benchmarks" / "results").glob("*.json"))]
    measured = {
        row["ratio"]
        for result in results
        for one in result["measurements"].values()
        for row in one["rows"].values()
    }
    english, korean = section(read("README.md"), "what"), section(read("README.ko.md"), "하는 일")
    assert [row[1:] for row in english] == [row[1:] for row in korean]
    shown = [cell.split(" ×")[0] for row in english for cell in row[1:] if cell != "–"]
    assert len(shown) >= 6
    assert {float(ratio) for ratio in shown} <= {round(ratio, 2) for ratio in measured}
    assert {round(ratio, 2) for ratio in measured if ratio < 1} <= {float(ratio) for ratio in shown}


def test_every_package_has_its_line() -> None:
    packages = {f"`{path.parent.name}`" for path in PACKAGE.glob("*/__init__.py")}
    assert {row[0] for row in section(read("README.md"), "in `src/headwater/`")} == packages
    assert {row[0] for row in section(read("README.ko.md"), "`src/headwater/`")} == packages


def test_every_path_that_contributing_names_exists() -> None:
    text = re.sub(r"^```.*?^```$", "", read("CONTRIBUTING.md"), flags=re.M | re.S)  # its example makes new files
    named = set(re.findall(r"`([\w./-]*(?:/|\.(?:py|c|md|toml)))`", text))
    named |= set(re.findall(r"(?<=[ `])(?:tests|tools|benchmarks|examples)/[\w./]*\w", text))
    assert len(section(text, "question: where is …")) >= 20
    assert len(named) > 40
    for path in sorted(named):
        assert (ROOT / path).exists() or (PACKAGE / path).exists(), path
