"""Sources and corpora at a URL: the same documents as from a disk, in any number of workers."""

from __future__ import annotations

import bz2
import gzip
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fsspec")
pytest.importorskip("resiliparse")
pytest.importorskip("fastwarc")

import fsspec

from headwater.cli.main import main
from headwater.corpus import BuildConfig, build_corpus, read_documents, read_funnel
from headwater.errors import DataError, FolderError, ResourceError, StorageError
from headwater.reading import files
from headwater.storage import list_source, open_folder
from headwater.storage.provenance import UPLOADING

STORY = "The river ran over the stones, and nobody could say how long it had done so."


def warc(count: int) -> bytes:
    records = []
    for number in range(count):
        page = f"<html><body><article><p>{STORY} It is page {number}.</p></article></body></html>"
        http = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n{page}"
        records.append(
            f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:{uuid.UUID(int=number)}>\r\n"
            f"WARC-Date: 2017-05-06T07:08:09Z\r\nWARC-Target-URI: http://a.org/{number}\r\n"
            f"Content-Type: application/http; msgtype=response\r\nContent-Length: {len(http)}\r\n\r\n"
            f"{http}\r\n\r\n"
        )
    return b"".join(gzip.compress(record.encode()) for record in records)


def write_sources(folder: Path) -> None:
    """One file of each container, so that each reader meets a stream."""
    wiki = (
        "<mediawiki><page><title>River</title><ns>0</ns><revision><text>A '''river''' runs.</text></revision>"
        "</page></mediawiki>"
    )
    (folder / "deep").mkdir(parents=True)
    (folder / ".hidden").mkdir()
    (folder / ".hidden" / "h.txt").write_text("of a program")
    (folder / ".h.txt").write_text("of a program")
    (folder / "a.warc.gz").write_bytes(warc(20))
    (folder / "b.jsonl").write_text("".join(json.dumps({"text": f"row {i}"}) + "\n" for i in range(50)))
    (folder / "c.txt").write_text("one<|endoftext|>two")
    (folder / "d.xml.bz2").write_bytes(bz2.compress(wiki.encode()))
    (folder / "e.xml.gz").write_bytes(gzip.compress(wiki.replace("runs", "ran").encode()))
    (folder / "deep" / "f.html").write_text(f"<html><body><p>{STORY} It is deep.</p></body></html>")


@pytest.fixture
def memory() -> Iterator[Any]:
    store = fsspec.filesystem("memory")
    yield store
    store.rm("/", recursive=True)


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path / "cache"))


def test_half_an_uploaded_corpus_is_refused(tmp_path: Path, memory: Any) -> None:
    files = [f"a-{number}.txt" for number in range(3)]
    for name in files:
        (tmp_path / name).write_text(f"The text of {name}.")
    build_corpus([tmp_path / name for name in files], "memory://bucket/in/corpus")
    build_corpus(["memory://bucket/in/corpus"], tmp_path / "whole")
    memory.rm_file("/bucket/in/corpus/headwater.json")
    memory.pipe_file(f"/bucket/in/corpus/{UPLOADING}", b"its identity")
    shards = [f"memory://bucket/in/corpus{part}" for part in ("/documents", "/documents/*.parquet")]
    memory.get("/bucket/in/", str(tmp_path / "in"), recursive=True)  # a store that is mounted, or a copy
    copy = tmp_path / "in" / "corpus"
    for source in ("memory://bucket/in/corpus", "memory://bucket/in", *shards, copy.parent, copy):
        with pytest.raises(FolderError, match=r"in/corpus is not complete: its upload has not ended"):
            build_corpus([source], tmp_path / "half")


