"""The user's own text: every format is read, and what cannot be used is named."""

from __future__ import annotations

import bz2
import csv
import gzip
import json
import lzma
import os
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.corpus import BuildConfig, Document, build_corpus, read_funnel
from headwater.corpus.building.parts import PartMaker
from headwater.corpus.building.plan import open_source
from headwater.corpus.folder import Funnel, Tally
from headwater.corpus.sources import text as text_module
from headwater.corpus.sources.text import read_text_file
from headwater.errors import DataError


def read_source(source: Path, field: str = "text") -> list[Document]:
    config = BuildConfig(text_field=field)
    documents = [d for task in open_source(0, source).tasks for d in PartMaker(config, []).read(task, Funnel())]
    if not documents:
        raise DataError(f"{source.name} is empty")
    return documents


def texts_of(source: Path) -> list[str]:
    return [document.text for document in read_source(source)]


def test_a_text_file_is_one_document_or_several(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\n<|endoftext|>\nthree<|endoftext|>  \n<|endoftext|>four")
    assert texts_of(path) == ["one\ntwo", "three", "four"]
    path.write_text("강물이 흐른다\n", encoding="utf-8")
    [document] = read_source(path)
    assert (document.text, document.source) == ("강물이 흐른다", "a.txt")


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.text(st.sampled_from("ab<|endoftext>é강\n"), min_size=1).map(lambda t: t + "x")),
    st.integers(1, 20),
)
def test_block_borders_do_not_matter(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[str], block: int
) -> None:
    separated = text_module.SEPARATOR.join(pieces)
    path = tmp_path_factory.mktemp("text") / "a.txt"
    path.write_text(separated, encoding="utf-8", newline="")
    expected = [t for t in (p.strip("\n") for p in separated.split(text_module.SEPARATOR)) if t.strip()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headwater.reading.text._BLOCK_BYTES", block)
        if expected:
            assert texts_of(path) == expected
        else:
            with pytest.raises(DataError, match="empty"):
                texts_of(path)


def test_rows_of_json_lines_and_parquet(tmp_path: Path) -> None:
    rows = [{"text": "first", "url": "http://a", "score": 3}, {"text": "둘\u2028째", "date": "2017-12-01"}]
    lines = tmp_path / "a.jsonl"
    lines.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n\n", encoding="utf-8")
    table = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(
        pyarrow.Table.from_pylist([{"date": None, "url": None} | row for row in rows]), table
    )
    for path in (lines, table):
        first, second = read_source(path)
        assert (first.text, first.url, first.date) == ("first", "http://a", "")
        assert (second.text, second.url, second.date) == ("둘\u2028째", "", "2017-12-01")


ROWS = [{"body": 'one,\n"two"', "url": "http://a", "n": 1}, {"body": "둘", "url": "", "n": 2}]
FORMS = {
    ".jsonl": "\n".join(map(json.dumps, ROWS)),
    ".json": json.dumps(ROWS, indent=1),
    "-lines.json": "\n".join(map(json.dumps, ROWS)),
    ".ndjson": "\n".join(map(json.dumps, ROWS)),
    ".csv": '\ufeffn,body,url\r\n1,"one,\n""two""",http://a\r\n\r\n2,둘,\r\n',
}
PACKERS = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("packed", PACKERS)
def test_every_format_gives_the_same_rows(tmp_path: Path, form: str, packed: str) -> None:
    path = tmp_path / f"a{form}{packed}"
    path.write_bytes(PACKERS[packed](FORMS[form].encode()))
    assert [(d.text, d.url) for d in read_source(path, "body")] == [('one,\n"two"', "http://a"), ("둘", "")]
    assert open_source(0, tmp_path).skipped == []


def test_a_list_of_texts_and_a_packed_text(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('["one", "two"]')
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"three<|endoftext|>four"))
    assert texts_of(tmp_path) == ["one", "two", "three", "four"]


