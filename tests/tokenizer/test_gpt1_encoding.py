"""GPT-1's ids: those of the original code on the golden texts, and of the readable reference on any text."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.tokenizer import Tokenizer, reference
from headwater.tokenizer.english import EnglishWords
from headwater.tokenizer.gpt1 import WordCodec, WordSplitter
from headwater.tokenizer.vocabulary import AddedToken

spacy = pytest.importorskip("spacy")
pytest.importorskip("ftfy")

TEXT = """It's Mr. Smith's dog -- isn't it?! "Don't," she said; 'tis 10 a.m. in the U.S. (or) – café “quoted”…
We'll see: http://a.b/c?d=1 x@y.org 10km $5.00 1,000 C++ \\backslash\\ a/b [x] {y} _z_ and/or <b> &amp; é
"""
NASTY = [
    *"'’“”‘.:;,!?()[]{}<>=-—–―…´*/\\|_~+&%$@#^`\"°013ABsteéñ\n\t\r \x0b\x1c\x85\xa0\u3000ﬁＡÃ©â€™\u0301İß안ขд",
    *("\ufeff", "\x00", "\x1b[31m", "\x7f", "\ud800", "£", "œ", "à", "\r\n", "  ", "\n \n", "\u2028"),
    *(
        "&amp;",
        "&lt;b&gt;",
        "&hellip;",
        "<b>",
        "&#x2019;",
        "â€œ",
        "schÃ¶n",
        "a.m.",
        "U.S.A.",
        "10km",
        "x@y.org",
    ),
    *(
        "word",
        "Word",
        "cannot",
        "Im",
        "don't",
        "Mr.",
        "'em",
        "goin'",
        "o'clock",
        "it's",
        "John's",
        "e.g.",
        "°C.",
    ),
]
SEPARATORS = st.sampled_from(["", "", " ", " ", "\n"])


@pytest.fixture(scope="module")
def english() -> Any:
    return spacy.blank("en").tokenizer


@pytest.fixture(scope="module")
def words_by_window() -> list[EnglishWords]:
    return [EnglishWords(), EnglishWords(window=8)]


@pytest.fixture(scope="module")
def small() -> Tokenizer:
    return Tokenizer.train([TEXT * 3], kind="gpt1", vocab_size=330)


def test_golden_ids(golden_data: Path) -> None:
    tokenizer = Tokenizer.load("gpt1")
    lines = (golden_data / "tokenizers" / "gpt1" / "golden.jsonl").read_text(encoding="utf-8").splitlines()
    examples = [json.loads(line) for line in lines]
    assert len(examples) == 300
    assert tokenizer.encode_batch([e["text"] for e in examples]) == [e["ids"] for e in examples]


def test_reference_gives_golden_ids(golden_data: Path, english: Any) -> None:
    vocabulary = Tokenizer.load("gpt1").vocabulary
    lines = (golden_data / "tokenizers" / "gpt1" / "golden.jsonl").read_text(encoding="utf-8").splitlines()
    for example in map(json.loads, lines[::20]):
        assert reference.encode_gpt1(example["text"], vocabulary, english) == example["ids"]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_plain_chunks_are_split_as_spacy_does(small: Tokenizer, english: Any, data: st.DataObject) -> None:
    letters = st.one_of(
        st.text(st.sampled_from("aeimnstdlvrDSTM"), min_size=1, max_size=4),
        st.sampled_from([case for case in sorted(english.rules) if case.isalpha() and case.isascii()]),
    )
    shape = st.sampled_from(["{}", "'{}", "{}.", "{}:", "{}'", "{}'s", "{}.'", "{}:'", "'{}.'", "'{}'s", "'{}:"])
    text = " ".join(data.draw(st.lists(st.builds(str.format, shape, letters), min_size=1, max_size=4)))
    assert small.encode(text) == reference.encode_gpt1(text, small.vocabulary, english)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_fast_path_gives_the_references_ids(small: Tokenizer, english: Any, data: st.DataObject) -> None:
    cases = st.sampled_from(sorted(english.rules))
    piece = st.one_of(st.sampled_from(NASTY), st.sampled_from(TEXT.split()), cases, st.text(max_size=3))
    pairs = data.draw(st.lists(st.tuples(piece, SEPARATORS), max_size=14))
    text = "".join(part for pair in pairs for part in pair)
    assert small.encode(text) == reference.encode_gpt1(text, small.vocabulary, english)


@pytest.mark.parametrize(
    "text",
    [
        "a...Ol' s thing",  # a special case of spaCy's that the next word could take part in
        "a...o. O",  # one across white space blocks the one before it
        "a:> .<",
        "''Mr. ' s.",
        "<b> &amp; </b>\n&amp; <",
        "&amp;\n<\n&amp;",
        "x\r\ny\rz\u2028w",
        "“quoted” Ã© line\nplain line\n— dash",
        "\n\n  leading\n \n\n and trailing \n",
        "a" * 5000,
        "-" * 5000,
        "$" * 500 + "'" * 500 + "a:" * 300,
        "e" + "\u0301\u0327" * 50 + " a",
        "",
        " \n ",
    ],
)
def test_fast_path_on_chosen_texts(small: Tokenizer, english: Any, text: str) -> None:
    assert small.encode(text) == reference.encode_gpt1(text, small.vocabulary, english)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_words_are_spacys_for_repeated_characters(
    english: Any, words_by_window: list[EnglishWords], data: st.DataObject
) -> None:
    cases = st.sampled_from(sorted(case for case in english.rules if not case.isspace()))
    signs = st.sampled_from([*"$#'\"%=(){}[]<>.,:;!?*&@/\\-_~`^|°+£’—。", "...", "'s", "km²", "10", "a", "B", "é"])
    urls = st.sampled_from(["x@y.org", "http://", "a.b.co", "1.2.3.4", ":80", "/p", "Ab.Cd"])
    part = st.builds(
        lambda text, times: text * times, st.one_of(cases, signs, urls), st.sampled_from([1, 1, 1, 40])
    )
    chunks = data.draw(st.lists(st.lists(part, min_size=1, max_size=6).map("".join), min_size=1, max_size=3))
    expected = [token.text for token in english(" ".join(chunks))]
    for words in words_by_window:
        assert words.of_line(chunks) == expected
        alone = [words.of_chunk(chunk) for chunk in chunks]
        assert None in alone or [word for part in alone for word in part or ()] == expected


class _Counted:
    """A compiled pattern that counts the characters it is given."""

    def __init__(self, pattern: Any, work: Counter[str]) -> None:
        self._pattern, self._work = pattern, work

    def __getattr__(self, name: str) -> Any:
        def called(text: str, *places: int) -> Any:
            self._work["characters"] += len(text) - sum(places)
            return getattr(self._pattern, name)(text, *places)

        return called

    def search(self, text: str) -> Any:
        return self.__getattr__("search")(text)


@pytest.mark.parametrize("unit", ["$", "#", "'", ":)", "(a", "'s", "$#", "a:", "a@", "1.", "b$c'"])
def test_the_work_on_a_run_grows_with_its_length_only(
    english: Any, monkeypatch: pytest.MonkeyPatch, unit: str
) -> None:
    work: Counter[str] = Counter()

    def blank(_: str) -> Any:
        found = type(english)(
            english.vocab,
            rules=english.rules,
            prefix_search=_Counted(english.prefix_search.__self__, work).search,
            suffix_search=_Counted(english.suffix_search.__self__, work).search,
            infix_finditer=english.infix_finditer,
            url_match=english.url_match,
        )
        return SimpleNamespace(tokenizer=found)

    monkeypatch.setattr(spacy, "blank", blank)
    splitter = WordSplitter()
    assert splitter._english._url._rest is not None  # else the rule would take more than linear time
    spent = []
    for length in (1_000, 4_000):
        work.clear()
        chunk = unit * (length // len(unit))
        assert (splitter.split_chunk(chunk) or splitter.split_line([chunk]))[-1].endswith(unit[-1])
        spent.append(work["characters"])
    assert spent[1] <= 4.4 * spent[0] + 1_000


def _calls(work: Callable[[], object]) -> int:
    """How many functions, of Python and of C, are called meanwhile."""
    count = 0

    def called(_: object, event: str, __: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def test_a_run_of_any_sign_takes_few_calls_a_byte(small: Tokenizer) -> None:
    signs = [*map(chr, range(0x100)), *"‘’‚“”–—―…´ʼʹ‡ǄŉѶ안、　\u0301\u0f76\u2adc\U0001d160\ud800"]
    few = []
    for sign in signs:
        small.encode(sign * 100)
        calls = [_calls(partial(small.encode, sign * length)) for length in (500, 1_500)]
        few.append((calls[1] - calls[0]) / (1_000 * len(sign.encode("utf-8", "surrogatepass"))))
    worst = max(few)
    assert worst <= 20, (worst, signs[few.index(worst)])


def test_long_chunks_are_not_remembered(small: Tokenizer) -> None:
    tokenizer = Tokenizer(small.vocabulary)
    tokenizer.encode("river " + "x" * 10_000 + " " + "$" * 10_000)
    codec = tokenizer._codec
    assert isinstance(codec, WordCodec)
    assert max(map(len, codec._chunks)) <= 64


@pytest.mark.slow
def test_very_long_line_is_repaired_as_ftfy_does(small: Tokenizer, english: Any) -> None:
    text = "schÃ¶n “ok” " * 100_000 + "\nend"
    assert small.encode(text[:1_000_050]) == reference.encode_gpt1(text[:1_000_050], small.vocabulary, english)


def test_what_was_remembered_changes_nothing(small: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.tokenizer.gpt1.REMEMBERED", 3)
    forgetful = Tokenizer(small.vocabulary)
    codec = forgetful._codec
    assert isinstance(codec, WordCodec)
    for letter in "abcdefghij":  # x'' is split with its line: of these lines no chunk is remembered
        forgetful.encode(f"x'' {letter * 5}")
    assert len(codec._chunks) <= 3 + 5
    assert forgetful.encode(TEXT) == small.encode(TEXT) == small.encode_array([TEXT])[0].tolist()


def test_unknown_characters_and_newlines(golden_data: Path) -> None:
    tokenizer = Tokenizer.load("gpt1")
    assert tokenizer.vocabulary_size == 40478
    assert tokenizer.end_of_text is None
    assert tokenizer.encode("안") == [0]
    assert tokenizer.encode("a\n\n b") == [*tokenizer.encode("a"), 40477, *tokenizer.encode("b")]
    assert tokenizer.encode("very positive negative") == [963, 6353, 9503]


def test_task_tokens_are_the_three_rows_after_the_vocabulary(golden_data: Path) -> None:
    tokenizer = Tokenizer.load("gpt1").with_task_tokens()
    assert tokenizer.task_tokens == (40478, 40479, 40480)
    assert tokenizer.vocabulary_size == 40481
    assert tokenizer.with_task_tokens() is tokenizer
    assert 40478 not in tokenizer.encode("_start_")
    assert tokenizer.encode("_start_", allow_special=True) == [40478]


def test_decoded_text_is_readable(small: Tokenizer) -> None:
    assert small.decode(small.encode("It isn't\n the DOG!")) == "it is n't \nthe dog !"


def test_added_tokens_take_what_their_flags_say(small: Tokenizer) -> None:
    special = small.vocabulary.with_specials(["<x>", "<y>", "sea", "<x>>"])
    flags = [
        AddedToken("<x>", special=False, lstrip=True, rstrip=True),
        AddedToken("<y>", special=False, normalized=True),
        AddedToken("sea", special=False, single_word=True),
        AddedToken("<x>>"),
    ]
    tokenizer = Tokenizer(replace(special, added=(*small.vocabulary.added, *flags)))
    x, y, sea, longest = (tokenizer.special_tokens[name] for name in ("<x>", "<y>", "sea", "<x>>"))
    the = small.encode("the")
    assert tokenizer.encode("the \n <x>  the <Y>the") == [*the, x, *the, y, *the]
    assert tokenizer.encode("the sea seas") == [*the, sea, *small.encode("seas")]
    assert tokenizer.encode("<x>>", allow_special=True) == [longest]
    assert tokenizer.encode("<x>>") == [x, *small.encode(">")]
