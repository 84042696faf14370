"""Every step of a build is a task that resumes: killed anywhere, on any engine, it writes the same bytes."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from headwater.corpus import BuildConfig, build_corpus, folder
from headwater.corpus.building import plan as planning
from headwater.corpus.building.phases import PhaseRunner
from headwater.corpus.dedup import keys
from headwater.errors import FolderError
from headwater.storage import Manifest, lineage, open_folder

CONFIG = BuildConfig(near_duplicates=True)
SMALL = ((planning, "TASK_FILES", 1), (folder, "SHARD_BYTES", 4000), (keys, "PARTITION_ROWS", 15))
PLACES = (("parts", 2), ("copies", 1), ("pairs", 3), ("shingles", 2), ("shard", 2))

SCRIPT = """
import os, signal, sys
from pathlib import Path
from headwater.corpus import folder
from headwater.corpus.building import cluster, phases, plan
from headwater.corpus.building.pipeline import build_corpus
from headwater.corpus.building.recipes import BuildConfig
from headwater.corpus.dedup import keys

original = phases.PhaseRunner.run


def prepare(phase, number):
    plan.TASK_FILES, folder.SHARD_BYTES, keys.PARTITION_ROWS = 1, 4000, 15

    def dying(runner, *task):
        original(runner, *task)
        if task[:2] == (phase, number):
            os.killpg(0, signal.SIGKILL)

    phases.PhaseRunner.run = dying


class Step(cluster.DoTask):
    def __init__(self, runner, phase, place):
        super().__init__(runner.opener, str(runner.plan.folder), phase)
        self.place = place

    def run(self, data, rank=0, world_size=1):
        prepare(*self.place)
        yield from super().run(data, rank, world_size)


if __name__ == "__main__":
    engine, source, out, phase, number = sys.argv[1:]
    prepare(phase, int(number))
    if engine == "here":
        build_corpus([source], out, BuildConfig(near_duplicates=True))
    else:
        from datatrove.executor import LocalPipelineExecutor

        [parts] = Path(out).parent.glob(".corpus.*.parts")
        runner = phases.PhaseRunner.load(parts)
        for name in runner.phases:
            if not runner.missing(name):
                continue
            LocalPipelineExecutor(
                [Step(runner, name, (phase, int(number)))],
                tasks=4, workers=1, logging_dir=str(Path(out).parent / "logs" / name), skip_completed=False,
            ).run()
"""


@pytest.fixture(autouse=True)
def _small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in SMALL:
        monkeypatch.setattr(module, name, value)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Files of rows, a third of which are copies or near copies of earlier ones."""
    generator, texts = random.Random(5), list[str]()
    (tmp_path / "files").mkdir()
    for number in range(5):
        for row in range(12):
            words = [f"word{generator.randrange(500)}" for _ in range(40)]
            kind = row % 6
            earlier = generator.choice(texts) if texts else ""
            texts.append(earlier.upper() if kind == 1 else f"{earlier} more" if kind == 2 else " ".join(words))
        rows = "".join(json.dumps({"text": text}) + "\n" for text in texts[-12:])
        (tmp_path / "files" / f"{number}.jsonl").write_text(rows)
    return tmp_path / "files"


def whole(files: Path, out: Path) -> Manifest:
    build_corpus([files], out, CONFIG)
    return open_folder(out, "corpus")


def test_a_build_stopped_after_each_task_does_each_once(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = whole(files, tmp_path / "fresh")
    done: Counter[tuple[Any, ...]] = Counter()
    run = PhaseRunner.run

    def interrupted(runner: PhaseRunner, *task: Any) -> None:
        run(runner, *task)
        done[task[:2]] += 1
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(PhaseRunner, "run", interrupted)
        for _ in range(200):
            try:
                build_corpus([files], tmp_path / "corpus", CONFIG)
            except KeyboardInterrupt:
                continue
            break
    assert set(done.values()) == {1}
    phases = Counter(phase for phase, _ in done)
    assert list(phases) == [
        "parts",
        "starts",
        "copies",
        "pairs",
        "wanted",
        "shingles",
        "similar",
        "removed",
        "bounds",
        "shard",
    ]
    assert min(phases[phase] for phase in ("parts", "copies", "pairs", "shingles", "shard")) >= 4
    assert open_folder(tmp_path / "corpus").files == fresh.files


@pytest.mark.parametrize("altered", ["pairs-000001/pairs.npy", "shard-000000/documents-00000.parquet"])
def test_an_altered_output_is_made_again(
    files: Path, tmp_path: Path, altered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = whole(files, tmp_path / "fresh")
    run = PhaseRunner.run

    def interrupted(runner: PhaseRunner, *task: Any) -> None:
        run(runner, *task)
        if task[:2] == ("shard", 1):
            raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(PhaseRunner, "run", interrupted)
        build_corpus([files], tmp_path / "corpus", CONFIG)
    [path] = tmp_path.glob(f".corpus.*.parts/{altered}")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert whole(files, tmp_path / "corpus").files == fresh.files


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
@pytest.mark.parametrize("engine", ["here", "datatrove"])
def test_a_build_killed_five_times_gives_the_same_bytes(files: Path, tmp_path: Path, engine: str) -> None:
    if engine == "datatrove":
        pytest.importorskip("datatrove")
    fresh = whole(files, tmp_path / "fresh")
    out = tmp_path / "corpus"
    (tmp_path / "killed.py").write_text(SCRIPT)
    for number, (phase, task) in enumerate(PLACES):
        named = "here" if not number else engine  # the first plans the build
        command = [sys.executable, str(tmp_path / "killed.py"), named, str(files), str(out), phase, str(task)]
        ended = subprocess.run(command, check=False, start_new_session=True, capture_output=True, text=True)
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        assert list(tmp_path.glob(f".corpus.*.parts/{phase}*"))
    assert not out.exists()
    assert whole(files, out).files == fresh.files


def test_only_files_that_are_read_identify_a_source(files: Path, tmp_path: Path) -> None:
    """A picture next to the texts was hashed, and removing it made the corpus "made from another input"."""
    (files / "picture.png").write_bytes(b"skipped")
    build_corpus([files], tmp_path / "corpus", CONFIG)
    (files / "picture.png").unlink()
    build_corpus([files], tmp_path / "corpus", CONFIG)
    assert [entry["state"] for entry in lineage(tmp_path / "corpus")["inputs"]] == ["source"]
    (files / "new.txt").write_text("a new text")
    assert [entry["state"] for entry in lineage(tmp_path / "corpus")["inputs"]] == ["changed"]
    with pytest.raises(FolderError, match="another input"):
        build_corpus([files], tmp_path / "corpus", CONFIG)
