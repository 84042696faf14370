"""Tokens at a URL train the model that the folder trains, through a bounded cache; a store that fails is named."""

from __future__ import annotations

import sys
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fsspec")

import fsspec
import numpy as np

from headwater.cli.main import main
from headwater.errors import DataError, FolderError, ResourceError, StorageError
from headwater.pretraining import PretrainConfig, TokenStream, pretrain
from headwater.pretraining.tokens import shards
from headwater.storage import cache_folder, lineage, read_manifest

TINY = {"preset": "gpt2-pico", "context": 32, "batch_size": 8, "steps": 4, "precision": "fp32"}
URL = "memory://bucket/tokens"


@pytest.fixture(autouse=True)
def stored(tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The store, which has the tokens at URL; the cache is the test's own, and nobody waits."""
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(shards, "WAIT_SECONDS", 0.0)
    monkeypatch.setattr(shards, "BLOCK_BYTES", 1_000)
    store = fsspec.filesystem("memory")
    store.put(str(tokens), "/bucket/tokens", recursive=True)
    yield store
    store.rm("/", recursive=True)


def full(path: Path, **given: Any) -> Any:
    raise StorageError(f"no space is left to write {path}")


def blocks() -> list[Path]:
    return list(cache_folder().glob("tokens/*/*.npy/*/*[0-9]"))


def test_tokens_at_a_url_train_the_same_model(
    tokens: Path, tmp_path: Path, stored: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = pretrain(PretrainConfig.build(TINY), tokens, tmp_path / "here")
    asked = [f"--set={key}={value}" for key, value in TINY.items() if key != "preset"]
    command = ["pretrain", "--preset", "gpt2-pico", "--tokens", URL, "--out", str(tmp_path / "run"), *asked]
    assert main(command) == 0
    weights = "model.safetensors"
    assert (tmp_path / "run" / "model" / weights).read_bytes() == (here / weights).read_bytes()
    assert lineage(tmp_path / "run")["inputs"][0] | {"inputs": []} == {
        "role": "tokens",
        "path": URL,
        "kind": "tokens",
        "identity": read_manifest(tokens).identity,
        "inputs": [],
        "state": "remote",
    }
    assert blocks()
    # The next run reads every id here.
    read = type(stored).cat_file

    def described(store: Any, path: str, **given: Any) -> bytes:
        assert not path.endswith(".npy")
        return bytes(read(store, path, **given))

    monkeypatch.setattr(type(stored), "cat_file", described)
    again = pretrain(PretrainConfig.build(TINY), URL, tmp_path / "again")
    assert (again / weights).read_bytes() == (here / weights).read_bytes()


def test_windows_equal_and_the_cache_is_bounded(tokens: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "CACHED_BYTES", 20_000)
    here, there = TokenStream(tokens, "train", 64), TokenStream(shards.local_tokens(URL), "train", 64)
    assert there.windows == here.windows > 100
    for index in range(here.windows):
        assert [x.tolist() for x in there.window(index)] == [x.tolist() for x in here.window(index)]
    assert 10 < len(blocks()) <= 21
    with monkeypatch.context() as patched:
        patched.setattr(shards, "atomic_path", full)
        windows = [there.window(index)[0].tolist() for index in range(0, here.windows, 9)]
    assert windows == [here.window(index)[0].tolist() for index in range(0, here.windows, 9)]


def test_the_bound_holds_over_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "CACHED_BYTES", 8_000)
    monkeypatch.setattr(shards, "BLOCK_BYTES", 30)
    folder = shards.local_tokens(URL)
    manifest = read_manifest(folder)
    most = 0
    for number in range(600):  # each as in a process of its own
        shards.files_of(folder, manifest).read("train-00000.npy", 1, number * 30)
        most = max(most, *Counter(block.parent for block in blocks()).values())
    assert 5_000 < sum(block.stat().st_size for block in blocks()) <= 8_000
    assert most <= 256  # in one folder, whose entries a new block is compared with


@pytest.mark.parametrize("left", [b"cut", None])
def test_a_damaged_block_is_read_again(tokens: Path, left: bytes | None) -> None:
    here, folder = TokenStream(tokens, "train", 64), shards.local_tokens(URL)
    TokenStream(folder, "train", 64).batch(np.arange(here.windows))
    for block in blocks():  # as a power cut leaves them
        block.write_bytes(bytes(block.stat().st_size) if left is None else left)
    there = TokenStream(folder, "train", 64)
    assert there.batch(np.arange(here.windows))[0].equal(here.batch(np.arange(here.windows))[0])


def test_a_window_reads_its_bytes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "BLOCK_BYTES", 1 << 20)
    folder = shards.local_tokens(URL)
    files = shards.files_of(folder, read_manifest(folder))
    assert files.size("train-00000.npy") > 20_000
    whole = files.read("train-00000.npy", 1 << 20, 0)
    tracemalloc.start()
    try:
        assert files.read("train-00000.npy", 130, 9_000) == whole[9_000:9_130]
        assert tracemalloc.get_traced_memory()[1] < 10_000
    finally:
        tracemalloc.stop()


def test_the_same_tokens_at_two_urls_are_read_from_each(stored: Any) -> None:
    first = shards.local_tokens(URL)
    stored.copy("/bucket/tokens", "/other/tokens", recursive=True)
    stored.rm("/bucket/tokens/train-00000.npy")
    with pytest.raises(DataError, match=rf"^{URL}/train-00000.npy does not exist"):
        TokenStream(first, "train", 64)
    second = shards.local_tokens("memory://other/tokens")
    TokenStream(second, "train", 64).window(0)
    assert shards.origin_of(second) == "memory://other/tokens"


@pytest.mark.parametrize("failures", [2, 99])
def test_a_store_that_fails_is_tried_again(stored: Any, failures: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = TokenStream(shards.local_tokens(URL), "train", 64)
    read, asked = type(stored).cat_file, list[str]()

    def busy(store: Any, path: str, **given: Any) -> bytes:
        asked.append(path)
        if len(asked) <= failures:
            raise OSError("503 Slow Down")
        return bytes(read(store, path, **given))

    monkeypatch.setattr(type(stored), "cat_file", busy)
    if failures == 2:
        stream.window(stream.windows - 1)
        assert len(asked) >= 3
        return
    with pytest.raises(StorageError, match=rf"{URL}/train-00000.npy cannot be reached: OSError: 503 Slow Down"):
        stream.window(stream.windows - 1)
    assert len(asked) == shards.ATTEMPTS


def test_what_is_missing_is_named(tmp_path: Path, stored: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def train(url: str) -> None:
        pretrain(PretrainConfig.build(TINY), url, tmp_path / "run")

    with pytest.raises(FolderError, match="expected a tokens folder"):
        train(f"{URL}/tokenizer")
    stored.rm("/bucket/tokens/train-00000.npy")
    with pytest.raises(FolderError, match="is not complete"):
        train(URL)
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(ResourceError, match=r"s3://bucket/tokens cannot be reached: .*s3fs"):
        train("s3://bucket/tokens")
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(ResourceError, match=r"headwater\[corpus\]"):
        train(URL)
    assert not (tmp_path / "run").exists()


def test_ranks_that_begin_together_share_a_folder(stored: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    read, made = shards.read_stored, list[Path]()

    def meanwhile(url: str, *given: Any) -> bytes:
        monkeypatch.setattr(shards, "read_stored", read)
        made.append(shards.local_tokens(URL))  # as another rank does
        return read(url, *given)

    monkeypatch.setattr(shards, "read_stored", meanwhile)
    assert [shards.local_tokens(URL)] == made
