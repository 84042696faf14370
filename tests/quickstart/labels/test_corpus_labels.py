"""Labelled data: from the right part, the right form, and no way to the answer but the text."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from headwater.cli.main import main
from headwater.corpus import Document, read_documents, split
from headwater.errors import DataError, UsageError
from headwater.quickstart import choose_tasks, make_labels
from headwater.quickstart.labels.docstring_tasks import MASK, shorten
from headwater.quickstart.labels.passage_tasks import AS_WRITTEN, SHUFFLED

MakeCorpus = Callable[[Sequence[Document]], Path]
WORDS = ["array", "matrix", "graph", "tensor", "node", "edge", "value", "returns", "gives", "the", "of", "axis"]


def docs_corpus(make_corpus: MakeCorpus) -> Path:
    """Three packages of 400 documents, as python-docs writes them."""
    generator = random.Random(11)
    documents = []
    for package, short in (("numpy", "np"), ("networkx", "nx"), ("torch", "torch")):
        for i in range(400):
            name = f"function_{i}"
            signature = f"{name}({', '.join(generator.sample(WORDS, 3))})"
            body = " ".join(generator.choices(WORDS, k=30)) + f". See {package}.other and Py{package.title()}."
            body += f"\n\n>>> {short}.load({generator.random()})" + " more words" * generator.randint(0, 40)
            if i % 2:
                body = f"{name.upper()} is named here. {body}"
            labels = {"package": package, "module": package, "object": name, "signature": signature}
            documents.append(Document(id=f"{package}-{i}", text=f"{signature}\n\n{body}", labels=labels))
    return make_corpus(documents)


def book(seed: int, words: int = 30_000) -> str:
    generator = random.Random(seed)
    own = [f"word{seed}x{generator.randint(0, 400)}" for _ in range(600)]
    return " ".join(generator.choice(own) + ("." if i % 11 == 0 else "") for i in range(words))


def rows_of(folder: Path, part: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{part}.jsonl").read_text("utf-8").splitlines()]


def test_packages_are_balanced_and_their_names_hidden(make_corpus: MakeCorpus, tmp_path: Path) -> None:
    corpus = docs_corpus(make_corpus)
    found = make_labels(corpus, "package", tmp_path / "labels", 0.1)
    assert found["classes"] == ["networkx", "numpy", "torch"]
    assert found["format"] == "classification"
    train, held = rows_of(tmp_path / "labels", "train"), rows_of(tmp_path / "labels", "validation")
    assert found["counts"] == {"train": len(train), "validation": len(held)}
    for rows in (train, held):
        sizes = Counter(row["label"] for row in rows)
        assert max(sizes.values()) <= 2 * min(sizes.values())
        for row in rows:
            words = row["text"].lower().replace(".", " ").split()
            assert not [word for word in words if "numpy" in word or "torch" in word or "networkx" in word]
            assert not {"np", "nx"} & set(words)
            assert MASK in row["text"]
            assert "(" not in row["text"].split()[0], "the signature stays out"
    assert not {row["text"] for row in train} & {row["text"] for row in held}


def test_signature_rows_match_their_docstrings(make_corpus: MakeCorpus, tmp_path: Path) -> None:
    corpus = docs_corpus(make_corpus)
    found = make_labels(corpus, "signature", tmp_path / "labels", 0.1)
    assert (found["format"], found["chance"], found["majority"]) == ("choice", 0.25, 0.25)
    parts: dict[str, list[str]] = {"train": [], "validation": []}
    for part, document in split(corpus, 0.1):
        parts[part].append(document.text)
    for part, texts in parts.items():
        rows = rows_of(tmp_path / "labels", part)
        assert rows
        right, wrong = Counter[str](), Counter[str]()
        for row in rows:
            assert len(set(row["answers"])) == 4
            answer = row["answers"][row["label"]]
            whole = row["context"] + answer
            assert any(text.startswith(whole) for text in texts), "as it stands in this part"
            assert row["context"].split("(")[0] not in answer.lower(), "own name not in the answer"
            for other in row["answers"]:
                assert any(other in text for text in texts), "wrong answers are of the same part"
            right[answer] += 1
            wrong.update(other for other in row["answers"] if other != answer)
        assert set(right.values()) == {1}
        assert set(wrong.values()) == {3}, "an answer alone tells nothing: each is right once, wrong three times"
        assert len(set(Counter(row["label"] for row in rows).values())) == 1


def test_continuations_continue_in_any_language(make_corpus: MakeCorpus, tmp_path: Path) -> None:
    korean = " ".join(
        random.Random(5).choices(["강물이", "흐른다", "돌", "빛.", "위로", "산은", "높다"], k=30_000)
    )
    chinese = "".join(random.Random(6).choices("水流石光上山高天地人大小中国文字", k=30_000))
    corpus = make_corpus([Document(id=str(i), text=t) for i, t in enumerate([book(1), korean, chinese])])
    make_labels(corpus, "continuation", tmp_path / "labels", 0.1)
    parts: dict[str, list[str]] = {"train": [], "validation": []}
    for part, document in split(corpus, 0.1):
        parts[part].append(document.text)
    for part, texts in parts.items():
        rows = rows_of(tmp_path / "labels", part)
        assert rows
        for row in rows:
            answers = row["answers"]
            assert any(row["context"] + answers[row["label"]] in text for text in texts)
            wrong = [a for i, a in enumerate(answers) if i != row["label"]]
            assert not any(row["context"] + a in text for a in wrong for text in texts)
            assert all(len(answer) <= 120 for answer in answers)


def test_sources_are_files_then_documents_then_word_order(make_corpus: MakeCorpus, tmp_path: Path) -> None:
    texts = [book(seed) for seed in (1, 2, 3)]
    files = make_corpus([Document(id=str(i), text=t, source=f"{i}.txt") for i, t in enumerate(texts)])
    assert make_labels(files, "source", tmp_path / "a", 0.1)["classes"] == ["0.txt", "1.txt", "2.txt"]
    novels = make_corpus([Document(id=str(i), text=t, source="all.txt") for i, t in enumerate(texts)])
    classes = make_labels(novels, "source", tmp_path / "b", 0.1)["classes"]
    assert [name.partition(":")[0] for name in classes] == ["1", "2", "3"]
    assert all(row["label"].split(": ")[1][:6] in row["text"] for row in rows_of(tmp_path / "b", "train"))
    single = make_corpus([Document(id="0", text=texts[0], source="one.txt")])
    assert make_labels(single, "source", tmp_path / "c", 0.1)["classes"] == [AS_WRITTEN, SHUFFLED]
    flat = " ".join(texts[0].split())
    held = rows_of(tmp_path / "c", "validation")
    for row in held:
        assert (row["text"] in flat) == (row["label"] == AS_WRITTEN)
    assert abs(sum(1 if row["label"] == SHUFFLED else -1 for row in held)) <= 2
    train_words = [sorted(row["text"].split()) for row in rows_of(tmp_path / "c", "train")]
    assert not [row for row in held if sorted(row["text"].split()) in train_words]


def test_tasks_fit_the_corpus(make_corpus: MakeCorpus) -> None:
    assert choose_tasks(docs_corpus(make_corpus)) == ("package", "signature")
    assert choose_tasks(make_corpus([Document(id="0", text=book(1, 100))])) == ("source", "continuation")


@pytest.mark.parametrize("task", ["package", "signature", "source", "continuation"])
def test_the_same_seed_gives_the_same_files(make_corpus: MakeCorpus, tmp_path: Path, task: str) -> None:
    documents = list(read_documents(docs_corpus(make_corpus)))
    long = [Document(id=f"b{i}", text=book(i)) for i in (1, 2)]
    corpus = make_corpus([*documents, *long])
    for name, seed in (("one", 0), ("two", 0), ("three", 1)):
        make_labels(corpus, task, tmp_path / name, 0.1, seed=seed)
    contents = [(tmp_path / name / "train.jsonl").read_bytes() for name in ("one", "two", "three")]
    assert contents[0] == contents[1] != contents[2]


def test_too_little_text_and_unknown_tasks_are_named(
    make_corpus: MakeCorpus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = make_corpus([Document(id="0", text=book(1, 200))])
    for task in ("package", "signature", "source", "continuation"):
        with pytest.raises(DataError, match=task) as caught:
            make_labels(corpus, task, tmp_path / "labels")
        assert "train examples" in str(caught.value)
        assert "--validation" not in str(caught.value)  # a larger one leaves even fewer for training
    assert not (tmp_path / "labels").exists()
    with pytest.raises(UsageError, match="package"):
        make_labels(corpus, "packages", tmp_path / "labels")
    arguments = ["corpus", "labels", str(corpus), "--task", "source", "--out", str(tmp_path / "labels")]
    assert main(arguments) == 1
    assert "Traceback" not in capsys.readouterr().err


def test_shorten_ends_at_a_border() -> None:
    assert shorten("One sentence. Another one that is longer.", 20) == "One sentence."
    assert shorten("short", 20) == "short"
    assert shorten("a b " * 10, 20) == "a b a b a b a b a b"
    assert shorten("강" * 50, 20) == "강" * 20
