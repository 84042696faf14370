"""What a stage puts in the place of something older is on the disk first: a power cut loses neither.

The tests watch the calls to the operating system: when a file or folder gets its final name, every file in it must
have been flushed since it was last written.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from headwater.corpus import Document, write_documents
from headwater.model import build_model, preset, save_model
from headwater.storage import Stage, write_text
from headwater.storage.provenance import MANIFEST
from headwater.training import Ranks
from headwater.training.checkpoint import Checkpoints
from headwater.training.journal import Journal

pytestmark = pytest.mark.skipif(os.name != "posix", reason="folders are flushed on POSIX only")


class Disk:
    """Which files were flushed as they are, and what was named or removed before it was flushed."""

    def __init__(self) -> None:
        self.flushed: dict[tuple[int, int], tuple[int, int]] = {}
        self.lost: list[str] = []
        self.named: list[str] = []

    def fsync(self, descriptor: int) -> None:
        found = os.fstat(descriptor)
        self.flushed[found.st_dev, found.st_ino] = found.st_size, found.st_mtime_ns

    def check(self, *paths: Path) -> None:
        """Note the files at and below `paths` that a power cut would lose now."""
        for top in paths:
            for path in [top, *top.rglob("*")]:
                found = path.stat()
                if self.flushed.get((found.st_dev, found.st_ino)) != (found.st_size, found.st_mtime_ns):
                    self.lost.append(str(path))

    def rename(self, source: Path, target: Path) -> None:
        if not Path(source).name.endswith(".old"):
            self.named.append(Path(target).name)
            self.check(Path(source))
        if Path(target).name == MANIFEST:
            manifest = json.loads(Path(source).read_bytes())
            if manifest["complete"]:
                self.check(*(Path(target).parent / name for name in manifest["files"]))


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    found = Disk()
    fsync, rename, replace, rmtree = os.fsync, os.rename, os.replace, shutil.rmtree

    def watched_fsync(descriptor: int) -> None:
        fsync(descriptor)
        found.fsync(descriptor)

    def watched_rename(source: Any, target: Any) -> None:
        found.rename(source, target)
        rename(source, target)

    def watched_replace(source: Any, target: Any) -> None:
        found.rename(source, target)
        replace(source, target)

    def watched_rmtree(path: Any, *arguments: Any, **options: Any) -> None:
        if Path(path).name.startswith("step-"):  # an older checkpoint: the newer one and its name are on the disk
            found.check(Path(path).parent)
        rmtree(path, *arguments, **options)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "rename", watched_rename)
    monkeypatch.setattr(os, "replace", watched_replace)
    monkeypatch.setattr(shutil, "rmtree", watched_rmtree)
    return found


def test_checkpoints_are_on_the_disk_before_older_ones_go(disk: Disk, tmp_path: Path) -> None:
    tmp_path /= "checkpoints"
    checkpoints = Checkpoints(tmp_path, keep=1, ranks=Ranks(), note=print)
    for step in (1, 2):
        checkpoints.save(step, {"weight": torch.full((2,), float(step))}, {"step": step}, set())
        checkpoints.wait()
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000002"]
    assert "step-00000002" in disk.named
    assert disk.lost == []


def test_a_corpus_is_on_the_disk_before_it_has_its_name(disk: Disk, tmp_path: Path) -> None:
    with Stage(tmp_path / "corpus", kind="corpus", config={}, inputs={}).write() as work:
        (work / "inner").mkdir()
        (work / "inner" / "more").write_text("text")
        # A label that comes late has the shard written again.
        write_documents(
            [Document(str(n), "text " * 9, labels={"a": "b"} if n else {}) for n in range(2)], work, ["a"]
        )
    assert "corpus" in disk.named
    assert disk.lost == []


def test_a_grown_folder_is_on_disk_before_it_is_complete(disk: Disk, tmp_path: Path) -> None:
    stage = Stage(tmp_path / "run", kind="run", config={}, inputs={}, grows=True)
    stage.begin()
    with (tmp_path / "run" / "metrics.jsonl").open("w") as journal:
        journal.write("{}\n")
    stage.finish()
    assert disk.lost == []


def test_model_files_are_on_disk_before_they_are_named(disk: Disk, tmp_path: Path) -> None:
    import headwater as hw
    from headwater.convert import write_gguf

    tokenizer = hw.Tokenizer.train(["the river runs. "], vocab_size=260)
    small = preset("gpt2-pico", vocabulary=260, context=8, width=64, layers=1, heads=1)
    model = build_model(small, seed=1)
    save_model(model, tmp_path, tokenizer=tokenizer)
    write_gguf(model, tokenizer, tmp_path / "model.gguf", "f32")
    assert {"model.safetensors", "config.json", "model.gguf"} <= set(disk.named)
    assert disk.lost == []


def test_a_journals_lines_can_be_made_to_last(disk: Disk, tmp_path: Path) -> None:
    journal = Journal(tmp_path / "metrics.jsonl")
    journal.write({"step": 1})
    journal.sync()
    disk.check(tmp_path / "metrics.jsonl")
    journal.close()
    assert disk.lost == []


def test_the_watch_sees_what_is_not_flushed(disk: Disk, tmp_path: Path) -> None:
    write_text(tmp_path / "a", "flushed")
    assert disk.lost == []
    (tmp_path / ".b.part").write_text("not flushed")
    (tmp_path / ".b.part").rename(tmp_path / "b")
    assert disk.lost == [str(tmp_path / ".b.part")]
