"""The held-out part: disjoint from training, together the whole, and independent of order."""

from __future__ import annotations

import hashlib
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.corpus import Division, Document, split
from headwater.errors import UsageError

MakeCorpus = Callable[[Sequence[Document]], Path]


def make_documents(count: int, characters: int = 60) -> list[Document]:
    generator = random.Random(7)
    words = ["river", "stone", "강물", "light", "\n\n", "over"]
    return [
        Document(id=f"id-{i}", text=" ".join(generator.choices(words, k=characters // 6)) + f" {i}")
        for i in range(count)
    ]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=("Cs",)), min_size=1)), st.floats(0.01, 0.5))
def test_the_parts_joined_are_the_documents(texts: list[str], fraction: float) -> None:
    sizes = [len(text.encode()) for text in texts]
    division = Division(fraction, sum(sizes), max(sizes, default=0), (False, True))
    for number, text in enumerate(texts):
        document = Document(id=str(number), text=text, labels={"package": "p"})
        parts = division.parts(document)
        assert "".join(piece.text for _, piece in parts) == text
        assert [part for part, _ in parts] in (["train"], ["validation"], ["train", "validation"])
        assert all(piece.id == document.id and piece.labels == document.labels for _, piece in parts)


def test_many_documents_are_held_out_whole(make_corpus: MakeCorpus) -> None:
    documents = make_documents(2000)
    found: dict[str, list[Document]] = defaultdict(list)
    for part, document in split(make_corpus(documents), 0.05):
        found[part].append(document)
    assert sorted(d.id for d in found["train"] + found["validation"]) == sorted(d.id for d in documents)
    assert 60 < len(found["validation"]) < 140
    texts = {document.id: document.text for document in documents}
    assert all(texts[document.id] == document.text for document in found["validation"])
    hashes = {id_: int.from_bytes(hashlib.sha256(id_.encode()).digest()[:8], "big") for id_ in texts}
    assert {d.id for d in found["validation"]} == {id_ for id_, value in hashes.items() if value < 0.05 * 2**64}


def test_the_held_out_part_does_not_depend_on_order(make_corpus: MakeCorpus) -> None:
    documents = make_documents(1000)
    turned = documents[::-1]
    there, back = ({d.id for p, d in split(make_corpus(x), 0.1) if p == "validation"} for x in (documents, turned))
    assert there == back


@pytest.mark.parametrize("side", ["train", "validation"])
def test_a_part_of_a_split_can_be_split_again(make_corpus: MakeCorpus, side: str) -> None:
    documents = make_documents(4000)
    part = [document for name, document in split(make_corpus(documents), 0.5) if name == side]
    for fraction in (0.05, 0.5):
        sizes = Counter(name for name, _ in split(make_corpus(part), fraction))
        assert sizes.total() == len(part)
        assert 0.02 < sizes["validation"] / len(part) < 2 * fraction, "as many as the fraction says"
        assert sizes["train"]


def test_few_documents_give_their_tails(make_corpus: MakeCorpus) -> None:
    documents = make_documents(5, characters=4000)
    parts = list(split(make_corpus(documents), 0.1))
    held = [document for part, document in parts if part == "validation"]
    assert [document.id for document in held] == [document.id for document in documents]
    for whole, tail in zip(documents, held, strict=True):
        assert whole.text.endswith(tail.text)
        assert 0.08 < len(tail.text) / len(whole.text) < 0.14


def test_a_large_document_among_small_ones_is_cut(make_corpus: MakeCorpus) -> None:
    novel = Document(id="novel", text="The river ran on. " * 20_000)
    parts = list(split(make_corpus([*make_documents(3000), novel]), 0.05))
    assert [part for part, document in parts if document.id == "novel"] == ["train", "validation"]
    held = sum(len(document.text) for part, document in parts if part == "validation")
    whole = sum(len(document.text) for _, document in parts)
    assert 0.03 < held / whole < 0.08


@pytest.mark.parametrize("fraction", [0, -1, 0.6, float("nan")])
def test_a_fraction_that_is_none_is_refused(tmp_path: Path, fraction: float) -> None:
    with pytest.raises(UsageError, match="fraction"):
        next(split(tmp_path, fraction))
