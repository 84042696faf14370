"""Learning a vocabulary: the same merges from compiled loops, Python, reference and another library."""

from __future__ import annotations

import gzip
import json
import os
import random
import unicodedata
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.corpus import Document, write_documents
from headwater.errors import DataError, FolderError, UsageError
from headwater.storage import Progress, Stage
from headwater.tokenizer import (
    END_OF_TEXT,
    NEWLINE,
    Tokenizer,
    bpe_merges,
    bpe_words,
    reference,
    train_tokenizer,
)
from headwater.tokenizer.bpe_words import known_bytes
from headwater.tokenizer.vocabulary import BYTE_CHARACTERS, BYTE_ORDER, UNKNOWN

ALPHABET = [BYTE_CHARACTERS[byte] for byte in BYTE_ORDER]
NARROW = st.text(st.sampled_from("aab c'ls\n1!é안"), max_size=120)


@pytest.fixture(params=["compiled", "python"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to train; the compiled one is skipped where it was not built."""
    if request.param == "python":
        monkeypatch.setattr(bpe_merges, "load", lambda: None)
    elif bpe_merges.load() is None:
        pytest.skip("the compiled training loops are not built here")
    return str(request.param)


def _spelled(learned: npt.NDArray[np.int32]) -> list[tuple[str, str]]:
    tokens, pairs = list(ALPHABET), []
    for left, right, merged in learned:
        if merged == len(tokens):
            tokens.append(tokens[left] + tokens[right])
        pairs.append((tokens[left], tokens[right]))
    return pairs


@settings(max_examples=30, deadline=None)
@given(texts=st.lists(NARROW, min_size=1, max_size=3), new=st.integers(0, 60))
def test_merges_and_ids_are_the_references(texts: list[str], new: int) -> None:
    pieces = Counter(piece for text in texts for piece in reference.split_gpt2(text))
    words = {tuple(BYTE_CHARACTERS[byte] for byte in piece.encode()): count for piece, count in pieces.items()}
    expected = reference.learn_merges(words, ALPHABET, new)
    ways = [bpe_merges.learn_with_library] + ([bpe_merges.learn_merges] if bpe_merges.load() else [])
    counted = bpe_words.count_byte_words(texts)
    places = pairwise(counted.borders.tolist())
    assert words == {
        tuple(ALPHABET[i] for i in counted.symbols[a:b]): n
        for (a, b), n in zip(places, counted.counts.tolist(), strict=True)
    }
    for learn in ways:
        assert _spelled(learn(counted, 256, new, Progress())) == expected
    tokenizer = Tokenizer.train(texts, vocab_size=257 + new)
    assert list(tokenizer.vocabulary.merges) == expected
    for text in texts:
        assert tokenizer.encode(text) == reference.encode_gpt2(text, tokenizer.vocabulary)


def test_merges_are_those_of_tokenizers(path: str) -> None:
    from tokenizers import Tokenizer as Library
    from tokenizers import models, pre_tokenizers, trainers

    seed = 11
    rng = random.Random(seed)
    text = " ".join("".join(rng.choices("etaoins안é", k=rng.randint(1, 9))) for _ in range(4000))
    library = Library(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=900, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    library.train_from_iterator([text], trainer)
    expected = [tuple(pair) for pair in json.loads(library.to_str())["model"]["merges"]]
    assert list(Tokenizer.train([text], vocab_size=901).vocabulary.merges) == expected, f"seed {seed}"


def test_gpt1_kind_learns_the_references_merges(path: str) -> None:
    spacy = pytest.importorskip("spacy")
    english = spacy.blank("en").tokenizer
    text = "It's the theme -- isn't it?\nThe thesis, the THEN; 'em. goin'. café\n" * 4
    tokenizer = Tokenizer.train([text], kind="gpt1", vocab_size=110, special_tokens=["<pad>"])
    words: dict[tuple[str, ...], int] = {}
    for word in reference.split_gpt1(text, english):
        if not word.isspace():
            key = (*word[:-1], word[-1] + "</w>")
            words[key] = words.get(key, 0) + 1
    characters = sorted({character.removesuffix("</w>") for word in words for character in word})
    alphabet = [*characters, *(character + "</w>" for character in characters)]
    room = 110 - len(alphabet) - 3
    assert list(tokenizer.vocabulary.merges) == reference.learn_merges(words, alphabet, room)
    assert tokenizer.vocabulary.tokens[: len(alphabet) + 1] == (UNKNOWN, *alphabet)
    assert tokenizer.vocabulary.tokens[-2:] == (NEWLINE, "<pad>")
    assert tokenizer.encode(text) == reference.encode_gpt1(text, tokenizer.vocabulary, english)


def test_sources_of_every_form_give_the_same_vocabulary(tmp_path: Path, path: str) -> None:
    documents = [f"The {word} of the theme.\n\nIt's {word}!  " for word in ("cat", "안녕", "thesis")] * 20
    (tmp_path / "folder").mkdir()
    for number, text in enumerate(documents):
        (tmp_path / "folder" / f"{number:03}.txt").write_text(text, encoding="utf-8")
    last = tmp_path / "folder" / "059.txt"
    with gzip.open(f"{last}.gz", "wb") as packed:
        packed.write(last.read_bytes())
    last.unlink()
    assert known_bytes(tmp_path / "folder") is None
    (tmp_path / "one.txt").write_text(END_OF_TEXT.join(documents), encoding="utf-8")
    with Stage(tmp_path / "corpus", kind="corpus", config={}, inputs={}).write() as work:
        write_documents((Document(id=str(n), text=text) for n, text in enumerate(documents)), work)
    expected = Tokenizer.train(documents, vocab_size=300).identity
    for source in ("folder", "one.txt", "corpus"):
        assert Tokenizer.train(tmp_path / source, vocab_size=300).identity == expected
    assert Tokenizer.train(iter(reversed(documents)), vocab_size=300).identity == expected


def test_a_str_is_always_a_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sea").write_text("another text altogether", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    texts = ["to the ", "sea", "river.txt"]
    for sources in (texts, iter(texts)):
        assert list(bpe_words.read_blocks(sources)) == texts
    assert "".join(bpe_words.read_blocks(Path("sea"))) == "another text altogether"
    with pytest.raises(UsageError, match=r"a single str; expected a Path"):
        Tokenizer.train("sea")  # type: ignore[arg-type]


def test_blocks_of_a_file_count_as_the_whole(tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "It's   a\n\n tale 안녕 é of  spaces\r\n\tand 12 things!!\n" * 30
    (tmp_path / "text.txt").write_text(text, encoding="utf-8", newline="")
    whole = Tokenizer.train([text], vocab_size=330)
    for size in (1, 7, 64):
        monkeypatch.setattr(bpe_words, "BLOCK_BYTES", size)
        assert Tokenizer.train(tmp_path / "text.txt", vocab_size=330).identity == whole.identity


def test_special_tokens_come_last_and_are_never_learned(path: str) -> None:
    tokenizer = Tokenizer.train(["<pad>abc<|endoftext|>abc<pad>"] * 9, vocab_size=262, special_tokens=["<pad>"])
    assert tokenizer.special_tokens == {END_OF_TEXT: 258, "<pad>": 259}
    assert list(tokenizer.vocabulary.merges) == [("a", "b"), ("ab", "c")]


def test_a_text_of_too_few_tokens_is_an_error() -> None:
    class Notes(Progress):
        said: list[str] = []  # noqa: RUF012

        def note(self, text: str) -> None:
            self.said.append(text)

    notes = Notes()
    assert Tokenizer.train(["aaa"], vocab_size=1000, progress=notes).vocabulary_size == 259
    assert "gives only 259 tokens" in notes.said[0]


def test_a_size_beyond_all_reason_gives_what_there_is(path: str) -> None:
    expected = Tokenizer.train(["the river " * 9], vocab_size=1000)
    for size in (2_000_000_000, 2**32 + 260):
        assert Tokenizer.train(["the river " * 9], vocab_size=size).identity == expected.identity


def test_progress_counts_the_work_that_is_done(path: str) -> None:
    class Recorder(Progress):
        def __init__(self) -> None:
            self.stages: dict[str, list[float]] = {}
            self.totals: dict[str, float | None] = {}

        def start(self, stage: str, total: float | None = None, unit: str = "") -> None:
            self.now, self.totals[stage] = stage, total
            self.stages[stage] = []

        def advance(self, done: float, **figures: float) -> None:
            self.stages[self.now].append(done)

    recorder = Recorder()
    rng = random.Random(3)
    text = " ".join("".join(rng.choices("abcdefgh", k=7)) for _ in range(3000))
    Tokenizer.train([text], vocab_size=1257, progress=recorder)
    assert recorder.stages["count words"][-1] == len(text) == recorder.totals["count words"]
    assert recorder.totals["learn merges"] == 1000
    learned = recorder.stages["learn merges"]
    assert learned == sorted(learned)
    assert 0 < learned[0] <= learned[-1] <= 1000


def test_stage_writes_the_same_bytes_and_reopens(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("the theme of the thesis " * 50, encoding="utf-8")
    for name in ("a", "b"):
        train_tokenizer([tmp_path / "text.txt"], tmp_path / name, vocab_size=280)
    files = sorted(p.name for p in (tmp_path / "a").iterdir())
    assert files == ["headwater.json", "merges.txt", "tokenizer.json", "tokenizer_config.json", "vocab.json"]
    for name in files[1:]:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    again = train_tokenizer([tmp_path / "text.txt"], tmp_path / "a", vocab_size=280)
    assert again.identity == Tokenizer.load(tmp_path / "b").identity


@pytest.mark.parametrize(
    ("kind", "vocab_size", "message"),
    [("gpt2", 200, "at least 257"), ("gpt1", 5, "3 characters, .* at least 8")],
)
def test_vocabulary_too_small_for_its_alphabet(kind: str, vocab_size: int, message: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("abc cab", encoding="utf-8")
    with pytest.raises(UsageError, match=message):
        train_tokenizer([tmp_path / "text.txt"], tmp_path / "out", kind=kind, vocab_size=vocab_size)  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["foreign", "GPT2", ""])
def test_a_kind_that_cannot_be_learned_is_named(kind: str) -> None:
    with pytest.raises(UsageError, match=f"kind '{kind}' cannot be learned; expected kind gpt2 or gpt1"):
        Tokenizer.train(["the river"], kind=kind, vocab_size=300)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"'\\udcff' is empty, already an ordinary token or not UTF-8"):
        Tokenizer.train(["the river"], vocab_size=300, special_tokens=["\udcff"])


def test_both_trainers_know_the_same_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.11 takes U+31350, a letter since Unicode 15, for a sign."""
    points = [
        *range(0x80, 0x30, -1),
        0xA0,
        0x85,
        0x1680,
        0x1C89,
        0x3000,
        0xA7CB,
        0x105C0,
        0x11F04,
        0x16D40,
        0x31350,
    ]
    points += range(0x100, 0x3_4000, 97)
    text = "".join(
        f"a{chr(code)}1{chr(code)} {chr(code)}!" for code in points if code not in range(0xD800, 0xE000)
    )
    ways = []
    for load in (bpe_merges.load, lambda: None):
        monkeypatch.setattr(bpe_merges, "load", load)
        counted = bpe_words.count_byte_words([text])
        words = [tuple(counted.symbols[a:b]) for a, b in pairwise(counted.borders.tolist())]
        ways.append(dict(zip(words, counted.counts.tolist(), strict=True)))
    assert ways[0] == ways[1]


def test_counting_that_fails_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    if bpe_merges.load() is None:
        pytest.skip("the compiled training loops are not built here")

    def full(self: bpe_merges.CompiledCounter, text: bytes) -> None:
        raise MemoryError

    monkeypatch.setattr(bpe_merges.CompiledCounter, "add", full)
    with pytest.raises(MemoryError):
        bpe_words.count_byte_words(["a b c " * bpe_words.BLOCK_BYTES] * 12)


def test_text_that_is_not_utf8_is_named_with_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bpe_words, "BLOCK_BYTES", 10)
    (tmp_path / "bad.txt").write_bytes("één\n안녕 세계\n".encode() * 3 + b"caf\xe9 au lait\n")
    with pytest.raises(DataError, match=r"bad.txt is not UTF-8: byte 0xe9 in line 7"):
        train_tokenizer([tmp_path / "bad.txt"], tmp_path / "out", vocab_size=300)
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".out*"))