@pytest.mark.parametrize("error", [PermissionError, FileNotFoundError, ValueError])
def test_a_folder_is_read_below_one_that_cannot_be(
    memory: Any, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """As hf://datasets/OWNER/NAME: the Hub has no folder OWNER."""

    def refuse(self: Any, path: str) -> None:
        raise error(path)

    memory.pipe_file("/bucket/in/a.txt", STORY.encode())
    monkeypatch.setattr(type(memory), "glob", refuse)
    assert list_source("memory://bucket/in").files == (("in/a.txt", len(STORY)),)


def test_a_remote_folder_gives_what_a_local_one_gives(tmp_path: Path, memory: Any) -> None:
    write_sources(tmp_path / "in")
    memory.put(str(tmp_path / "in"), "/bucket/in", recursive=True)
    build_corpus([tmp_path / "in"], tmp_path / "local")
    build_corpus(["memory://bucket/in"], tmp_path / "remote")
    build_corpus([(tmp_path / "in").as_uri()], tmp_path / "workers", workers=2)
    local, *others = (list(read_documents(tmp_path / name)) for name in ("local", "remote", "workers"))
    assert len(local) == 20 + 50 + 2 + 2 + 1
    assert others == [local, local]
    build_corpus(["memory://bucket/in/*.jsonl"], tmp_path / "pattern")
    assert len(list(read_documents(tmp_path / "pattern"))) == 50


def test_a_remote_folder_leaves_out_what_a_local_one_does(tmp_path: Path, memory: Any) -> None:
    files = {"a.txt": "The river runs to the sea.", "film.mp4": "\0", "other.txt": "The sea is never full."}
    for name, text in files.items():
        memory.pipe_file(f"/bucket/in/{name}", text.encode())
    build_corpus(["memory://bucket/in/other.txt"], "memory://bucket/in/written")
    memory.rm_file("/bucket/in/other.txt")
    for _ in range(2):  # a file of what Headwater wrote is no part of the source
        build_corpus(["memory://bucket/in"], tmp_path / "corpus")
        memory.pipe_file("/bucket/in/written/more.txt", b"more")
    assert [document.text for document in read_documents(tmp_path / "corpus")] == ["The river runs to the sea."]
    (source,) = read_funnel(tmp_path / "corpus")["sources"]
    assert source["left_out"] == ["in/written/", "in/film.mp4"]


def test_a_changed_source_is_another_source(tmp_path: Path, memory: Any) -> None:
    memory.pipe_file("/bucket/a.txt", b"one")
    build_corpus(["memory://bucket/a.txt"], tmp_path / "corpus")
    build_corpus(["memory://bucket/a.txt"], tmp_path / "corpus")
    memory.pipe_file("/bucket/a.txt", b"two")
    with pytest.raises(FolderError, match=r"another input \(source-0\)"):
        build_corpus(["memory://bucket/a.txt"], tmp_path / "corpus")


def test_a_corpus_is_uploaded_whole_and_read_back(tmp_path: Path, memory: Any) -> None:
    write_sources(tmp_path / "in")
    source, out = str(tmp_path / "in"), "memory://bucket/corpus"
    assert main(["corpus", "build", source, "--out", out]) == 0
    assert not list((tmp_path / "cache" / "uploads").iterdir())
    memory.get("/bucket/corpus/", str(tmp_path / "back"), recursive=True)
    documents = list(read_documents(tmp_path / "back"))
    build_corpus([out], tmp_path / "again")
    assert list(read_documents(tmp_path / "again")) == documents
    assert main(["corpus", "build", source, "--out", out]) == 0, "found, not written again"
    (tmp_path / "in" / "c.txt").write_text("three")
    with pytest.raises(FolderError, match="something else"):
        build_corpus([source], out)
    memory.rm("/bucket/corpus/documents/documents-00000.parquet")
    with pytest.raises(FolderError, match="not complete"):
        build_corpus([out], tmp_path / "third")


def test_a_failed_upload_continues(tmp_path: Path, memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("one")
    out = "memory://bucket/corpus"
    put, sent = type(memory).put_file, []

    def failing(self: Any, local: str, target: str, **named: Any) -> None:
        sent.append(target)
        if len(sent) == 2:
            raise ConnectionError("gone")
        put(self, local, target, **named)

    monkeypatch.setattr(type(memory), "put_file", failing)
    with pytest.raises(StorageError, match="gone"):
        build_corpus([tmp_path / "a.txt"], out)
    assert not memory.exists("/bucket/corpus/headwater.json"), "the manifest is last"
    first = list(sent)
    build_corpus([tmp_path / "a.txt"], out)
    assert first[0] not in sent[2:], "what was sent is not sent again"
    memory.get("/bucket/corpus/", str(tmp_path / "back"), recursive=True)
    open_folder(tmp_path / "back", "corpus")


def test_an_upload_of_another_file_is_not_resumed(
    tmp_path: Path, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the same names and sizes, an earlier upload that was cut short left another content."""

    def failing(*unused: Any, **named: Any) -> None:
        raise ConnectionError("gone")

    (tmp_path / "a.txt").write_text("one")
    build_corpus([tmp_path / "a.txt"], tmp_path / "local")
    shard = (tmp_path / "local" / "documents" / "documents-00000.parquet").read_bytes()
    memory.pipe_file(f"/bucket/corpus/{UPLOADING}", b"another identity")
    memory.pipe_file("/bucket/corpus/documents/documents-00000.parquet", bytes(len(shard)))
    with monkeypatch.context() as cut:  # the next upload ends before its first file
        cut.setattr(type(memory), "put_file", failing)
        with pytest.raises(StorageError, match="gone"):
            build_corpus([tmp_path / "a.txt"], "memory://bucket/corpus")
    build_corpus([tmp_path / "a.txt"], "memory://bucket/corpus")
    assert [document.text for document in read_documents("memory://bucket/corpus")] == ["one"]
    assert not memory.exists(f"/bucket/corpus/{UPLOADING}")
    memory.pipe_file("/bucket/mine/thesis.txt", b"years of work")
    with pytest.raises(FolderError, match="not Headwater's"):
        build_corpus([tmp_path / "a.txt"], "memory://bucket/mine")


@pytest.fixture(params=["memory", "s3"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A store with an empty bucket: in memory, and S3 as moto's server plays it, where that is installed."""
    if request.param == "memory":
        yield request.getfixturevalue("memory")
        return
    pytest.importorskip("s3fs")
    server = pytest.importorskip("moto.server").ThreadedMotoServer(port=0, verbose=False)
    server.start()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.get_host_and_port()[1]}")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "anything")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    fsspec.filesystem("s3").mkdir("bucket")
    yield fsspec.filesystem("s3")
    fsspec.filesystem("s3").clear_instance_cache()
    server.stop()


def test_webtext_from_store_to_store(
    tmp_path: Path, store: Any, web: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Dumps, links, pages and corpus at URLs: nothing stays here, and the chain leads back to the dumps."""
    post = {"score": 5, "created_utc": 1_400_000_000, "subreddit": "rivers"}
    for number in range(2):
        posts = [post | {"url": web.url("site", f"/story/{number}-{page}")} for page in range(3)]
        dump = "".join(json.dumps(entry) + "\n" for entry in posts)
        store.pipe_file(f"bucket/dumps/RS_{number}.gz", gzip.compress(dump.encode()))
    bucket = "memory://bucket" if store.protocol == "memory" else "s3://bucket"
    places = {name: f"{bucket}/{name}" for name in ("links", "pages", "corpus")}
    quick = ["--set=delay=0", "--set=allow_private=true"]
    for _ in range(2):  # the second time all is found there
        for command in (
            ["links", f"{bucket}/dumps/RS_*.gz", "--out", places["links"]],
            ["fetch", places["links"], "--out", places["pages"], *quick],
            ["build", places["pages"], "--out", places["corpus"]],
        ):
            assert main(["corpus", *command]) == 0, capsys.readouterr().err
        visits = len(web.visits)
    assert visits == len(web.visits) == 7
    assert not list((tmp_path / "cache" / "uploads").iterdir())
    capsys.readouterr()
    assert main(["corpus", "stats", places["corpus"], "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["documents"], found["funnel"]["read"]["documents"]) == (6, 6)
    build_corpus([places["corpus"]], tmp_path / "here")
    assert main(["lineage", str(tmp_path / "here"), "--json"]) == 0
    [source] = json.loads(capsys.readouterr().out)["inputs"]
    assert (source["path"], source["kind"], source["state"]) == (places["corpus"], "corpus", "remote")
    assert source["identity"] == open_folder(tmp_path / "here").inputs[0].identity
    store.pipe_file("bucket/dumps/RS_1.gz", gzip.compress(b"{}"))
    assert main(["lineage", places["corpus"], "--json"]) == 0
    entry, states = json.loads(capsys.readouterr().out), []
    while entry:
        states.append((entry["kind"], entry["state"]))
        entry = entry["inputs"][0] if entry["inputs"] else None
    assert states == [("corpus", "complete"), ("pages", "complete"), ("links", "complete"), ("folder", "changed")]


def test_a_file_served_by_http_is_a_source(tmp_path: Path, web: Any) -> None:
    pytest.importorskip("aiohttp")
    url = f"http://127.0.0.1:{web.port}/story/1"
    build_corpus([url], tmp_path / "corpus")
    [document] = read_documents(tmp_path / "corpus")
    assert "<h1>A story</h1>" in document.text
    [source] = open_folder(tmp_path / "corpus").inputs
    assert (source.path, source.kind) == (url, "file")
    build_corpus([f"http://127.0.0.1:{web.port}/rows.jsonl?download=true"], tmp_path / "rows")
    assert [document.text for document in read_documents(tmp_path / "rows")] == ["a row"]


def test_what_cannot_be_reached_is_named(tmp_path: Path, memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for url, error, words in (
        ("memory://bucket/none", DataError, "memory://bucket/none"),
        ("nosuch://bucket/x", DataError, "nosuch"),
        ("s3://bucket/x" if not _has("s3fs") else "gs://bucket/x", ResourceError, "nstall"),
    ):
        with pytest.raises(error, match=words):
            build_corpus([url], tmp_path / "corpus")
    memory.pipe_file("/bucket/a.jsonl", b'{"text": "a"}\n' * 100)
    original = files._Stream.readinto

    def failing(self: Any, buffer: Any) -> int:
        with files.store_errors(self._url):
            raise TimeoutError("slow")
        return original(self, buffer)

    monkeypatch.setattr(files._Stream, "readinto", failing)
    with pytest.raises(StorageError, match="slow"):
        build_corpus(["memory://bucket/a.jsonl"], tmp_path / "corpus", BuildConfig())


def _has(package: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(package) is not None


def test_the_etags_of_a_listing_are_its_checksums(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """s3fs searches a whole listing for each checksum: a folder of a million files took hours."""
    for number in range(9):
        memory.pipe_file(f"/bucket/in/{number}.txt", b"x")
    original = type(memory).find

    def find(self: Any, path: str, **options: Any) -> Any:
        listed = original(self, path, **options)
        if not options.get("detail"):
            return listed
        return {name: info | {"ETag": f'"{number:032x}-2"'} for number, (name, info) in enumerate(listed.items())}

    monkeypatch.setattr(type(memory), "find", find)
    monkeypatch.setattr(type(memory), "checksum", lambda self, path: int(path.rpartition("/")[2][0]))
    one = list_source("memory://bucket/in")
    assert len(one.files) == 9
    monkeypatch.undo()
    monkeypatch.setattr(type(memory), "checksum", lambda self, path: int(path.rpartition("/")[2][0]))
    assert list_source("memory://bucket/in").input.identity == one.input.identity  # as s3fs gives them one by one
    monkeypatch.setattr(type(memory), "checksum", None)
    monkeypatch.setattr(type(memory), "find", find)
    assert list_source("memory://bucket/in") == one
