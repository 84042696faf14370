"""`corpus build`: sources in order, duplicates out, counts kept, nothing half-written."""

from __future__ import annotations

import errno
import gzip
import json
import unicodedata
from pathlib import Path

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
from headwater.corpus.building import parts, pipeline, plan
from headwater.corpus.folder import Funnel
from headwater.corpus.sources import python_docs
from headwater.errors import DataError, FolderError
from headwater.storage import Stage, open_folder, read_manifest


def write_sources(folder: Path) -> tuple[Path, Path]:
    first, second = folder / "z.txt", folder / "a.jsonl"
    first.write_text("The river ran.<|endoftext|>Another text.")
    rows = ["The river ran.", "A third text."]
    second.write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
    return first, second


def test_plain_keeps_texts_that_differ_in_case_or_indentation(tmp_path: Path) -> None:
    texts = [
        "Say YES.",
        "say yes.",
        "for ship in harbour:\n    rest()",
        "for ship in harbour:\nrest()",
        "say yes.",
    ]
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    build_corpus([rows], tmp_path / "corpus")
    assert [document.text for document in read_documents(tmp_path / "corpus")] == texts[:4]


def test_sources_keep_their_order_and_the_first_copy_stays(tmp_path: Path) -> None:
    build_corpus(write_sources(tmp_path), tmp_path / "corpus")
    assert [d.text for d in read_documents(tmp_path / "corpus")] == [
        "The river ran.",
        "Another text.",
        "A third text.",
    ]
    funnel = read_funnel(tmp_path / "corpus")
    assert [source["documents"] for source in funnel["sources"]] == [2, 2]
    assert funnel["duplicates"] == {"exact": 1}
    assert funnel["kept"] == {"documents": 3, "bytes": 40}
    assert not list(tmp_path.glob(".*"))


def test_the_same_command_gives_the_same_bytes(tmp_path: Path) -> None:
    sources = write_sources(tmp_path)
    for name in ("one", "two"):
        build_corpus(sources, tmp_path / name)
    shards = sorted((tmp_path / "one" / "documents").iterdir())
    assert shards
    for path in shards:
        assert path.read_bytes() == (tmp_path / "two" / "documents" / path.name).read_bytes()
    # As pandas.read_parquet does with a folder: any file in it that is not Parquet is an error.
    assert pyarrow.parquet.read_table(tmp_path / "one" / "documents").num_rows == 3
    build_corpus(sources, tmp_path / "one")  # again: found complete


def test_folders_that_headwater_wrote_are_not_read_as_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_sources(tmp_path)
    monkeypatch.chdir(tmp_path)
    commands = [
        ["tokenizer", "train", ".", "--out", "made/tokenizer", "--vocab-size", "260"],  # has merges.txt
        ["corpus", "build", ".", "--out", "corpus"],
    ]
    for command in commands * 2:
        assert main(command) == 0
    assert capsys.readouterr().err.count("is complete already") == 2
    build_corpus([tmp_path], tmp_path / "again")
    texts = [document.text for document in read_documents(tmp_path / "again")]
    assert texts == ["The river ran.", "A third text.", "Another text."]
    assert read_funnel(tmp_path / "again")["sources"][0]["left_out"] == ["corpus/", "made/tokenizer/"]


def test_only_the_pages_of_a_pages_folder_are_read(tmp_path: Path) -> None:
    pytest.importorskip("fastwarc")
    pytest.importorskip("resiliparse")
    page = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<p>" + b"The river runs to the sea. " * 9
    head = f"WARC/1.0\r\nWARC-Type: response\r\nContent-Type: application/http\r\nContent-Length: {len(page)}\r\n"
    with Stage(tmp_path / "pages", kind="pages", config={}, inputs={}).write() as work:
        (work / "pages-00000.warc.gz").write_bytes(gzip.compress(head.encode() + b"\r\n" + page + b"\r\n\r\n"))
        (work / "funnel.json").write_text('{"links": 1}')
    build_corpus([tmp_path / "pages"], tmp_path / "corpus")
    funnel = read_funnel(tmp_path / "corpus")
    assert (funnel["kept"]["documents"], funnel["set_aside"], funnel["notes"]) == (1, 0, [])


def test_another_source_does_not_overwrite(tmp_path: Path) -> None:
    first, second = write_sources(tmp_path)
    build_corpus([first], tmp_path / "corpus")
    with pytest.raises(FolderError, match="something else"):
        build_corpus([second], tmp_path / "corpus")


def test_corpora_can_be_joined(tmp_path: Path) -> None:
    labelled = Document(id="x", text="labelled text", labels={"package": "p"})
    with Stage(tmp_path / "old", kind="corpus", config={}, inputs={}).write() as work:
        write_documents([labelled], work, ["package"])
    first, _ = write_sources(tmp_path)
    build_corpus([first, tmp_path / "old"], tmp_path / "corpus")
    assert list(read_documents(tmp_path / "corpus"))[-1] == labelled


