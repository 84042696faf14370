"""Near duplicates: what MinHash proposes and the 5-grams decide, against all pairs compared outright."""

from __future__ import annotations

import random
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.corpus.dedup import near
from headwater.corpus.dedup.keys import exact_copies
from headwater.corpus.dedup.near import (
    MinHash,
    ShingleFiles,
    candidate_pairs,
    choose_removed,
    jaccard,
    split_pairs,
    write_shingles,
)
from headwater.errors import ResourceError


def make_texts(count: int) -> list[str]:
    """Texts of which about half are copies of others with a share of words changed."""
    generator = random.Random(9)
    texts: list[list[str]] = []
    while len(texts) < count:
        base = [f"w{generator.randint(0, 5000)}" for _ in range(generator.randint(30, 200))]
        texts.append(base)
        for rate in generator.sample([0.0, 0.005, 0.01, 0.02, 0.04, 0.1], generator.randint(0, 2)):
            texts.append([w if generator.random() > rate else "changed" for w in base])
    generator.shuffle(texts)
    return [" ".join(text) for text in texts[:count]]


def save_keys(folder: Path, texts: list[str], parts: int) -> list[Path]:
    maker = MinHash()
    paths = []
    for number, chunk in enumerate(np.array_split(np.arange(len(texts)), parts)):
        paths.append(folder / f"{number}")
        paths[-1].write_bytes(b"".join(maker.keys(texts[i]).tobytes() for i in chunk))
    return paths


def candidates(paths: list[Path], gone: list[bool]) -> list[tuple[int, int]]:
    pairs = candidate_pairs(paths, np.array(gone, bool))
    return list(zip(*(ends.tolist() for ends in split_pairs(pairs)), strict=True))


def test_recall_and_precision_against_all_pairs(tmp_path: Path) -> None:
    texts = make_texts(600)
    pairs = candidate_pairs(save_keys(tmp_path, texts, 7), np.zeros(len(texts), bool))
    wanted = np.union1d(*split_pairs(pairs))
    write_shingles((texts[number] for number in wanted), tmp_path)
    goes, stay = choose_removed(pairs, wanted, ShingleFiles([tmp_path]), 0.8)
    assert sorted(goes) == goes.tolist()
    gone = dict(zip(goes.tolist(), stay.tolist(), strict=True))
    maker = MinHash()
    sets = [maker.shingles(text) for text in texts]
    for document, like in gone.items():
        assert like < document
        assert like not in gone, "it stays"
        assert jaccard(sets[document], sets[like]) >= 0.8
    stays = [n for n in range(len(texts)) if n not in gone]
    missed = [(a, b) for a, b in combinations(stays, 2) if jaccard(sets[a], sets[b]) >= 0.8]
    assert len(gone) > 50
    assert len(missed) <= 0.05 * (len(gone) + len(missed))


def test_shingles_of_many_tasks_are_read_in_any_order(tmp_path: Path) -> None:
    texts = make_texts(12)
    folders = [tmp_path / f"{number}" for number in range(6)]
    for number, folder in enumerate(folders):
        folder.mkdir()
        write_shingles(texts[3 * (number // 2) : 3 * (number // 2) + 3 * (number % 2)], folder)
    sets, maker = ShingleFiles(folders), MinHash()
    for place in random.Random(3).choices(range(9), k=60):
        assert np.array_equal(sets[place], maker.shingles(texts[place]))


def test_documents_gone_already_take_no_part(tmp_path: Path) -> None:
    texts = ["one two three four five six seven"] * 3
    paths = save_keys(tmp_path, texts, 1)
    assert candidates(paths, [True, False, False]) == [(1, 2)]


def test_texts_without_words_are_like_no_other(tmp_path: Path) -> None:
    paths = save_keys(tmp_path, ["", "...", "!!!", "a", "a"], 2)
    assert candidates(paths, [False] * 5) == [(3, 4)]


def test_more_documents_than_numbers_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near, "MOST_DOCUMENTS", 2)
    with pytest.raises(ResourceError, match="among 3 documents; expected at most 2"):
        candidates(save_keys(tmp_path, ["a", "b", "c"], 1), [False] * 3)


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 5), max_size=9), min_size=1, max_size=4))
def test_each_document_with_a_key_is_paired_with_the_first_and_the_previous_one(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[int]]
) -> None:
    folder, every = tmp_path_factory.mktemp("keys"), [key for part in parts for key in part]
    paths = [folder / f"{number}" for number in range(len(parts))]
    for path, part in zip(paths, parts, strict=True):
        path.write_bytes(np.repeat(np.array(part, np.uint64), near.BANDS).tobytes())
    wanted = set()
    for number, key in enumerate(every):
        same = [earlier for earlier in range(number) if every[earlier] == key != 0]
        wanted |= {(earlier, number) for earlier in same[:1] + same[-1:]}
    assert candidates(paths, [False] * len(every)) == sorted(wanted)


def test_keys_do_not_depend_on_what_came_before() -> None:
    texts = make_texts(20)
    used = MinHash()
    for text in texts:
        used.keys(text * 3)
    assert all((used.keys(text) == MinHash().keys(text)).all() for text in texts)
    long = " ".join(texts)
    assert (MinHash().keys(long) == MinHash().keys(long)).all()


@pytest.mark.parametrize("one", ["水流石光上山高天地人大小中国文字花鳥風月" * 3, "我用Python3写代码很开心" * 3])
def test_scripts_without_spaces_have_words(one: str) -> None:
    maker = MinHash()
    assert jaccard(maker.shingles(one), maker.shingles(one[:-1])) > 0.9
    assert (
        jaccard(
            maker.shingles("강물이 산에서 바다로 천천히 흐른다"),
            maker.shingles("다른 글은 전혀 비슷하지 않다고 한다"),
        )
        == 0
    )


def test_vowel_signs_are_parts_of_words() -> None:
    maker = MinHash()
    assert jaccard(maker.shingles("वह दिन भर काम करता"), maker.shingles("वह दीन भर काम करता")) == 0


def test_similarity_is_that_of_sets_of_five_words() -> None:
    maker = MinHash()
    one, other = maker.shingles("a b c d e f"), maker.shingles("b c d e f g")
    assert jaccard(one, other) == pytest.approx(1 / 3)
    assert jaccard(maker.shingles("A, b; c d. e"), maker.shingles("a b c d e")) == 1
    assert jaccard(maker.shingles("short one"), maker.shingles("Short  one!")) == 1
    assert jaccard(maker.shingles(""), maker.shingles("")) == 0


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 5), max_size=9), min_size=1, max_size=4))
def test_copies_are_detected_in_all_parts(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[int]]
) -> None:
    folder, paths = tmp_path_factory.mktemp("fingerprints"), []
    for number, part in enumerate(parts):
        paths.append(folder / f"{number}")  # both halves of a key matter
        paths[-1].write_bytes(
            b"".join(bytes([0 if text < 3 else 200, *[0] * 7, *[text % 3] * 8]) for text in part)
        )
    every = [text for part in parts for text in part]
    assert exact_copies(paths).tolist() == [text in every[:n] for n, text in enumerate(every)]