def test_training_on_a_table_notes_that_it_is_plain_text(tmp_path: Path) -> None:
    notes: list[str] = []

    class Notes(Progress):
        def note(self, text: str) -> None:
            notes.append(text)

    for name in ("a.txt", "b.jsonl"):
        (tmp_path / name).write_text('{"text": "\\uac15"}')
    sources = [tmp_path / "a.txt", tmp_path / "b.jsonl"]
    train_tokenizer(sources, tmp_path / "out", vocab_size=257, progress=Notes())
    assert notes[0].startswith(f"{tmp_path / 'b.jsonl'}: read as plain text")
    (tmp_path / "linked").symlink_to(tmp_path, target_is_directory=True)
    train_tokenizer([tmp_path], tmp_path / "folder", vocab_size=257, progress=Notes())
    assert f"{tmp_path}: skipped 3 items other than plain-text files" in notes


def test_missing_and_empty_sources_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nothing\.txt does not exist"):
        Tokenizer.train(tmp_path / "nothing.txt")
    with pytest.raises(DataError, match=r"nothing\.txt does not exist"):
        train_tokenizer([tmp_path / "nothing.txt"], tmp_path / "out")
    (tmp_path / "FROM_WINDOWS.TXT").write_text("the river")
    assert Tokenizer.train(tmp_path, vocab_size=260).vocabulary_size == 260
    (tmp_path / "FROM_WINDOWS.TXT").unlink()
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="has no text file"):
        Tokenizer.train(tmp_path / "empty")
    (tmp_path / "binary.txt").write_bytes(b"\x00\x01\x02")
    with pytest.raises(DataError, match="binary file"):
        Tokenizer.train(tmp_path / "binary.txt")
    (tmp_path / "empty.txt").touch()
    with pytest.raises(DataError, match=r"empty\.txt: the text is empty"):
        train_tokenizer([tmp_path / "empty.txt"], tmp_path / "out")
    if hasattr(os, "mkfifo"):  # as the shell's <(zcat a.txt.gz)
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(FolderError, match="pipe is neither a file nor a folder"):
            train_tokenizer([tmp_path / "pipe"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_iterators_are_read_once_and_not_held(path: str) -> None:
    alive = 0

    class Text(str):
        __slots__ = ()

        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    def texts() -> Iterator[str]:
        nonlocal alive
        for number in range(500):
            alive += 1
            yield Text(f"text number {number} of the iterator\n")
            assert alive < 20

    assert Tokenizer.train(texts(), vocab_size=270).vocabulary_size == 270


@pytest.mark.parametrize(("form", "encoding"), [("NFC", "utf-8"), ("NFD", "utf-8"), ("NFC", "cp949")])
def test_a_file_is_read_as_a_corpus_reads_it(tmp_path: Path, form: str, encoding: str) -> None:
    text = "강물은 산에서 시작하여 남쪽 바다로 흐른다.\n" * 20
    (tmp_path / "a.txt").write_text(unicodedata.normalize(form, text), encoding=encoding)
    vocabularies = [Tokenizer.train(source, vocab_size=300).vocabulary for source in (tmp_path / "a.txt", [text])]
    assert vocabularies[0].tokens == vocabularies[1].tokens


def test_a_file_in_another_encoding_is_a_corpus_first(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(bytes(range(1, 256)) * 9)
    with pytest.raises(DataError, match=r"with: headwater corpus build \S+a.txt --encoding NAME --out DIR$"):
        Tokenizer.train(tmp_path / "a.txt", vocab_size=300)