def test_a_text_in_two_unicode_forms_is_one_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "긍정적인 평가가 많았다. " * 3
    (tmp_path / "a.txt").write_text(unicodedata.normalize("NFD", text), encoding="utf-8")
    (tmp_path / "b.txt").write_text(text, encoding="utf-8")
    sources = [str(tmp_path / name) for name in ("a.txt", "b.txt")]
    assert main(["corpus", "build", *sources, "--out", str(tmp_path / "corpus")]) == 0
    assert "composed form (NFC): 1 document\n" in capsys.readouterr().out
    assert [document.text for document in read_documents(tmp_path / "corpus")] == [text]
    assert read_manifest(tmp_path / "corpus").config["compose"] is True
    build_corpus(sources[:1], tmp_path / "given", load_recipe("plain", {"compose": False}))
    assert [d.text for d in read_documents(tmp_path / "given")] == [unicodedata.normalize("NFD", text)]


def test_installed_documentation_is_kept_when_packages_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "alpha.py").write_text('"""' + "Alpha does a thing worth describing at some length. " * 2 + '"""\n')
    roots = python_docs.Roots(tmp_path / "no-library", (site,))
    monkeypatch.setattr(python_docs.Roots, "of_interpreter", lambda: roots)
    build_corpus(["python-docs"], tmp_path / "corpus")
    assert [d.labels["package"] for d in read_documents(tmp_path / "corpus")] == ["alpha"]
    identity = open_folder(tmp_path / "corpus").identity
    (site / "beta.py").write_text('"""' + "Beta does another thing worth describing at length. " * 2 + '"""\n')
    build_corpus(["python-docs"], tmp_path / "corpus")
    assert open_folder(tmp_path / "corpus").identity == identity


