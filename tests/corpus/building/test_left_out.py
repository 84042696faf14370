"""Nothing of a folder is left out in silence: each file is read, set aside or named."""

from __future__ import annotations

import gzip
import inspect
import json
import os
import sys
from pathlib import Path

import pytest

from headwater.corpus import build_corpus, read_documents
from headwater.storage import Progress, user_files


class Notes(Progress):
    """Keeps what the user is shown."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def note(self, text: str) -> None:
        self.texts.append(text)


def test_every_file_of_a_folder_is_read_or_named(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    folder = tmp_path / "in"
    (folder / "inner").mkdir(parents=True)
    for name, content in {
        "a.txt": b"A good text of its own.",
        "inner/b.md": b"Another good text.",
        "empty.txt": b"",
        "blank.txt": b"\n \n",
        "latin.txt": "caf\xe9 au lait".encode("latin-1"),
        "binary.txt": bytes(range(256)),
        "cut.jsonl": b'{"text": "first whole line"}\n{"text": "second li',
        "first.jsonl": b'{"text": ["a"]}\n{"text": "fine"}',
        "rows.csv": b'text,n\nA row,1\n,2\n"never closed,3\n',
        "cut.csv.gz": gzip.compress(b"text\n" + b"a long row\n" * 999)[:-9],
        "other.csv": b"title,body\na,b\n",
        "broken.parquet": b"PAR1 broken",
        "broken.xlsx": b"PK\x03\x04 broken",
        "video.mp4": b"\x00\x01",
        "page.html": b"",
        "tabs.tab": b"text\tn\nA text in a table with tabs.\t1\n",
    }.items():
        (folder / name).write_bytes(content)
    book = openpyxl.Workbook()
    for row in (["text"], ["In the workbook."]):
        book.active.append(row)
    book.create_sheet("Other").append(["left out"])
    book.save(folder / "book.xlsx")
    (folder / "gone.txt").symlink_to(folder / "nowhere")
    (folder / "linked").symlink_to(folder / "inner")
    notes = Notes()
    corpus = tmp_path / "corpus"
    build_corpus([folder], corpus, progress=notes)
    funnel = (corpus / "funnel.json").read_text("utf-8")
    aside = corpus / "set-aside.jsonl"
    named = funnel + (aside.read_text("utf-8") if aside.exists() else "")
    sources = {Path(document.source).name for document in read_documents(corpus)}
    every = [path for paths in user_files(folder) for path in paths]
    assert "tabs.tab" in sources
    assert len(every) == 19
    silent = [path.name for path in every if path.name not in sources and path.name not in named]
    assert silent == []
    assert "the sheet 'Sheet' is read, not 'Other'" in named
    assert json.loads(funnel)["read"]["documents"] >= 3
    assert sum(len(files) for _, _, files in os.walk(folder)) == 18  # the folder itself is not changed


def test_folders_deeper_than_pythons_stack_are_listed(tmp_path: Path) -> None:
    folder = tmp_path
    for _ in range(120):
        folder /= "d"
        folder.mkdir()
    (folder / "a.txt").write_text("deep")
    (tmp_path / "b.txt").write_text("flat")
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 80)
    try:
        found = user_files(tmp_path)
    finally:
        sys.setrecursionlimit(limit)
    assert found == ([tmp_path / "b.txt", folder / "a.txt"], [])
