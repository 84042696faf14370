"""A bad file costs itself: the others are kept, what was done stays done, and what is left out is counted."""

from __future__ import annotations

import errno
import json
import sys
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from headwater.cli.main import main
from headwater.corpus import (
    Document,
    build_corpus,
    load_recipe,
    read_documents,
    read_funnel,
    write_documents,
)
from headwater.corpus import task_workers as engine
from headwater.corpus.building import plan as planning
from headwater.corpus.building.runner import BuildRunner
from headwater.errors import DataError, ResourceError, StorageError
from headwater.storage import Stage, open_folder


def write_rows(folder: Path, count: int) -> Path:
    folder.mkdir()
    for number in range(count):
        rows = [{"text": f"Row {row} of file {number} tells of the river."} for row in range(3)]
        (folder / f"{number:02d}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "TASK_FILES", 1)


@pytest.mark.usefixtures("small_tasks")
@pytest.mark.parametrize("named", ["a folder", "each file"])
def test_a_bad_row_costs_itself_wherever_it_is(
    tmp_path: Path, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    files = write_rows(tmp_path / "files", 5)
    broken = [
        '{"text": ["no text"]}',
        '{"text": "a good row"}',
        '{"text": "cut in',
        "7",
        '{"text": "another good row"}',
    ]
    (files / "02.jsonl").write_text("\n".join(broken))
    (files / "04.jsonl").write_text('{"id": 1}\n{"text": "after a row without the field"}\n')
    (files / "05.csv").write_text("text,n\nfirst of a table,1\nthree,fields,here\nlast of a table,3\n")
    (files / "03.jsonl").write_text("no row at all\n")
    sources = [str(files)] if named == "a folder" else [str(path) for path in sorted(files.iterdir())]
    for workers in ("1", "2"):
        out = tmp_path / f"corpus-{workers}"
        assert main(["corpus", "build", *sources, "--out", str(out), "--workers", workers]) == 0
        told = capsys.readouterr()
        assert "03.jsonl line 1 is not JSON" in told.err
        assert "set aside: 1" in told.out
        assert "rows that cannot be read: 6 (first: 02.jsonl row 1 has no text" in told.out
    assert open_folder(tmp_path / "corpus-1").identity == open_folder(tmp_path / "corpus-2").identity
    texts = [document.text for document in read_documents(tmp_path / "corpus-1")]
    good = [
        "a good row",
        "another good row",
        "after a row without the field",
        "first of a table",
        "last of a table",
    ]
    assert [text for text in texts if not text.startswith("Row")] == good
    assert len(texts) == 2 * 3 + len(good)
    build_corpus([files / "02.jsonl"], tmp_path / "alone")
    assert read_funnel(tmp_path / "alone")["left_out"]["rows that cannot be read"]["count"] == 3
    with pytest.raises(DataError, match="line 1 is not JSON"):
        build_corpus([files / "03.jsonl"], tmp_path / "broken")


@pytest.mark.parametrize("recipe", ["plain", "books"])
def test_a_file_that_is_not_plain_text_is_named_once(
    tmp_path: Path, recipe: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("resiliparse")
    paper, renamed, good = tmp_path / "paper.pdf", tmp_path / "renamed.txt", tmp_path / "good.txt"
    paper.write_bytes(b"%PDF-1.4\n1 0 obj\n<< /Type /Catalog >>\nendobj\n")
    renamed.write_bytes(b"{\\rtf1 A text in ASCII.}")
    good.write_text("A good text.")
    command = ["corpus", "build", "--recipe", recipe, "--set", "minimum_characters=0", "--out"]
    for number, sources in enumerate(([paper], [renamed], [paper, renamed])):
        assert main([*command, str(tmp_path / f"none-{number}"), *map(str, sources)]) == 1
        told = capsys.readouterr().err
        assert told.count(f"{sources[0]} is a") == 1
        assert "gave no text" not in told
    assert main([*command, str(tmp_path / "corpus"), str(good), str(paper)]) == 0
    told = capsys.readouterr()
    assert told.err.count("paper.pdf is a PDF") == 1
    assert "Convert it, as with: pdftotext" in told.err
    assert "set aside: 1" in told.out


@pytest.mark.usefixtures("small_tasks")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_task_that_fails_leaves_the_others_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    files = write_rows(tmp_path / "files", 5)
    run_all = BuildRunner.run_all

    def after_the_plan(runner: BuildRunner, **options: Any) -> None:
        (files / "00.jsonl").rename(tmp_path / "away")
        run_all(runner, **options)

    with monkeypatch.context() as patched:
        patched.setattr(BuildRunner, "run_all", after_the_plan)
        with pytest.raises(ResourceError, match=r"00\.jsonl does not exist"):
            build_corpus([files], tmp_path / "corpus", workers=workers)
    (tmp_path / "away").rename(files / "00.jsonl")
    done: list[int] = []
    fill = BuildRunner.make_parts
    monkeypatch.setattr(BuildRunner, "make_parts", lambda *task: done.append(task[1]) or fill(*task))
    build_corpus([files], tmp_path / "corpus")
    assert done == [0]
    assert len(list(read_documents(tmp_path / "corpus"))) == 15


def test_an_extracting_process_serves_all_files_of_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("resiliparse")
    files = write_rows(tmp_path / "files", 4)
    for number in range(4):
        (files / f"{number:02d}.html").write_text(f"<p>{'The river runs to the sea. ' * (number + 3)}")
    started: list[engine.WorkerPool] = []
    start = engine.WorkerPool._start
    monkeypatch.setattr(engine.WorkerPool, "_start", lambda self: started.append(self) or start(self))
    build_corpus([files], tmp_path / "corpus")
    assert len(started) == 1
    assert read_funnel(tmp_path / "corpus")["kept"]["documents"] == 16


def test_a_document_beyond_arrows_limit_is_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.corpus.building.parts.DOCUMENT_BYTES", 6)
    for name, text in (("a.txt", "강물"), ("b.txt", "강물x")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    build_corpus([tmp_path], tmp_path / "corpus")
    assert [document.text for document in read_documents(tmp_path / "corpus")] == ["강물"]
    funnel = read_funnel(tmp_path / "corpus")
    assert funnel["set_aside"] == 1
    assert "b.txt has a document of more than 6 bytes" in funnel["notes"][0]


def test_a_corpus_with_text_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    with Stage(tmp_path / "old", kind="corpus", config={}, inputs={}).write() as work:
        write_documents([Document("1", "text")], work)
        table = pyarrow.parquet.read_table(work / "documents-00000.parquet")
        broken = pyarrow.array([b"caf\xe9"]).view(pyarrow.string())
        table = table.set_column(1, table.schema.field("text"), broken)
        pyarrow.parquet.write_table(table, work / "documents-00000.parquet")
    with pytest.raises(DataError, match=r"documents-00000\.parquet"):
        build_corpus([tmp_path / "old"], tmp_path / "corpus")


def test_rows_keep_their_numbers_after_a_line_that_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "The river."}\nnot JSON\n\n{"text": null}\n{"text": "The sea."}\n')
    build_corpus([tmp_path / "a.jsonl"], tmp_path / "corpus")
    left_out = read_funnel(tmp_path / "corpus")["left_out"]
    assert left_out["rows without text"]["examples"] == ["a.jsonl: row 3"], "blank lines are not rows"


def test_what_is_left_out_of_a_table_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"text": "A text."}, {"text": None}, {"text": " "}, {"text": "Another text."}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["corpus", "build", str(tmp_path / "a.jsonl"), "--out", str(tmp_path / "corpus")]) == 0
    assert "rows without text: 2 (first: a.jsonl: row 2)" in capsys.readouterr().out
    left_out = read_funnel(tmp_path / "corpus")["left_out"]
    assert left_out == {"rows without text": {"count": 2, "examples": ["a.jsonl: row 2", "a.jsonl: row 3"]}}
    assert load_recipe("plain").text_field == "text"


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.txt.gz", "a.html", "a.warc"])
def test_a_disk_that_fails_is_not_taken_for_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / name).write_text('{"text": "It stayed."}\n')
    (tmp_path / "in" / "b.txt").write_text("The river ran.")
    original = Path.open

    def failing(path: Path, *mode: Any, **named: Any) -> Any:
        if path.name == name and path.parent.name == "in":
            raise OSError(errno.EIO, "Input/output error")
        return original(path, *mode, **named)

    with monkeypatch.context() as patched:
        patched.setattr("headwater.storage.provenance.sha256_of", lambda path: path.name)
        patched.setattr(Path, "open", failing)
        with pytest.raises(StorageError, match=rf"{name} cannot be read: Input/output error"):
            build_corpus([tmp_path / "in"], tmp_path / "corpus")
    assert not (tmp_path / "corpus").exists()


def test_a_skipped_file_without_a_suffix_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").mkdir()
    for name in ("a.txt", "Apache-2.0", "GPL-2", "b.png", "c.PNG"):
        (tmp_path / "in" / name).write_text("The river.")
    assert main(["corpus", "build", str(tmp_path / "in"), "--out", str(tmp_path / "corpus")]) == 0
    assert "in: skipped 4 items: 2 .png, Apache-2.0, GPL-2" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such a name")
def test_a_name_that_is_not_utf8_costs_its_file_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").mkdir()
    for name in ("a.txt", "caf\udce9.txt", "b.png", "c.png", "d.mp4"):
        (tmp_path / "in" / name).write_text(f"The river {name!a}.")
    assert main(["corpus", "build", str(tmp_path / "in"), "--out", str(tmp_path / "corpus")]) == 0
    assert "in: skipped 4 items: 2 .png, .txt, .mp4" in capsys.readouterr().err
    assert [document.source for document in read_documents(tmp_path / "corpus")] == ["in/a.txt"]
    left_out = read_funnel(tmp_path / "corpus")["sources"][0]["left_out"]
    assert sorted(left_out) == ["b.png", "c.png", "caf\ufffd.txt", "d.mp4"]
