"""Packing loses nothing: the tokens decode to the documents, shard by shard, and a killed run leaves no trace."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.cli.main import main
from headwater.corpus import Document, split, write_documents
from headwater.errors import DataError, FolderError, MismatchError, UsageError
from headwater.pretraining.tokens import pack as pack_module
from headwater.pretraining.tokens.pack import ShardWriter, pack
from headwater.storage import Stage, lineage, open_folder
from headwater.tokenizer import Tokenizer, token_dtype, train_tokenizer
from headwater.tokenizer.folder import Roles


def make_corpus(out: Path, count: int = 300, words: int = 60) -> Path:
    generator = random.Random(3)
    vocabulary = ["river", "stone", "강물이", "light", "over", "the", "흐른다", "<|endoftext|>", "café"]
    documents = [
        Document(id=f"id-{i}", text=" ".join(generator.choices(vocabulary, k=words)) + f" {i}")
        for i in range(count)
    ]
    with Stage(out, kind="corpus", config={}, inputs={}).write() as work:
        write_documents(documents, work)
    return out


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_corpus(tmp_path_factory.mktemp("corpus") / "corpus")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> Path:
    out = tmp_path_factory.mktemp("tokenizer") / "tokenizer"
    train_tokenizer([corpus], out, kind="gpt2", vocab_size=300)
    return out


def read_part(folder: Path, part: str) -> tuple[np.ndarray, list[int]]:
    """The stream of a part, its shards joined, and where documents begin in it."""
    shards = [np.load(path) for path in sorted(folder.glob(f"{part}-*.npy"))]
    begin, starts = 0, []
    for index, shard in enumerate(shards):
        starts += (np.load(folder / f"documents-{part}-{index:05d}.npy") + begin).tolist()
        begin += len(shard)
    return np.concatenate(shards), starts


@pytest.mark.parametrize("shard_tokens", [700, 10**8])
def test_tokens_decode_to_the_documents(
    tmp_path: Path, corpus: Path, tokenizer: Path, shard_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pack_module, "SHARD_TOKENS", shard_tokens)
    monkeypatch.setattr(pack_module, "LAST_SHARD_TOKENS", 90)
    monkeypatch.setattr(pack_module, "_BATCH_BYTES", 3000)
    counts = pack(corpus, tokenizer, tmp_path / "tokens", 0.1)
    manifest = open_folder(tmp_path / "tokens", "tokens")
    assert manifest.config["counts"] == counts
    inside = Tokenizer.load(tmp_path / "tokens" / "tokenizer")
    assert inside.identity == manifest.config["tokenizer_identity"]
    assert inside.end_of_text is not None
    expected: dict[str, list[str]] = {"train": [], "validation": []}
    for part, document in split(corpus, 0.1):
        expected[part].append(document.text)
    for part, texts in expected.items():
        ids, starts = read_part(tmp_path / "tokens", part)
        assert ids.dtype == np.uint16
        assert ids[-1] == inside.end_of_text
        pieces = [ids[a:b] for a, b in zip(starts, [*starts[1:], len(ids)], strict=True)]
        assert [inside.decode(piece[:-1].tolist()) for piece in pieces] == texts
        assert all(piece[-1] == inside.end_of_text for piece in pieces)
        assert counts[part] == {
            "tokens": len(ids),
            "documents": len(texts),
            "bytes": sum(len(text.encode()) for text in texts),
        }
    shards = len(list((tmp_path / "tokens").glob("train-*.npy")))
    assert shards > 5 if shard_tokens == 700 else shards == 1


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(1, 7), max_size=6)), st.integers(1, 9), st.integers(1, 9))
def test_shards_joined_are_the_stream(batches: list[list[int]], size: int, last: int) -> None:
    """`batches` are the lengths of documents, written batch by batch."""
    with tempfile.TemporaryDirectory() as place:
        writer = ShardWriter(Path(place), "train", np.uint32, size, last)
        total, starts = 0, []
        for lengths in batches:
            offsets = np.cumsum([0, *lengths])
            starts += (offsets[:-1] + total).tolist()
            writer.write(np.arange(total, total + offsets[-1]), offsets[:-1])
            total += int(offsets[-1])
        writer.close()
        ids, found = read_part(Path(place), "train")
        assert ids.tolist() == list(range(total))
        assert found == starts
        lengths_found = [len(np.load(p)) for p in sorted(Path(place).glob("train-*.npy"))]
        assert all(length == size for length in lengths_found[:-1])
        assert lengths_found[-1] < size + last
        assert len(lengths_found) == 1 or lengths_found[-1] >= min(size, last)


def test_memory_mapped_shards_open(tmp_path: Path, corpus: Path, tokenizer: Path) -> None:
    pack(corpus, tokenizer, tmp_path / "tokens")
    shard = np.load(tmp_path / "tokens" / "train-00000.npy", mmap_mode="r")
    assert shard.ndim == 1
    assert len(shard) > 1000


def test_the_same_command_finds_it_and_another_is_refused(tmp_path: Path, corpus: Path, tokenizer: Path) -> None:
    counts = pack(corpus, tokenizer, tmp_path / "tokens")
    written = (tmp_path / "tokens" / "train-00000.npy").stat().st_mtime_ns
    assert pack(corpus, tokenizer, tmp_path / "tokens") == counts
    assert (tmp_path / "tokens" / "train-00000.npy").stat().st_mtime_ns == written
    with pytest.raises(FolderError, match="validation"):
        pack(corpus, tokenizer, tmp_path / "tokens", 0.2)


def test_the_tokenizer_of_a_model_that_ships_is_named_like_it(tmp_path: Path, corpus: Path) -> None:
    pack(corpus, "gpt2-mini", tmp_path / "tokens")
    manifest = open_folder(tmp_path / "tokens", "tokens")
    assert manifest.config["tokenizer_identity"] == Tokenizer.load("gpt2-mini").identity
    assert lineage(tmp_path / "tokens")["inputs"][1]["state"] != "gone"


def test_ids_past_two_bytes_take_four() -> None:
    assert token_dtype(65_536) is np.uint16
    assert token_dtype(65_537) is np.uint32


@pytest.mark.parametrize(
    ("count", "words", "fraction", "said"),
    [(1, 3, 0.05, "training part"), (1, 400, 0.01, "held-out part"), (4, 96, 0.26, "held-out part")],
)
def test_a_text_too_short_is_refused_with_its_count(
    tmp_path: Path, tokenizer: Path, count: int, words: int, fraction: float, said: str
) -> None:
    short = make_corpus(tmp_path / "corpus", count, words)
    with pytest.raises(DataError, match=rf"{said} has \d+ tokens") as caught:
        pack(short, tokenizer, tmp_path / "tokens", fraction)
    assert not (tmp_path / "tokens").exists()
    if said == "held-out part":
        fraction = float(caught.value.repair.rpartition(" ")[2])
        pack(short, tokenizer, tmp_path / "tokens", fraction)  # the repair that was named repairs it


def test_a_fraction_that_is_none_is_refused(tmp_path: Path, corpus: Path, tokenizer: Path) -> None:
    with pytest.raises(UsageError, match="fraction is 1"):
        pack(corpus, tokenizer, tmp_path / "tokens", 1.0)


def test_special_tokens_of_a_text_are_single_tokens(tmp_path: Path) -> None:
    lines = [f"<speaker1>Does it rain in town {n}?<speaker2>No, not in {n}.\n" for n in range(400)]
    source = tmp_path / "dialog.txt"
    source.write_text("".join(lines), encoding="utf-8")
    named = Tokenizer.train(source, vocab_size=300, special_tokens=["<speaker1>", "<speaker2>"])
    named.save(tmp_path / "tokenizer")
    assert main(["corpus", "build", str(source), "--out", str(tmp_path / "corpus")]) == 0
    pack(tmp_path / "corpus", tmp_path / "tokenizer", tmp_path / "tokens")
    ids = [i for part in ("train", "validation") for i in read_part(tmp_path / "tokens", part)[0].tolist()]
    assert [ids.count(named.special_tokens[name]) for name in ("<speaker1>", "<speaker2>")] == [400, 400]


def test_another_end_of_text_makes_other_tokens(tmp_path: Path, corpus: Path, tokenizer: Path) -> None:
    pack(corpus, tokenizer, tmp_path / "tokens")
    other = Tokenizer.load(tokenizer)
    Tokenizer(other.vocabulary, Roles(start=1, ends=(1,))).save(tmp_path / "other")
    with pytest.raises(FolderError, match="end_of_text"):
        pack(corpus, tmp_path / "other", tmp_path / "tokens")


def test_a_tokenizer_that_gives_ids_beyond_its_size_is_noticed(
    tmp_path: Path, corpus: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tokenizer, "vocabulary_size", 100)
    with pytest.raises(MismatchError, match="below its vocabulary size"):
        pack(corpus, tokenizer, tmp_path / "tokens")


def _pack_and_die(corpus: Path, tokenizer: Path, out: Path) -> None:
    original = Tokenizer.encode_array
    calls: Iterator[int] = iter(range(100))

    def dying(self: Tokenizer, texts: list[str], allow_special: bool | None) -> object:
        if next(calls) == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(self, texts, allow_special)

    Tokenizer.encode_array = dying  # type: ignore[assignment, method-assign]
    pack_module._BATCH_BYTES = 2000
    pack(corpus, tokenizer, out)


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_a_killed_packing_leaves_no_half_folder(tmp_path: Path, corpus: Path, tokenizer: Path) -> None:
    out = tmp_path / "tokens"
    process = multiprocessing.get_context("spawn").Process(target=_pack_and_die, args=(corpus, tokenizer, out))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert not out.exists()
    assert len(list(tmp_path.iterdir())) == 1, "what was half done lies aside"
    pack(corpus, tokenizer, out)
    assert [path.name for path in tmp_path.iterdir()] == ["tokens"], "and the next run removes it"


def test_the_command_line(
    tmp_path: Path, corpus: Path, tokenizer: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["pack", str(corpus), "--tokenizer", str(tokenizer), "--out", str(tmp_path / "tokens")]
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"]["train"]["tokens"] > 1000
    assert main([*arguments, "--validation", "0"]) == 2
    assert "held-out fraction is 0" in capsys.readouterr().err
