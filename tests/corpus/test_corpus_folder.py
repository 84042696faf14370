"""A corpus folder gives back what was written, whatever its size and whichever labels turn up when."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.corpus import Document, folder, read_documents, write_documents
from headwater.corpus.folder import shard_paths
from headwater.errors import FolderError
from headwater.storage import Stage

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)
DOCUMENTS = st.lists(
    st.builds(
        Document,
        id=TEXT,
        text=TEXT,
        source=TEXT,
        url=TEXT,
        date=TEXT,
        language=TEXT,
        labels=st.dictionaries(st.sampled_from(["package", "module", "여"]), TEXT),
    ),
    max_size=12,
)


def write(documents: list[Document], out: Path) -> None:
    with Stage(out, kind="corpus", config={}, inputs={}).write() as work:
        labels = dict.fromkeys(label for document in documents for label in document.labels)
        assert write_documents(iter(documents), work, list(labels)) == len(documents)


@settings(max_examples=40, deadline=None)
@given(DOCUMENTS, st.integers(1, 5), st.integers(1, 200))
def test_documents_come_back_as_they_were(documents: list[Document], group: int, shard_bytes: int) -> None:
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        patch.setattr(folder, "GROUP_DOCUMENTS", group)
        patch.setattr(folder, "SHARD_BYTES", shard_bytes)
        out = Path(place) / "corpus"
        write(documents, out)
        assert list(read_documents(out)) == documents
        schemas = {str(pyarrow.parquet.read_schema(path)) for path in shard_paths(out)}
        assert len(schemas) == 1, "every shard has the same columns"


def test_many_shards_read_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "SHARD_BYTES", 1000)
    monkeypatch.setattr(folder, "GROUP_BYTES", 300)
    documents = [Document(id=str(i), text=f"document {i} " * 10) for i in range(100)]
    write(documents, tmp_path / "corpus")
    assert len(shard_paths(tmp_path / "corpus")) > 5
    assert [document.id for document in read_documents(tmp_path / "corpus")] == [str(i) for i in range(100)]


def test_a_damaged_corpus_is_noticed(tmp_path: Path) -> None:
    write([Document(id="a", text="text " * 100)], tmp_path / "corpus")
    path = shard_paths(tmp_path / "corpus")[0]
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(FolderError, match=path.name):
        list(read_documents(tmp_path / "corpus"))


def test_a_label_cannot_take_the_name_of_a_column(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'text'"):
        write([Document(id="a", text="b", labels={"text": "c"})], tmp_path / "corpus")
