"""Near duplicates: what MinHash proposes and the 5-grams decide, against all pairs compared outright."""

from __future__ import annotations

import random
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.corpus import near_duplicates
from headwater.corpus.dedup import keys as arrays
from headwater.corpus.dedup.keys import FINGERPRINT_ROW, copies_in, first_rows, key_ranges
from headwater.corpus.dedup.near import (
    KEY_ROW,
    MinHash,
    ShingleFiles,
    jaccard,
    pairs_in,
    split_pairs,
    write_shingles,
)


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


def found_pairs(paths: list[Path], gone: Any = None) -> list[tuple[int, int]]:
    pairs = pairs_in(paths, first_rows(paths, KEY_ROW), 0, 2**64 - 1, gone)
    return list(zip(*(ends.tolist() for ends in split_pairs(pairs)), strict=True))


@pytest.mark.parametrize("partition_keys", [100, 10**6])
def test_recall_and_precision_against_all_pairs(
    tmp_path: Path, partition_keys: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrays, "PARTITION_ROWS", partition_keys)
    texts = make_texts(600)
    goes, stay = near_duplicates(lambda: texts, tmp_path)
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
    paths = [tmp_path / f"{number}.bin" for number in range(6)]
    for number, path in enumerate(paths):
        write_shingles(texts[2 * number : 2 * number + 2], path)
    sets, maker = ShingleFiles(paths, range(0, 13, 2)), MinHash()
    for place in random.Random(3).choices(range(12), k=60):
        assert np.array_equal(sets[place], maker.shingles(texts[place]))


def test_documents_gone_already_take_no_part(tmp_path: Path) -> None:
    texts = ["one two three four five six seven"] * 3
    paths = save_keys(tmp_path, texts, 1)
    gone = np.array([True, False, False])
    assert found_pairs(paths, gone) == [(1, 2)]


def test_texts_without_words_are_like_no_other(tmp_path: Path) -> None:
    paths = save_keys(tmp_path, ["", "...", "!!!", "a", "a"], 2)
    assert found_pairs(paths) == [(3, 4)]


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
@given(st.lists(st.lists(st.integers(0, 5), max_size=9), min_size=1, max_size=4), st.sampled_from([2, 10**6]))
def test_copies_are_detected_in_any_partition(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[int]], rows: int
) -> None:
    folder, paths = tmp_path_factory.mktemp("fingerprints"), []
    for number, part in enumerate(parts):
        paths.append(folder / f"{number}")  # both halves of a key matter
        paths[-1].write_bytes(
            b"".join(bytes([0 if text < 3 else 200, *[0] * 7, *[text % 3] * 8]) for text in part)
        )
    every = [text for part in parts for text in part]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays, "PARTITION_ROWS", rows)
        starts = first_rows(paths, FINGERPRINT_ROW)
        found = [copies_in(paths, starts, *keys).tolist() for keys in key_ranges(starts[-1])]
    assert sorted(chain.from_iterable(found)) == [n for n, text in enumerate(every) if text in every[:n]]
