"""Labelled data: from the right part, the right form, and no way to the answer but the text."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from headwater.corpus import Document
from headwater.errors import DataError
from headwater.quickstart import make_labels

MakeCorpus = Callable[[Sequence[Document]], Path]
WORDS = ["array", "matrix", "graph", "tensor", "node", "edge", "value", "returns", "gives", "the", "of", "axis"]


def book(seed: int, words: int = 30_000) -> str:
    generator = random.Random(seed)
    own = [f"word{seed}x{generator.randint(0, 400)}" for _ in range(600)]
    return " ".join(generator.choice(own) + ("." if i % 11 == 0 else "") for i in range(words))


def rows_of(folder: Path, part: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{part}.jsonl").read_text("utf-8").splitlines()]


def test_packages_are_classes_with_balanced_rows(make_corpus: MakeCorpus, tmp_path: Path) -> None:
    generator = random.Random(11)
    documents = [
        Document(id=f"{package}-{i}", text=" ".join(generator.choices(WORDS, k=90)), labels={"package": package})
        for package, count in (("numpy", 900), ("networkx", 300), ("torch", 300))
        for i in range(count)
    ]
    found = make_labels(make_corpus(documents), tmp_path / "labels", 0.1)
    assert found["classes"] == ["networkx", "numpy", "torch"]
    train, held = rows_of(tmp_path / "labels", "train"), rows_of(tmp_path / "labels", "validation")
    assert found["counts"] == {"train": len(train), "validation": len(held)}
    for rows in (train, held):
        sizes = Counter(row["label"] for row in rows)
        assert max(sizes.values()) <= 2 * min(sizes.values())
    assert not {row["text"] for row in train} & {row["text"] for row in held}


def test_sources_are_files_and_one_has_no_classes(make_corpus: MakeCorpus, tmp_path: Path) -> None:
    texts = [book(seed) for seed in (1, 2, 3)]
    files = make_corpus([Document(id=str(i), text=t, source=f"{i}.txt") for i, t in enumerate(texts)])
    assert make_labels(files, tmp_path / "a", 0.1)["classes"] == ["0.txt", "1.txt", "2.txt"]
    single = make_corpus([Document(id="0", text=texts[0], source="one.txt")])
    with pytest.raises(DataError, match="two or more files"):
        make_labels(single, tmp_path / "c", 0.1)


def test_the_same_seed_gives_the_same_files(make_corpus: MakeCorpus, tmp_path: Path) -> None:
    corpus = make_corpus([Document(id=f"b{i}", text=book(i), source=f"{i}.txt") for i in (1, 2)])
    for name, seed in (("one", 0), ("two", 0), ("three", 1)):
        make_labels(corpus, tmp_path / name, 0.1, seed=seed)
    contents = [(tmp_path / name / "train.jsonl").read_bytes() for name in ("one", "two", "three")]
    assert contents[0] == contents[1] != contents[2]


def test_too_little_text_is_named(make_corpus: MakeCorpus, tmp_path: Path) -> None:
    corpus = make_corpus([Document(id="0", text=book(1, 200))])
    with pytest.raises(DataError, match="0 train examples of sources; expected at least 32"):
        make_labels(corpus, tmp_path / "labels")
    assert not (tmp_path / "labels").exists()
