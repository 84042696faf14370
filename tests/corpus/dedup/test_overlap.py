import re
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.corpus import TrainingGrams, build_corpus, measure_overlap, split_words
from headwater.corpus.dedup.overlap import GramIndex, Grams
from headwater.errors import DataError, FolderError, UsageError
from headwater.storage import Progress

TEXT = st.text("ab C9.,\n'é中ไ_", max_size=200) | st.text(max_size=80)


SPACELESS = (
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    r"\uf900-\ufaff\U00020000-\U0003ffff]"
)


def slow_words(text: str) -> list[str]:
    """One character after the other."""
    words = [""]
    for character in unicodedata.normalize("NFC", text).lower():
        if re.match(SPACELESS, character):
            words += [character, ""]
        elif character.isalnum() or (words[-1] and unicodedata.category(character)[0] == "M"):
            words[-1] += character
        else:
            words.append("")
    return [word for word in words if word]


@settings(deadline=None)
@given(TEXT)
def test_words_are_runs_of_letters_and_digits_in_lower_case(text: str) -> None:
    words = [word.decode() if isinstance(word, bytes) else word for word in split_words(text)]
    assert words == slow_words(text)


def test_every_mark_belongs_to_the_word_before_it() -> None:
    marks = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code))[0] == "M"]
    text = "\n".join(f"a{mark}" for mark in marks)
    assert [word if isinstance(word, str) else word.decode() for word in split_words(text)] == slow_words(text)


def test_both_unicode_forms_of_a_word_are_equal() -> None:
    text = "긍정 평가, Café"
    assert split_words(unicodedata.normalize("NFD", text)) == split_words(text)


def test_words_of_any_language_are_matched() -> None:
    words = [
        w.decode() if isinstance(w, bytes) else w
        for w in split_words("Das Café—Größe 3,5; река 강물이 中文字。 हिन्दी")
    ]
    assert words == ["das", "café", "größe", "3", "5", "река", "강물이", "中", "文", "字", "हिन्दी"]


@settings(deadline=None)
@given(
    st.lists(st.text("ab ", max_size=60), max_size=6),
    st.lists(st.text("ab ", max_size=60), max_size=4),
    st.integers(1, 4),
)
def test_shares_are_those_of_plain_sets(train: list[str], tests: list[str], words: int) -> None:
    def grams(text: str) -> list[tuple[str, ...]]:
        found = text.split()
        return [tuple(found[i : i + words]) for i in range(len(found) - words + 1)]

    known = {gram for text in train for gram in grams(text)}
    training = TrainingGrams(train, tests, words)
    assert training.count == sum(len(grams(text)) for text in train)
    expected = [(sum(gram in known for gram in grams(text)), len(grams(text))) for text in tests]
    assert training.shares(tests) == expected


@settings(deadline=None)
@given(
    st.lists(st.text("ab ", max_size=60), min_size=1, max_size=6), st.text("ab ", max_size=60), st.integers(1, 4)
)
def test_the_index_finds_what_plain_sets_find(train: list[str], test: str, words: int) -> None:
    grams = Grams(words)
    index = GramIndex([grams.of(test)])
    assert sorted(index.hashes.tolist()) == sorted(set(grams.of(test).tolist()))
    for text in train:
        shared = [value for value in grams.of(text).tolist() if value in set(index.hashes.tolist())]
        assert index.hashes[index.places(grams.of(text))].tolist() == shared


def test_an_overlap_needs_memory_for_the_tests_only(tmp_path: Path) -> None:
    (tmp_path / "test.txt").write_text("one two three four five six seven eight nine")
    found = []
    for size in (100, 30_000):
        train = tmp_path / f"{size}.txt"
        train.write_text(" ".join(f"word{number}" for number in range(size)))
        found.append(measure_overlap(train, [tmp_path / "test.txt"])["index_bytes"])
    assert found[0] == found[1] < 1000


@pytest.mark.parametrize("piece", [1, 40, 100])
def test_a_long_document_has_the_same_grams_in_pieces(monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    text = " ".join(f"word{i % 97}" for i in range(3000))
    whole = Grams().of(text)
    monkeypatch.setattr("headwater.corpus.dedup.overlap._PIECE", piece)
    monkeypatch.setattr("headwater.corpus.dedup.overlap._TOGETHER", 50)
    assert np.array_equal(Grams().of(text), whole)
    assert len(whole) == 3000 - 7


def test_the_table_names_texts_and_their_own_training_parts(tmp_path: Path) -> None:
    sentence = "one two three four five six seven eight"
    (tmp_path / "train.txt").write_text(f"{sentence} nine ten", encoding="utf-8")
    (tmp_path / "test.txt").write_text(
        f"ONE, two... three four five six-seven eight. {sentence}", encoding="utf-8"
    )
    (tmp_path / "own.txt").write_text("nothing of the kind is here at all my dear", encoding="utf-8")
    found = measure_overlap(tmp_path / "train.txt", [tmp_path / "test.txt"], [tmp_path / "own.txt"])
    (row,) = found["rows"]
    assert (row["name"], row["grams"], row["own"]) == ("test.txt", 9, 0)
    assert row["train"] == pytest.approx(100 * 2 / 9)
    assert found["train_grams"] == 3
    with pytest.raises(UsageError, match="one each"):
        measure_overlap(tmp_path / "train.txt", [tmp_path / "test.txt"] * 2, [tmp_path / "own.txt"])
    with pytest.raises(FolderError, match=r"has no headwater\.json"):
        measure_overlap(tmp_path, [tmp_path / "test.txt"])
    (tmp_path / "short.txt").write_text("too short", encoding="utf-8")
    with pytest.raises(DataError, match=r"short\.txt"):
        measure_overlap(tmp_path / "train.txt", [tmp_path / "short.txt"])


def test_a_broken_row_of_a_test_text_is_counted(tmp_path: Path) -> None:
    notes: list[str] = []
    progress = Progress()
    progress.note = notes.append  # type: ignore[method-assign]
    sentence = "one two three four five six seven eight"
    (tmp_path / "train.txt").write_text(sentence, encoding="utf-8")
    rows = [f'{{"text": "{sentence}"}}', '{"text": broken', f'{{"text": "{sentence} nine"}}']
    (tmp_path / "test.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    (row,) = measure_overlap(tmp_path / "train.txt", [tmp_path / "test.jsonl"], progress=progress)["rows"]
    assert (row["documents"], row["grams"]) == (2, 3)
    (note,) = notes
    assert note.startswith("left out: rows that cannot be read: 1 (first: test.jsonl line 2 is not JSON")


def test_a_set_without_a_text_column_is_named_with_a_repair(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the river runs " * 10)
    (tmp_path / "set.csv").write_text("question,answer\none,two\n")
    words = (
        r'set\.csv has no text column "text", only question, answer\. Rename the column of the text to "text"\.'
    )
    with pytest.raises(DataError, match=words):
        measure_overlap(tmp_path / "a.txt", [tmp_path / "set.csv"])
    (tmp_path / "empty.txt").touch()
    with pytest.raises(DataError, match=r"empty\.txt has fewer than 8 words"):  # not an overlap of 0 %
        measure_overlap(tmp_path / "empty.txt", [tmp_path / "a.txt"])
    with pytest.raises(DataError, match="as --text-field question"):
        build_corpus([tmp_path / "set.csv"], tmp_path / "out")
