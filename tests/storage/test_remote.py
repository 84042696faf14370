"""One input at a URL is read from a copy; its folder's provenance names the URL."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("fsspec")

from headwater.corpus import build_corpus, read_documents
from headwater.errors import DataError, ResourceError
from headwater.storage import download, lineage, open_folder


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path / "cache"))


def test_a_file_is_copied_again_only_when_it_changed(tmp_path: Path) -> None:
    source = tmp_path / "a.txt"
    source.write_text("The river ran.")
    first = download(source.as_uri())
    assert first.read_text() == "The river ran."
    assert download(source.as_uri()) == first
    source.write_text("The river still ran.")
    assert download(source.as_uri()).read_text() == "The river still ran."


def test_a_corpus_of_a_url_equals_the_corpus_of_the_file(tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    source.write_text('{"text": "The river ran."}\n{"text": "It stayed."}\n')
    build_corpus([source.as_uri()], tmp_path / "remote")
    build_corpus([source], tmp_path / "local")
    assert [*read_documents(tmp_path / "remote")] == [*read_documents(tmp_path / "local")]
    [remote], [local] = (open_folder(tmp_path / name, "corpus").inputs for name in ("remote", "local"))
    assert (remote.path, remote.identity) == (source.as_uri(), local.identity)
    assert lineage(tmp_path / "remote")["inputs"][0]["state"] == "remote"


def test_what_cannot_be_copied_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"{tmp_path.as_uri()} is not a file"):
        download(tmp_path.as_uri())
    with pytest.raises(ResourceError, match="nothing://here"):
        download("nothing://here")
