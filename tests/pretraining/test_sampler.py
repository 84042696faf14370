"""Which windows an update sees depends on (seed, step) alone, and an epoch sees every token once."""

from __future__ import annotations

import os
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.errors import DataError, FolderError
from headwater.model import IGNORE
from headwater.pretraining import Sampler, TokenBatch, TokenStream
from headwater.pretraining.tokens.sampler import permute
from headwater.storage import Stage


def write_tokens(folder: Path, shards: list[np.ndarray]) -> Path:
    stage = Stage(folder, kind="tokens", config={"counts": {"train": {"tokens": 0}}}, inputs={})
    with stage.write() as work:
        for number, shard in enumerate(shards):
            np.save(work / f"train-{number:05d}.npy", shard)
    return folder


@given(size=st.integers(1, 2_000), seed=st.integers(0, 2**40), epoch=st.integers(0, 1_000))
def test_permute_is_a_permutation(size: int, seed: int, epoch: int) -> None:
    assert sorted(permute(np.arange(size), size, seed, epoch)) == list(range(size))


def test_epochs_and_seeds_give_different_orders() -> None:
    orders = {tuple(permute(np.arange(50), 50, seed, epoch)) for seed in range(4) for epoch in range(4)}
    assert len(orders) == 16


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(20, 90), min_size=1, max_size=3),
    context=st.integers(3, 16),
    batch=st.integers(1, 7),
)
def test_an_epoch_predicts_every_token_once(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], context: int, batch: int
) -> None:
    offsets = np.cumsum([0, *lengths])
    shards = [np.arange(a, b, dtype=np.uint16) for a, b in pairwise(offsets)]
    folder = write_tokens(tmp_path_factory.mktemp("tokens") / "tokens", shards)
    sampler = Sampler(TokenStream(folder, "train", context), batch, 2, seed=5)
    windows = sampler.stream.windows
    seen: Counter[int] = Counter()
    steps = -(-windows // batch)
    indices = np.concatenate([sampler.windows_of(step) for step in range(steps)])[:windows]
    for index in indices:
        ids, targets = sampler.stream.window(int(index))
        predicted = targets[targets != IGNORE]
        assert (targets[targets != IGNORE] == ids[targets != IGNORE] + 1).all()
        seen.update(predicted.tolist())
    firsts = {int(shard[0]) for shard in shards}  # nothing stands before the first token of a shard
    assert seen == Counter(set(range(sum(lengths))) - firsts)


def rows_of(batch: TokenBatch) -> list[tuple[float, ...]]:
    return [tuple(row) for row in torch.cat([batch.ids, batch.targets, batch.weights.double()], dim=1).tolist()]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 6, 8])
@pytest.mark.parametrize("micro_batch", [1, 2, 5])
def test_ranks_and_micro_batches_only_divide_the_update(tmp_path: Path, ranks: int, micro_batch: int) -> None:
    tokens = np.random.default_rng(0).integers(0, 500, 1_003).astype(np.uint16)
    stream = TokenStream(write_tokens(tmp_path / "tokens", [tokens]), "train", 16)
    sampler = Sampler(stream, 6, 6, seed=9)
    # The last window overlaps the one before, and has fewer targets.
    step = next(step for step in range(11) if stream.windows - 1 in sampler.windows_of(step))
    (whole,) = sampler.micro_batches(step)
    rows, shapes = [], set()
    for rank in range(ranks):
        batches = Sampler(stream, 6, micro_batch, 9, rank, ranks).micro_batches(step)
        shapes.add(tuple(len(batch.ids) for batch in batches))
        for batch in batches:
            assert len(batch.ids) <= micro_batch
            rows += [row for row in rows_of(batch) if any(row[32:])]
    assert len(shapes) == 1  # ranks that shard a model compute together
    assert Counter(rows) == Counter(rows_of(whole))
    assert float(whole.weights.sum()) == pytest.approx(1.0)
    assert len(whole.weights[whole.targets != IGNORE].unique()) == 1


def test_a_rank_reads_its_own_windows_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = TokenStream(write_tokens(tmp_path / "tokens", [np.arange(200, dtype=np.uint16)]), "train", 16)
    window, read = TokenStream.window, []
    monkeypatch.setattr(TokenStream, "window", lambda self, index: read.append(index) or window(self, index))
    for rank in range(3):
        sampler = Sampler(stream, 12, 2, 1, rank, 3)
        read.clear()
        sampler.micro_batches(5)
        assert read == sampler.windows_of(5)[rank::3].tolist()
        assert len(read) == 4


def test_a_file_that_the_manifest_does_not_name_is_not_read(tmp_path: Path) -> None:
    folder = write_tokens(tmp_path / "tokens", [np.arange(40, dtype=np.uint16)])
    np.save(folder / "train-00000 (copy).npy", np.arange(40, dtype=np.uint16))
    assert sum(map(len, TokenStream(folder, "train", 8).shards)) == 40


def test_more_shards_are_read_than_files_may_be_open(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource", reason="Windows has no limit of this kind")
    shards = [np.arange(40 * n, 40 * n + 40, dtype=np.uint16) for n in range(70)]
    folder = write_tokens(tmp_path / "tokens", shards)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (os.dup(0) + 30, limits[1]))
    try:
        stream = TokenStream(folder, "train", 8)
        for index in range(stream.windows):
            ids, _ = stream.window(index)
            assert ids[0] // 40 == index // 5
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    (tmp_path / "tokens" / "train-00000.npy").rename(tmp_path / "first")
    np.save(tmp_path / "tokens" / "train-00000.npy", shards[1])
    with pytest.raises(FolderError, match=r"train-00000\.npy was replaced while it was read"):
        stream.window(0)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows refuses to cut a mapped file")
def test_a_file_that_is_cut_short_while_it_is_read_is_named(tmp_path: Path) -> None:
    """Access to a memory-mapped file would end the process here, without a message (SIGBUS)."""
    folder = write_tokens(tmp_path / "tokens", [np.arange(60_000, dtype=np.uint16)])
    stream = TokenStream(folder, "train", 8)
    assert stream.window(7_000)[0].tolist() == list(range(56_000, 56_008))
    os.truncate(folder / "train-00000.npy", 4_096)
    assert stream.window(3)[0].tolist() == list(range(24, 32))
    with pytest.raises(FolderError, match=r"train-00000\.npy was cut short: 18 bytes .* resumes from"):
        stream.window(7_000)


def test_text_shorter_than_a_window_is_named(tmp_path: Path) -> None:
    folder = write_tokens(tmp_path / "tokens", [np.arange(10, dtype=np.uint16)])
    with pytest.raises(DataError, match="less than one window"):
        TokenStream(folder, "train", 16)
