"""GPT-2's ids: equal to two other engines and to the readable reference, on any text; nothing lost."""

from __future__ import annotations

import importlib.metadata
import sys
import threading
import time
import unicodedata
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import DataError, MismatchError, UsageError
from headwater.tokenizer import PATTERN, Tokenizer, codec, reference
from headwater.tokenizer.codec import GigatokenEngine
from headwater.tokenizer.vocabulary import AddedToken

TEXT = (
    "It's the 1st of May; they've 22 cats' IDs, WE'LL see…  two  spaces\t\ttabs\r\n\r\n\n lines \n"
    "안녕하세요 세계 \u3000 naïve café – “quoted” 😀👩‍👩‍👧 ½ Ⅷ ٣ e\u0301 x\x1cy\x85z <|endoftext|> _start_"
)
# Characters whose category every engine's tables know; unassigned ones depend on the version of Unicode.
ASSIGNED = st.characters(exclude_categories=("Cs", "Cn", "Co"))
PIECES = st.one_of(
    st.text(ASSIGNED, max_size=4),
    st.sampled_from(
        ["'s", "'LL", "'re", " ", "  ", "\n", " \n", "\t", "\x1c", "\u3000", "1", "a", "!", "안", "é"]
    ),
)


@pytest.fixture(scope="module")
def small() -> Tokenizer:
    return Tokenizer.train([TEXT * 3, "the theme of the thesis " * 5], vocab_size=400)


@pytest.fixture(scope="module")
def original(golden_data: Path) -> Tokenizer:
    return Tokenizer.load("gpt2")


@settings(max_examples=150, deadline=None)
@given(st.lists(PIECES, max_size=12).map("".join))
def test_encoding_is_the_references_and_loses_nothing(small: Tokenizer, text: str) -> None:
    ids = small.encode(text)
    assert ids == reference.encode_gpt2(text, small.vocabulary)
    assert small.decode(ids) == text
    assert b"".join(map(small.token_bytes, ids)) == text.encode()


@pytest.fixture(scope="module")
def tiktokens(original: Tokenizer) -> Any:
    tiktoken = pytest.importorskip("tiktoken")
    return tiktoken.Encoding(
        "gpt2", pat_str=PATTERN, mergeable_ranks=original.ranks(), special_tokens=original.special_tokens
    )


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(PIECES, st.text(st.characters(exclude_categories=("Cs",)))), max_size=12).map("".join))
def test_original_ids_are_tiktokens(original: Tokenizer, tiktokens: Any, text: str) -> None:
    assert original.encode(text) == tiktokens.encode_ordinary(text)
    text = text.replace("!", "<|endoftext|>")
    assert original.encode(text, allow_special=True) == tiktokens.encode(text, allowed_special="all")


def test_original_ids_are_known(original: Tokenizer) -> None:
    assert original.vocabulary_size == 50257
    assert original.end_of_text == 50256
    assert original.encode("Hello world") == [15496, 995]
    assert original.encode("\n ") == [198, 220]
    assert original.encode("") == []
    with pytest.raises(MismatchError, match="no start, delimiter and extract"):
        _ = original.task_tokens
    tuned = original.with_task_tokens()
    assert tuned.task_tokens == (50257, 50258, 50259)
    assert tuned.vocabulary_size == 50260
    assert tuned.encode(TEXT) == original.encode(TEXT)


def test_special_tokens_are_text_unless_allowed(small: Tokenizer) -> None:
    text = "one<|endoftext|>two"
    plain, special = small.encode(text), small.encode(text, allow_special=True)
    assert small.end_of_text not in plain
    assert special == [*small.encode("one"), small.end_of_text, *small.encode("two")]
    assert small.decode(plain) == small.decode(special) == text


@pytest.mark.parametrize("run", ["a", " ", "\n", "안", "!", "7", "\u0301", "ab"])
def test_very_long_runs_come_back(small: Tokenizer, run: str) -> None:
    text = run * 60_000
    assert small.decode(small.encode(text)) == text


def test_every_character_survives(small: Tokenizer) -> None:
    text = "".join(chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000)
    ids, _ = small.encode_array([text])
    assert small.decode(ids.tolist()) == text