def test_an_unreadable_file_of_a_folder_is_set_aside_whole(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("A text.")
    unusable = {
        "b.csv": (b"id,review\n1,good\n", '"text", only id, review. Name the column'),
        "c.json": (b'{"name": "a package"}', 'no text column "text", only name'),
        "d.jsonl": (
            '{"text": "강물이 흐른다"}\n'.encode() * 9 + b'{"text": "caf\xe9"}\n',
            "not UTF-8: byte 0xe9 in line 10",
        ),
        "e.txt": (bytes(range(1, 256)) * 9, "cannot be decided"),
        "f.md": (b"\x00\x01", "is a binary file"),
        "g.json": (b"{", "is not JSON"),
        "h.txt.gz": (gzip.compress(b"one text of many\n" * 99, mtime=0)[:-9], "ends early"),
        "i.parquet": (b"PAR1", "cannot be read as Parquet"),
        "j.jsonl": (b'{"text": "a"\n', "line 1 is not JSON"),
    }
    for name, (content, _) in unusable.items():
        (tmp_path / name).write_bytes(content)
    funnel = Funnel()
    documents = [
        d for task in open_source(0, tmp_path).tasks for d in PartMaker(BuildConfig(), []).read(task, funnel)
    ]
    assert [document.text for document in documents] == ["A text."]
    for (name, (_, reason)), aside, note in zip(unusable.items(), funnel.aside, funnel.notes, strict=True):
        assert aside["source"] == f"{tmp_path.name}/{name}"
        assert name in note
        assert reason in note
        with pytest.raises(DataError, match=name):  # a file that is named itself is an error
            texts_of(tmp_path / name)


def test_half_a_surrogate_pair_in_json_becomes_a_replacement(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a\\ud83d b \\ud83d\\ude00 강", "url": "http://a/\\udc00"}\n', encoding="utf-8")
    [document] = read_source(path)
    assert (document.text, document.url) == ("a\ufffd b 😀 강", "http://a/\ufffd")
    path.write_text('{"\\ud83d": "a"}\n', encoding="utf-8")
    (tmp_path / "b.txt").write_text("A text.")
    build_corpus([tmp_path], tmp_path / "out")  # the reason why a file is set aside names its columns
    assert "only \ufffd" in read_funnel(tmp_path / "out")["notes"][0]


def test_a_folder_gives_its_text_files_by_name(tmp_path: Path) -> None:
    for name in ("b.txt", "a.md", "sub/c.txt", ".hidden/d.txt", "e.docx"):
        path = tmp_path / "books" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    assert texts_of(tmp_path / "books") == ["a.md", "b.txt", "sub/c.txt"]
    assert open_source(0, tmp_path / "books").skipped == ["e.docx"]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", b"", "empty"),
        ("a.txt", b" \n\r\n\t", "empty"),
        ("a.txt", b"text\x00\x01", "binary"),
        ("a.txt", "하나\n둘\n".encode() * 9 + b"caf\xe9\n", "not UTF-8: byte 0xe9 in line 19"),
        ("a.txt", b"cut short \xe2\x82", "cut off in its last character, in line 1"),
        ("a.csv", b'id,text\n1,"one\n2,two\n3,three\n', "a quote that is never closed in the row of line 2"),
        (
            "a.csv",
            b'id,text\n1,one\n2,"two" and more\n',
            "text after the closing quote of a field in the row of line 3",
        ),
        ("a.csv", b"id,text\r1,one\r", "a carriage return without a line feed"),
        ("a.csv", b"text,text\none,two\n", "two columns named 'text'"),
        ("a.tsv", b"id\tbody\n1\tone\n", 'no text column "text", only id, body'),
        ("a.jsonl", b'{"body": "a"}\n', 'no text column "text", only body'),
        ("a.jsonl", b"[" * 100_000, "line 1"),
        ("a.jsonl", b"[1]\n", "line 1 is [1]; expected a JSON object"),
        ("a.jsonl", b"", "empty"),
        ("a.csv", b"id,body\n1,one\n", 'no text column "text", only id, body'),
        ("a.jsonl.gz", gzip.compress(b'{"text": "a"}\n', mtime=0)[:-9], "ends early"),
        ("a.txt.gz", b"\x1f\x8bnot gzip", "cannot be read"),
        ("a.parquet", b"PAR1 not really", "Parquet"),
        ("missing/a.txt", None, "does not exist"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, name: str, content: bytes | None, said: str) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        texts_of(path)
    assert said in str(caught.value)
    assert path.name in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.jsonl", b'{"text": "a"}\nnonsense\n', "line 2"),
        ("a.json", b'["one", null]', "item 2 is null"),
        ("a.jsonl", b'{"text": 5}\n{"text": "a"}\n', 'row 1 has no text in "text"'),
        ("a.csv", b"text,id\none,1\ntwo\n", "row 2 has 1 field, beginning 'two'"),
        ("a.json", b'[{"text": "a"}, {}]', 'row 2 has no text in "text"'),
    ],
)
def test_a_row_that_cannot_be_used_is_counted(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    path, left_out = tmp_path / name, Tally()
    path.write_bytes(content)
    assert len(list(read_text_file(path, name, left_out=left_out))) == 1
    assert left_out.total("rows that cannot be read") == 1
    assert f"{name} {said}" in left_out["rows that cannot be read"]["examples"][0]
    with pytest.raises(DataError):  # where nothing counts it
        list(read_text_file(path, name))


def test_an_unclosed_quote_takes_at_most_one_long_field(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.reading.files.FileLimits.FIELD_CHARACTERS", 1000)
    path = tmp_path / "a.csv"
    path.write_text(f'text\n{"a" * 1000}\nshort\n"open\n' + "a line\n" * 200)
    limit = csv.field_size_limit()
    with pytest.raises(
        DataError, match=r"more than 1,000 characters in the row of line 4.* Close the double quote"
    ):
        texts_of(path)
    assert csv.field_size_limit() == limit, "the process's limit is as before"
    path.write_text(f"text\n{'a' * 1000}\n")
    assert texts_of(path) == ["a" * 1000]
    path.write_text(f"text\n{'a' * 1001}\n")
    with pytest.raises(DataError, match=r"in the row of line 2\. Shorten or split this text"):  # no quote is open
        texts_of(path)


@pytest.mark.parametrize("kind", ["large_string", "string_view", "dictionary"])
def test_texts_of_a_table_in_any_form(tmp_path: Path, kind: str) -> None:
    column = pyarrow.array(["one", None, "둘"])
    column = column.dictionary_encode() if kind == "dictionary" else column.cast(getattr(pyarrow, kind)())
    pyarrow.parquet.write_table(pyarrow.table({"text": column, "url": column}), tmp_path / "a.parquet")
    assert [(d.text, d.url) for d in read_source(tmp_path / "a.parquet")] == [("one", "one"), ("둘", "둘")]


def test_a_table_without_text_is_named(tmp_path: Path) -> None:
    for column in ([1], [["a"]]):
        pyarrow.parquet.write_table(pyarrow.table({"body": ["a"], "text": column}), tmp_path / "a.parquet")
        with pytest.raises(DataError, match='"text"'):
            texts_of(tmp_path / "a.parquet")


def test_a_folder_without_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "photo.png").write_bytes(b"\x89PNG")
    with pytest.raises(DataError, match="contains no text file"):
        texts_of(tmp_path)
    if hasattr(os, "mkfifo"):  # as the shell's <(zcat a.txt.gz)
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(DataError, match="pipe is neither a file nor a folder"):
            texts_of(tmp_path / "pipe")
