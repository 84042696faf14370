"""Packing loses nothing: the tokens decode to the documents, shard by shard, and a killed run leaves no trace."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.cli.main import main
from headwater.corpus import Document, folder, split, write_documents
from headwater.errors import DataError, FolderError, MismatchError, UsageError
from headwater.pretraining import pack
from headwater.pretraining.tokens import pack as pack_module
from headwater.pretraining.tokens import shards
from headwater.pretraining.tokens.pack import PackRunner
from headwater.pretraining.tokens.shards import ShardWriter
from headwater.storage import PlainProgress, Stage, folder_lock, lineage, open_folder
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
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The corpus in 15 files."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(folder, "SHARD_BYTES", 9000)
        return make_corpus(tmp_path_factory.mktemp("files") / "corpus")


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
    monkeypatch.setattr(shards, "SHARD_TOKENS", shard_tokens)
    monkeypatch.setattr(shards, "LAST_SHARD_TOKENS", 90)
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
    count = len(list((tmp_path / "tokens").glob("train-*.npy")))
    assert count > 5 if shard_tokens == 700 else count == 1


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 7), max_size=6)), st.integers(1, 9), st.integers(1, 9))
def test_shards_joined_are_the_stream(files: list[list[int]], size: int, last: int) -> None:
    """`files` are the lengths of documents, file by file."""
    bounds = np.cumsum([0, *map(sum, files)])
    total = int(bounds[-1])
    stream = np.arange(total, dtype=np.uint32)
    starts_of = [np.cumsum([0, *lengths])[:-1].astype(np.int64) for lengths in files]
    starts = [base + start for base, own in zip(bounds, starts_of, strict=False) for start in own.tolist()]
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patched:
        patched.setattr(shards, "SHARD_TOKENS", size)
        patched.setattr(shards, "LAST_SHARD_TOKENS", last)
        with closing(ShardWriter(Path(place), "train", total, np.uint32)) as writer:
            for (begin, end), own in zip(pairwise(bounds.tolist()), starts_of, strict=True):
                writer.add(stream[begin:end], own)
        ids, found = read_part(Path(place), "train")
        lengths_found = [len(np.load(path)) for path in sorted(Path(place).glob("train-*.npy"))]
    assert ids.tolist() == list(range(total))
    assert found == starts
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
    tmp_path: Path,
    tokenizer: Path,
    count: int,
    words: int,
    fraction: float,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    short = make_corpus(Path("corpus"), count, words)
    with pytest.raises(DataError, match=rf"^corpus is too short: its {said} has \d+ tokens") as caught:
        pack(short, tokenizer, tmp_path / "tokens", fraction)
    assert [path.name for path in tmp_path.iterdir()] == ["corpus"]
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


def test_text_that_a_tokenizer_does_not_have_is_counted(
    tmp_path: Path, corpus: Path, tokenizer: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Tokenizer.train(["over the river, the stone light"], kind="gpt1", vocab_size=60).save(tmp_path / "gpt1")
    assert (
        main(["pack", str(corpus), "--tokenizer", str(tmp_path / "gpt1"), "--out", str(tmp_path / "tokens")]) == 0
    )
    ids = np.concatenate([read_part(tmp_path / "tokens", part)[0] for part in ("train", "validation")])
    unknown = f"<unk> is {np.count_nonzero(ids == 0):,} of {len(ids):,} tokens"
    assert unknown in capsys.readouterr().err
    assert main(["tokenizer", "encode", "the 강물이", "--tokenizer", str(tmp_path / "gpt1")]) == 0
    assert "Text without a token of its own: <unk> is 3 of 4 tokens" in capsys.readouterr().err
    assert main(["tokenizer", "encode", "the 강물이", "--tokenizer", str(tokenizer)]) == 0
    assert "without a token" not in capsys.readouterr().err


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


TASKS = ("sizes-000002", "ids-000001", "ids-000014")  # the last one; then a shard is written
SCRIPT = """
import os, signal, sys
from pathlib import Path
from headwater.pretraining.tokens import pack, shards

corpus, tokenizer, out, killed = sys.argv[1:]
run, add = pack.PackRunner.run, shards.ShardWriter.add


def dying(runner, *task):
    run(runner, *task)
    if runner.output(*task).name == killed:
        os.killpg(0, signal.SIGKILL)


def dying_in_a_shard(writer, *ids):
    add(writer, *ids)
    if writer._index == 1:
        os.killpg(0, signal.SIGKILL)