def test_halves_of_a_surrogate_pair_are_one_character(small: Tokenizer) -> None:
    tiktoken = pytest.importorskip("tiktoken")
    peer = tiktoken.Encoding("small", pat_str=PATTERN, mergeable_ranks=small.ranks(), special_tokens={})
    for text in ("\ud83d\ude00", "a \ud83d\ude00 b \U0001f600"):
        assert small.encode(text) == peer.encode(text)
    assert small.encode("\ud83d\ude00") == small.encode("\U0001f600")


def test_a_lone_surrogate_is_refused_with_its_position(small: Tokenizer) -> None:
    with pytest.raises(DataError, match=r"text 2 of 2 has the lone surrogate U\+D83D at character 3"):
        small.encode_batch(["fine", "abc\ud83d"])
    # What Python makes of a byte of the command line.
    with pytest.raises(DataError, match="the text is not UTF-8: byte 0xff at character 1"):
        small.encode(b"a\xff".decode("utf-8", "surrogateescape"))


def test_batches_and_arrays_agree_with_single_texts(small: Tokenizer) -> None:
    texts = [TEXT, "", "the", " ", "", TEXT[:50]]
    ids, offsets = small.encode_array(texts)
    assert ids.dtype == np.uint16
    assert offsets.dtype == np.int64
    single = [small.encode(text) for text in texts]
    assert small.encode_batch(texts) == single
    assert [ids[a:b].tolist() for a, b in pairwise(offsets)] == single
    assert small.encode_array([])[1].tolist() == [0]
    with pytest.raises(UsageError, match="single text"):
        small.encode_batch("text")


def test_unknown_id_is_refused(small: Tokenizer) -> None:
    with pytest.raises(UsageError, match="999999 is not a token id"):
        small.decode([0, 999999])
    with pytest.raises(TypeError, match="float"):
        small.decode([1.5])  # type: ignore[list-item]
    with pytest.raises(UsageError, match="-1 is not a token id"):
        small.token_bytes(-1)


@pytest.mark.slow
def test_original_ids_are_the_references_on_novels(original: Tokenizer, data: Path) -> None:
    path = data / "train-text" / "novels" / "english_novels_40mb.txt"
    with path.open(encoding="utf-8") as handle:
        text = handle.read(2_000_000)
    ranks = {pair: rank for rank, pair in enumerate(original.vocabulary.merges)}
    cache: dict[str, list[int]] = {}
    expected: list[int] = []
    for piece in reference.split_gpt2(text):
        if piece not in cache:
            symbols = [reference.BYTE_CHARACTERS[byte] for byte in piece.encode()]
            cache[piece] = [original.vocabulary.ids[s] for s in reference.merge_word(symbols, ranks)]
        expected += cache[piece]
    assert original.encode_array([text])[0].tolist() == expected


def agree(tokenizer: Tokenizer, engine: GigatokenEngine, texts: list[str]) -> bool:
    """Return whether the library and gigatoken give the same ids and offsets."""
    expected = tokenizer._codec.encode_array(texts, frozenset())
    return all(map(np.array_equal, expected, engine.encode(texts)))


def borders() -> Iterator[str]:
    """Yield texts with code points at every border of a category, next to letters, numbers and signs."""
    codes = [code for code in range(0x32400) if not 0xD800 <= code < 0xE000]
    category = [unicodedata.category(chr(code))[0] for code in codes]
    edges = {at for at in range(1, len(codes)) if category[at] != category[at - 1] or at % 257 == 0}
    chosen = [codes[at] for at in sorted(edges | {at - 1 for at in edges})] + [0xE0001, 0xE0100, 0xF0000, 0x10FFFD]
    for start in range(0, len(chosen), 500):
        yield "".join(f"a{c}1{c} {c} !{c}" for c in map(chr, chosen[start : start + 500]))