def test_the_command_line_builds_and_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sources = [str(path) for path in write_sources(tmp_path)]
    assert main(["corpus", "build", *sources, "--out", str(tmp_path / "corpus"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kept"]["documents"] == 3
    assert main(["corpus", "stats", str(tmp_path / "corpus"), "--json"]) == 0
    stats = json.loads(capsys.readouterr().out)
    assert (stats["documents"], stats["characters"]) == (3, 40)
    assert stats["characters_per_document"]["maximum"] == 14
    assert stats["counts"]["source"]["top"] == [["z.txt", 2], ["a.jsonl", 1]]
    assert main(["corpus", "stats", str(tmp_path / "corpus")]) == 0
    text = capsys.readouterr().out
    assert "documents   3" in text
    assert "duplicates: exact" in text


def test_a_misspelt_source_is_one_sentence_and_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["corpus", "build", "python-dosc", "--out", "corpus"]) == 1
    message = capsys.readouterr().err
    assert "python-docs" in message
    assert "Traceback" not in message
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_reported_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*unused: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("headwater.corpus.building.parts._write", full)
    first, _ = write_sources(tmp_path)
    before = sorted(tmp_path.iterdir())
    assert main(["corpus", "build", str(first), "--out", str(tmp_path / "corpus")]) == 1
    assert f"no space is left to write {tmp_path / 'corpus'}." in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before


def test_an_unreadable_folder_gives_the_repair(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/empty.txt").write_text("")
    with pytest.raises(DataError, match=r"texts is empty: it has no text"):
        pipeline.build_corpus([tmp_path / "texts"], tmp_path / "corpus")
    (tmp_path / "texts/latin.txt").write_bytes(b"un caf\xe9")
    (tmp_path / "texts/packed.txt.gz").write_bytes(gzip.compress(b"un autre caf\xe9"))
    pipeline.build_corpus([tmp_path / "texts"], tmp_path / "corpus")
    assert [document.text for document in read_documents(tmp_path / "corpus")] == ["un café", "un autre café"]
    assert sum(read_funnel(tmp_path / "corpus")["encodings"].values()) == 2


@pytest.mark.parametrize(
    ("name", "content", "repair"),
    [
        ("a.txt", b" \n \n", "Name a file or folder with text"),
        ("a.jsonl", bytes(range(1, 256)) * 9, "Name its encoding, as with: --encoding NAME"),
        ("a.html", b"<p> </p>", "Repair that file"),
    ],
)
def test_a_repair_is_one_that_can_help(tmp_path: Path, name: str, content: bytes, repair: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / name).write_bytes(content)
    with pytest.raises(DataError) as raised:
        pipeline.build_corpus([tmp_path / "in"], tmp_path / "out")
    assert raised.value.repair == repair


def test_a_file_without_a_usable_page_is_an_error_with_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.corpus.sources.pages.PAGE_BYTES", 4_000)
    (tmp_path / "a.html").write_bytes(b"<p>" + b"0" * 4_000)
    with pytest.raises(DataError, match=r"a\.html is larger than 4,000 bytes"):
        pipeline.build_corpus([tmp_path / "a.html"], tmp_path / "corpus")
    record = b"WARC/1.0\r\nWARC-Type: warcinfo\r\nContent-Length: 1\r\n\r\nx\r\n\r\n"
    (tmp_path / "b.warc").write_bytes(record)
    with pytest.raises(DataError, match=r"b\.warc gave no text: it has no usable page"):
        pipeline.build_corpus([tmp_path / "b.warc"], tmp_path / "corpus")
    (tmp_path / "river.txt").write_text("The river flows to the sea.")
    pipeline.build_corpus([tmp_path], tmp_path / "out" / "corpus")
    aside = map(json.loads, (tmp_path / "out" / "corpus/set-aside.jsonl").read_text().splitlines())
    assert [Path(row["source"]).name for row in aside] == ["a.html", "b.warc"]


def test_text_files_have_encodings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = ["강물이 흐른다. 그리고 바다로 간다.", "강물은 산에서 시작하여 남쪽으로 흐른다.", "La rivière coule."]
    for name, text, encoding in zip("abc", texts, ("cp949", "utf-16", "cp1252"), strict=True):
        (tmp_path / f"{name}.txt").write_text(text, encoding=encoding)
    command = ["corpus", "build", *(str(tmp_path / f"{name}.txt") for name in "ab")]
    assert main([*command, "--out", str(tmp_path / "korean")]) == 0
    assert "files not in UTF-8: 1 cp949 (text file), 1 utf-16 (text file)" in capsys.readouterr().out
    assert [document.text for document in read_documents(tmp_path / "korean")] == texts[:2]
    command = ["corpus", "build", str(tmp_path / "c.txt"), "--out", str(tmp_path / "french")]
    assert main(command) == 0
    assert [document.text for document in read_documents(tmp_path / "french")] == texts[2:]
    assert main([*command[:3], "--out", str(tmp_path / "none"), "--encoding", "latin-99"]) == 2
    assert "there is no encoding 'latin-99'. Did you mean 'latin-1'" in capsys.readouterr().err


def test_a_file_that_is_removed_before_it_is_read_is_named(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text(f"The river {name}.")
    [task] = plan.open_source(0, tmp_path).tasks
    (tmp_path / "a.txt").unlink()
    funnel = Funnel()
    reader = parts.PartMaker(load_recipe("plain"), [])
    assert [d.text for d in reader.read(task, funnel)] == ["The river b."]
    assert "a.txt does not exist" in funnel.notes[0]


def test_linked_folders_and_broken_links_are_named(tmp_path: Path) -> None:
    for name in ("texts", "more"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "river.txt").write_text(f"The river flows to the sea of {name}.")
    (tmp_path / "texts/circle").symlink_to(tmp_path / "texts", target_is_directory=True)
    (tmp_path / "texts/linked").symlink_to(tmp_path / "more", target_is_directory=True)
    (tmp_path / "texts/gone.txt").symlink_to(tmp_path / "nothing.txt")
    (tmp_path / "texts/itself.txt").symlink_to(tmp_path / "texts/itself.txt")
    pipeline.build_corpus([tmp_path / "texts"], tmp_path / "corpus")
    [source] = pipeline.read_funnel(tmp_path / "corpus")["sources"]
    assert (source["documents"], source["left_out"]) == (1, ["circle/", "gone.txt", "itself.txt", "linked/"])


def test_files_that_are_left_out_of_a_folder_are_named(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/river.txt").write_text("The river flows to the sea.")
    (tmp_path / "texts/nothing.txt").write_text("")
    for number in range(10):
        (tmp_path / f"texts/picture{number}.png").write_bytes(b"")
    notes: list[str] = []

    class Notes(pipeline.Progress):
        def note(self, text: str) -> None:
            notes.append(text)

    pipeline.build_corpus([tmp_path / "texts"], tmp_path / "corpus", progress=Notes())
    assert f"{tmp_path / 'texts'}: skipped 10 items: 10 .png" in notes
    [aside] = map(json.loads, (tmp_path / "corpus/set-aside.jsonl").read_text().splitlines())
    assert (aside["source"], aside["reason"]) == ("texts/nothing.txt", "it is empty")


def test_documents_with_lost_characters_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "a.jsonl"
    table.write_text('{"text": "half \\ud83d of a sign"}\n{"text": "a whole \\ud83d\\ude00"}\n', encoding="utf-8")
    assert main(["corpus", "build", str(table), "--out", str(tmp_path / "corpus")]) == 0
    assert "in place of lost characters: 1 document\n" in capsys.readouterr().out
    assert [d.text for d in read_documents(tmp_path / "corpus")] == ["half \ufffd of a sign", "a whole 😀"]
    assert read_funnel(tmp_path / "corpus")["replaced"] == 1
