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
from headwater.corpus.building.runner import BuildRunner
from headwater.errors import FolderError
from headwater.storage import Manifest, open_folder

CONFIG = BuildConfig(near_duplicates=True)
SMALL = ((planning, "TASK_FILES", 1), (folder, "SHARD_BYTES", 4000))
PLACES = (("parts", 2), ("pairs", 0), ("shingles", 2), ("kinds", 0), ("shard", 2))

SCRIPT = """
import os, signal, sys
from pathlib import Path
from headwater.corpus import folder
from headwater.corpus.building import plan, runner
from headwater.corpus.building.pipeline import build_corpus
from headwater.corpus.building.recipes import BuildConfig

source, out, phase, number = sys.argv[1:]
plan.TASK_FILES, folder.SHARD_BYTES = 1, 4000
original = runner.BuildRunner.run


def dying(self, *task):
    original(self, *task)
    if task[:2] == (phase, int(number)):
        os.killpg(0, signal.SIGKILL)


runner.BuildRunner.run = dying
build_corpus([source], Path(out), BuildConfig(near_duplicates=True))
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
            texts.append(earlier if kind == 1 else f"{earlier} more" if kind == 2 else " ".join(words))
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
    run = BuildRunner.run

    def interrupted(runner: BuildRunner, *task: Any) -> None:
        run(runner, *task)
        done[task[:2]] += 1
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(BuildRunner, "run", interrupted)
        for _ in range(200):
            try:
                build_corpus([files], tmp_path / "corpus", CONFIG)
            except KeyboardInterrupt:
                continue
            break
    assert set(done.values()) == {1}
    phases = Counter(phase for phase, _ in done)
    assert list(phases) == ["parts", "pairs", "shingles", "kinds", "shard"]
    assert min(phases[phase] for phase in ("parts", "shingles", "shard")) >= 4
    assert open_folder(tmp_path / "corpus").files == fresh.files


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_a_build_killed_five_times_gives_the_same_bytes(files: Path, tmp_path: Path) -> None:
    fresh = whole(files, tmp_path / "fresh")
    out = tmp_path / "corpus"
    (tmp_path / "killed.py").write_text(SCRIPT)
    for phase, task in PLACES:
        command = [sys.executable, str(tmp_path / "killed.py"), str(files), str(out), phase, str(task)]
        ended = subprocess.run(command, check=False, start_new_session=True, capture_output=True, text=True)
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        assert list(tmp_path.glob(f".corpus.*.parts/{phase}*"))
    assert not out.exists()
    assert whole(files, out).files == fresh.files


def test_files_that_are_skipped_or_added_later_do_not_decide_the_identity(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (files / "picture.png").write_bytes(b"skipped")
    run_all = BuildRunner.run_all

    def adding(runner: BuildRunner, **options: Any) -> None:
        (files / "later.jsonl").write_text('{"text": "Added while the corpus is built."}\n')
        run_all(runner, **options)

    with monkeypatch.context() as patched:
        patched.setattr(BuildRunner, "run_all", adding)
        build_corpus([files], tmp_path / "corpus", CONFIG)
    (files / "picture.png").unlink()
    with pytest.raises(FolderError, match="another input"):  # the added file is not in the corpus
        build_corpus([files], tmp_path / "corpus", CONFIG)
    (files / "later.jsonl").unlink()
    whole(files, tmp_path / "corpus")


def test_parts_of_a_build_with_other_settings_are_removed(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(runner: BuildRunner, **options: Any) -> None:
        runner.run("parts", 0)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(BuildRunner, "run_all", interrupted)
        build_corpus([files], tmp_path / "corpus")
    assert list(tmp_path.glob(".corpus.*.parts/parts-000000"))
    whole(files, tmp_path / "corpus")
    assert not list(tmp_path.glob(".corpus.*"))
