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


@pytest.mark.parametrize("name", [*READMES, "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"])
def test_every_link_of_the_top_pages_leads_to_a_file(name: str) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", read(name)):
        assert (ROOT / target).exists(), f"{name}: {target}"


def test_pages_quote_the_results_as_they_are() -> None:
    for path, text in publish_results.quoting_pages().items():
        assert path.read_text(encoding="utf-8") == text, "python papers/tools/publish_results.py papers/results"


def test_korean_results_have_no_english_words() -> None:
    import quoted_results

    for finding in quoted_results.findings():
        claim, here, verdict = quoted_results.in_korean(finding)
        text = f"{claim} {here} {verdict}"
        english = re.findall(r"\b(?:the|of|and|to|after|against|least|points|nats|from|not|on|for)\b", text)
        assert english == [], text


def test_every_speed_is_one_that_the_benchmarks_report() -> None:
    results = [json.loads(path.read_text()) for path in sorted((ROOT / "benchmarks" / "results").glob("*.json"))]
    measured = {
        row["ratio"]
        for result in results
        for one in result.get("measurements", {}).values()
        for row in one["rows"].values()
    }
    english, korean = section(read("README.md"), "what"), section(read("README.ko.md"), "하는 일")
    assert [row[1:] for row in english] == [row[1:] for row in korean]
    shown = [cell.split(" ×")[0] for row in english for cell in row[1:] if cell != "–"]
    assert len(shown) >= 6
    assert {float(ratio) for ratio in shown} <= {round(ratio, 2) for ratio in measured}
    assert {round(ratio, 2) for ratio in measured if ratio < 1} <= {float(ratio) for ratio in shown}


def test_the_front_table_is_what_the_benchmarks_wrote(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import result_tables

    for language, name in enumerate(READMES):
        assert f"<!-- front -->\n\n{result_tables.front(language)}\n\n<!-- /front -->" in read(name)
    runs = [
        {"model": model, "seed": seed, "seconds": seconds + seed, "bits_per_character": bits + seed / 100}
        for model, seconds, bits in (("gpt2-mini", 58.0, 1.76), ("gpt2-pico", 36.0, 2.5), ("nanogpt", 60.0, 2.7))
        for seed in (1, 3)
    ]
    (tmp_path / "shakespeare.jsonl").write_text("".join(json.dumps(run) + "\n" for run in runs))
    keys = {"set": "korean", "test": 9, "rows": 16}
    labels = [
        keys | {"per_class": rows, "seed": seed, "method": method, "value": value}
        for rows in (8, 64)
        for seed in (1, 2)
        for method, value in (("default", 0.7 + rows / 1000), ("tfidf", 0.6), ("setfit", 0.65))
    ]
    (tmp_path / "few_labels.json").write_text(json.dumps({"results": labels}))
    english, korean = (result_tables.front(language, tmp_path).splitlines()[2:] for language in (0, 1))
    assert "after 60 s" in english[0]
    here = "1.78 (`--from gpt2-mini`, pre-trained on other plays of his), 2.52 (from scratch, 38 s)"
    assert english[0].endswith(f"| {here} | 2.72 (nanoGPT, 62 s) |")
    assert english[1].endswith("Korean reviews from 8 rows per class | 0.708 | 0.600 (TF-IDF), 0.650 (SetFit) |")
    assert english[2].endswith("Korean reviews from 64 rows per class | 0.764 | 0.600 (TF-IDF), 0.650 (SetFit) |")
    assert [line.split(" | ")[1:] for line in korean[1:3]] == [line.split(" | ")[1:] for line in english[1:3]]
    assert len(english) == len(korean) == 4


def test_every_path_that_contributing_names_exists() -> None:
    text = re.sub(r"^```.*?^```$", "", read("CONTRIBUTING.md"), flags=re.M | re.S)  # its example makes new files
    named = set(re.findall(r"`([\w./-]*(?:/|\.(?:py|c|md|toml)))`", text))
    named |= set(re.findall(r"(?<=[ `])(?:tests|tools|benchmarks|examples)/[\w./]*\w", text))
    for path in sorted(named):
        assert (ROOT / path).exists() or (PACKAGE / path).exists(), path


def test_both_packages_and_the_citation_have_one_version() -> None:
    named = re.compile(r'^version(?: = "|: )([\d.]+)', re.M)
    files = ("pyproject.toml", "papers/pyproject.toml", "CITATION.cff")
    assert len({named.search(read(name))[1] for name in files}) == 1  # type: ignore[index]