@pytest.mark.parametrize("vocabulary", ["small", "original", "korean"])
def test_gigatoken_gives_the_librarys_ids(
    vocabulary: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("gigatoken")
    assert importlib.metadata.version("gigatoken") == codec.TESTED
    if vocabulary == "korean":
        tokenizer = Tokenizer.train(
            ["대한민국의 주권은 국민에게 있고, 모든 권력은 국민으로부터 나온다. 강물은 바다로"], vocab_size=330
        )
    else:
        tokenizer = request.getfixturevalue(vocabulary)
    spelled = "".join(tokenizer.token_text(i) for i in tokenizer.vocabulary.plain_ids.values())
    names = " ".join(tokenizer.special_tokens) + "".join(tokenizer.special_tokens)
    runs = [" " * 70_000 + "x", "\n" * 5_000 + " a", "a" * 40_000, "=" * 20_000, "7" * 20_000, "\u00e9" * 9_000]
    lines = "I'm we'll they've you're he'd it's don't I'M WE'LL THEY'VE 's't're've'm'll'd ''s ' s \u2019s"
    spaces = "  two   three\t\ttabs \r\n\r\n \n \n \u3000\u00a0 x \x1c\x1d\x1e\x1f \x85 \u2028 \u180e\u1680 ."
    texts = ["", *borders(), *runs, lines, spaces, names, spelled, TEXT]
    engine = GigatokenEngine(tokenizer.vocabulary)
    assert agree(tokenizer, engine, texts)
    assert all(agree(tokenizer, engine, [text]) for text in texts)
    expected = tokenizer.encode_array(texts)
    monkeypatch.setattr(codec, "_LONG", 5)
    fresh = Tokenizer(tokenizer.vocabulary)
    assert all(map(np.array_equal, fresh.encode_array(texts), expected))
    halves, whole = ["a river", "\ud83d\ude00 ran"], ["a river", "\U0001f600 ran"]
    assert all(map(np.array_equal, fresh.encode_array(halves), fresh.encode_array(whole)))
    with pytest.raises(DataError, match="text 2 of 2 has the lone surrogate"):
        fresh.encode_array(["a river", "\ud83d ran"])


@pytest.mark.parametrize("release", ["0.11.0", None])
def test_another_release_of_gigatoken_is_not_used(
    small: Tokenizer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, release: str | None
) -> None:
    def version(name: str) -> str:
        if release is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return release

    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setattr(codec, "_LONG", 5)
    monkeypatch.setattr(codec, "_MANY", 2 * len(TEXT))
    fresh = Tokenizer(small.vocabulary)
    for warnings in ([], ["WARNING"], ["WARNING"]):  # a little text is encoded before anyone would wait
        assert fresh.encode_array([TEXT])[0].tolist() == small.encode(TEXT)
        assert [record.levelname for record in caplog.records] == warnings
    assert (release or "headwater[fast]") in caplog.text


def test_long_texts_are_cut_where_no_token_is(small: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [AddedToken("<a b>"), AddedToken("<c>", rstrip=True), AddedToken("<d>", lstrip=True)]
    special = small.vocabulary.with_specials(t.content for t in names)
    wide = Tokenizer(replace(special, added=(*small.vocabulary.added, *names)))
    text = TEXT + " <a b>  <c>  x  <d> <a b> y" + TEXT
    expected = [(t.encode(text), t.encode(text, allow_special=True)) for t in (small, wide)]
    monkeypatch.setattr(codec, "_CUT_CHARACTERS", 3)
    assert [(t.encode(text), t.encode(text, allow_special=True)) for t in (small, wide)] == expected


@pytest.mark.slow
def test_engines_agree_on_every_code_point(original: Tokenizer) -> None:
    pytest.importorskip("gigatoken")
    engine = GigatokenEngine(original.vocabulary)
    codes = [code for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) != "Cs"]
    for form in ("a{0}b1{0}2", " {0} {0}!"):
        texts = [form.format(chr(code)) for code in codes]
        for start in range(0, len(texts), 100_000):
            assert agree(original, engine, texts[start : start + 100_000])


def test_threads_take_turns_with_an_engine_of_one_caller(small: Tokenizer) -> None:
    pytest.importorskip("gigatoken")
    engine = GigatokenEngine(small.vocabulary)
    real, taken = engine._tokenizer, threading.Lock()

    class Exclusive:
        def encode(self, text: str) -> Any:
            if not taken.acquire(blocking=False):
                raise RuntimeError("Already borrowed")
            try:
                for _ in range(200):
                    time.sleep(0)  # let the others run
                return real.encode(text)
            finally:
                taken.release()

    engine._tokenizer = Exclusive()
    with ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(lambda _: engine.encode(["the river"])[0].tolist(), range(100)))
    assert ids == [small.encode("the river")] * 100