shards.SHARD_TOKENS, shards.LAST_SHARD_TOKENS = 2000, 90
pack.PackRunner.run = dying
shards.ShardWriter.add = dying_in_a_shard
pack.pack(Path(corpus), tokenizer, Path(out), 0.1)
"""


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_packing_killed_four_times_gives_the_same_bytes(
    tmp_path: Path,
    files: Path,
    tokenizer: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(PlainProgress, "interval_seconds", 0.0)
    monkeypatch.setattr(shards, "SHARD_TOKENS", 2000)
    monkeypatch.setattr(shards, "LAST_SHARD_TOKENS", 90)
    counts = pack(files, tokenizer, tmp_path / "whole", 0.1)
    out = tmp_path / "tokens"
    (tmp_path / "killed.py").write_text(SCRIPT)
    for task in (*TASKS, "a shard"):
        command = [sys.executable, tmp_path / "killed.py", files, tokenizer, out, task]
        ended = subprocess.run(command, check=False, start_new_session=True, capture_output=True, text=True)
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        assert not out.exists()
    [parts] = tmp_path.glob(".tokens.*.parts")
    done = {path.name: path.stat().st_ino for path in parts.iterdir()}
    assert set(TASKS) <= set(done)
    encoded: list[str] = []
    run = PackRunner.run
    monkeypatch.setattr(
        PackRunner, "run", lambda self, *task: encoded.append(self.output(*task).name) or run(self, *task)
    )
    capsys.readouterr()
    assert pack(files, tokenizer, out, 0.1, progress=PlainProgress()) == counts
    shown = capsys.readouterr().err.splitlines()
    assert shown[0] == "pack …"
    assert shown.count("pack …") == 1
    tokens = [int(found[1].replace(",", "")) for line in shown if (found := re.search(r"tokens ([\d,]+)", line))]
    total = sum(count["tokens"] for count in counts.values())
    assert total * 0.8 < tokens[0] <= tokens[-1] == total  # those of the earlier runs count
    assert not encoded
    assert open_folder(out, "tokens").files == open_folder(tmp_path / "whole", "tokens").files
    assert sorted(path.name for path in tmp_path.iterdir()) == ["killed.py", "tokens", "whole"]


def test_unfinished_work_stays_until_tokens_are_written(
    tmp_path: Path, files: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(runner: PackRunner, phase: str, number: int) -> None:
        if (phase, number) == ("ids", 14):
            raise DataError("a file is damaged")
        run(runner, phase, number)

    run = PackRunner.run
    monkeypatch.setattr(PackRunner, "run", failing)
    for fraction in (0.1, 0.2):
        with pytest.raises(DataError, match="is damaged"):
            pack(files, tokenizer, tmp_path / "tokens", fraction)
    parts = [path for path in tmp_path.iterdir() if (path / "ids-000013").is_dir()]
    assert len(parts) == 2
    monkeypatch.setattr(PackRunner, "run", run)
    with folder_lock(parts[0]):  # as a process that packs holds it
        pack(files, tokenizer, tmp_path / "tokens", 0.3)
    assert sorted(tmp_path.iterdir()) == sorted([parts[0], tmp_path / "tokens"])
    pack(files, tokenizer, tmp_path / "tokens", 0.3)
    assert sorted(tmp_path.iterdir()) == [tmp_path / "tokens"]


def test_workers_write_the_same_bytes(tmp_path: Path, files: Path, tokenizer: Path) -> None:
    for workers in (1, 2):
        pack(files, tokenizer, tmp_path / f"{workers}", 0.1, workers=workers)
    assert open_folder(tmp_path / "2").identity == open_folder(tmp_path / "1").identity


@pytest.mark.parametrize(
    ("shard", "last", "digest"),
    [
        (700, 90, "0de23522f1fc474d62baf7bd71c97a9886c98f00622493ba4123bc0bcd145365"),
        (10**8, 65_536, "214c820664264210b34481a52dec1b8f206cb4e1366258abbdc9a3293221d6dd"),
        (5000, 5000, "94647fd50ca0a6aef81ca664900c4eff356e7d434290104478193cfadd8ea57a"),
    ],
)
def test_the_bytes_are_those_of_the_first_version(
    tmp_path: Path,
    files: Path,
    tokenizer: Path,
    shard: int,
    last: int,
    digest: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Recorded when one process wrote all shards in one pass."""
    monkeypatch.setattr(shards, "SHARD_TOKENS", shard)
    monkeypatch.setattr(shards, "LAST_SHARD_TOKENS", last)
    pack(files, tokenizer, tmp_path / "tokens", 0.1)
    arrays = sorted((tmp_path / "tokens").glob("*.npy"))
    assert (
        hashlib.sha256(b"".join(path.name.encode() + path.read_bytes() for path in arrays)).hexdigest() == digest
    )


def test_the_command_line(
    tmp_path: Path, corpus: Path, tokenizer: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["pack", str(corpus), "--tokenizer", str(tokenizer), "--out", str(tmp_path / "tokens")]
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"]["train"]["tokens"] > 1000
    assert main([*arguments, "--validation", "0"]) == 2
    assert "held-out fraction is 0" in capsys.readouterr().err
