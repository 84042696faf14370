"""docs/reading: the pages show what the examples print, in both languages, and only numbers of the papers."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterable
from pathlib import Path

import examples
import pytest

from headwater.serve import documentation
from headwater_papers.paper_tables import TABLES

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "reading"
PAGES = {path: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.md"))}
FILES = sorted((ROOT / "examples" / "reading").glob("*.py"))
NUMBER = re.compile(r"-?\d+(?:[.,]\d+)*")
MARKED = re.compile(r"^<!-- numbers of ([\w, -]+) -->\n((?:.+\n)+)", re.M)
UNITS = {"million": 10**6, "billion": 10**9, "만": 10**4, "천만": 10**7, "억": 10**8}


def alike(printed: str, shown: str) -> bool:
    """Whether two outputs differ at most by the rounding of numbers on different machines."""
    if NUMBER.sub("#", printed).split() != NUMBER.sub("#", shown).split():
        return False
    pairs = zip(NUMBER.findall(printed), NUMBER.findall(shown), strict=True)
    for one, other in ((a.replace(",", ""), b.replace(",", "")) for a, b in pairs):
        unit = 10 ** -len(one.partition(".")[2])
        if one != other and abs(float(one) - float(other)) > max(2 * unit, 0.02 * abs(float(one))):
            return False
    return True


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_reading_example_prints_what_its_pages_show(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code = path.read_text(encoding="utf-8")
    if "gpt1-mini" in code:
        pytest.importorskip("spacy")
    if "build_corpus" in code:
        pytest.importorskip("resiliparse")
    monkeypatch.syspath_prepend(str(path.parent))
    runpy.run_path(str(path), run_name="__main__")
    printed = examples.stripped(capsys.readouterr().out)
    name = str(path.relative_to(ROOT))
    shown = [found[name] for text in PAGES.values() if name in (found := examples.outputs(text))]
    twin = path.with_name(f"ko_{path.name}").exists() or path.name.startswith("ko_")
    assert len(shown) == (1 if twin else 2), "the page in English and the one in Korean"
    for output in shown:
        assert alike(printed, output), f"python tools/examples.py --run\n{printed}"


def test_only_rounding_may_differ() -> None:
    assert alike("P = 0.0933\n1,000 tokens\n", "P =  0.0934\n1,000 tokens\n")
    assert not alike("P = 0.0933\n", "P = 0.1933\n")
    assert not alike("the sea\n", "the river\n")


def in_english(names: Iterable[str]) -> list[str]:
    """Return the names of the examples of which those that read Korean text are versions."""
    return [name.replace("/ko_", "/") for name in names]


@pytest.mark.parametrize("path", [path for path in PAGES if ".ko" not in path.name], ids=lambda path: path.stem)
def test_the_korean_page_has_the_same_sections_and_examples(path: Path) -> None:
    english, korean = PAGES[path], PAGES[path.with_suffix(".ko.md")]
    levels = [[len(marks) for marks in re.findall(r"^(#+) ", text, re.M)] for text in (english, korean)]
    if path.stem != "pencil":  # the program is on the English page alone
        assert levels[0] == levels[1]
        assert examples.shown(english) == in_english(examples.shown(korean))
    assert list(examples.outputs(english)) == in_english(examples.outputs(korean))
    assert re.findall("<!-- source .*", english) == re.findall("<!-- source .*", korean)


@pytest.mark.parametrize("language", ["en", "ko"])
def test_the_panels_of_the_server_lead_to_sections_that_exist(language: str) -> None:
    words = (ROOT / "src/headwater/serve/page" / f"words_{language}.js").read_text(encoding="utf-8")
    links = re.findall(r'"([\w.]+\.md)#([^"]+)"', words)
    assert len(links) > 10
    for page, anchor in links:
        titles = re.findall(r"^#+ (.*)$", PAGES[FOLDER / page], re.M)
        assert anchor in {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}, page


def test_pictures_are_drawn_from_the_models() -> None:
    pytest.importorskip("spacy")
    import pictures

    drawn = pictures.pictures()
    assert set(drawn) == set(FOLDER.glob("*.svg"))
    for path, svg in drawn.items():
        assert path.read_text(encoding="utf-8") == svg, "python tools/pictures.py --write"
    for path, text in PAGES.items():
        shown = re.findall(r"!\[([^\]]+)\]\(([\w.]+)\)", text)
        for alternative, name in shown:
            assert len(alternative) > 40, f"{path.name}: {name}"
            assert name.endswith(".ko.svg") == (".ko" in path.name)
        assert len(shown) == text.count("![")
    assert all(sum(f"({path.name})" in text for text in PAGES.values()) == 1 for path in drawn)


def test_a_server_shows_pictures_in_their_page() -> None:
    page = documentation.page("basics.md")
    assert page.count('<svg role="img" aria-label="') == PAGES[FOLDER / "basics.md"].count("![")
    assert "<img" not in page


def test_emphasis_is_closed_in_both_languages() -> None:
    for name in documentation.files():
        prose = re.sub(r"<pre.*?</pre>|<code>.*?</code>|<svg.*?</svg>", "", documentation.page(name), flags=re.S)
        assert "**" not in prose, name


def amounts(text: str) -> set[float]:
    """Return the numbers of a text: `103 million` and `1억 300만` are 103,000,000."""
    found, previous = [], 0
    for match in re.finditer(r"(\d[\d,]*(?:\.\d+)?)(?:\s?(million|billion|천만|만|억))?", text):
        value = float(match[1].replace(",", "")) * UNITS.get(match[2], 1)
        if match[2] == "만" and found and text[previous : match.start()] == " ":
            found[-1] += value
        else:
            found.append(value)
        previous = match.end() if match[2] == "억" else -1
    return set(found)


def test_amounts_are_read_in_both_languages() -> None:
    assert (
        amounts("103 million words, 28,595 articles")
        == amounts("단어 1억 300만 개, 문서 28,595개")
        == {103e6, 28_595}
    )
    assert amounts("약 3천만 개와 25억 개") == {3e7, 25e8}


def test_the_numbers_of_a_marked_table_are_the_papers() -> None:
    checked = 0
    for path, text in PAGES.items():
        for match in MARKED.finditer(text):
            tables = [TABLES[name.strip()] for name in match[1].split(",")]
            cells = [cell for table in tables for row in table.rows.values() for cell in row]
            known = {one for cell in cells for one in amounts(str(cell))}
            names = [name for table in tables for name in (*table.rows, *table.columns, table.source)]
            wrong = amounts(match[2]) - known - {one for name in names for one in amounts(name)}
            assert not wrong, f"{path.name}: {wrong}"
            checked += 1
    assert checked == 6
