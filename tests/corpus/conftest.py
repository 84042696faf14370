"""Makes corpora out of documents, as a stage would."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from headwater.corpus.folder import Document, write_documents
from headwater.provenance import Stage

MakeCorpus = Callable[[Sequence[Document]], Path]


@pytest.fixture
def make_corpus(tmp_path: Path) -> MakeCorpus:
    """A function that writes documents as a corpus folder of its own."""
    made: list[Path] = []

    def make(documents: Sequence[Document]) -> Path:
        out = tmp_path / f"corpus-{len(made)}"
        with Stage(out, kind="corpus", config={}, inputs={}).write() as work:
            write_documents(documents, work)
        made.append(out)
        return out

    return make
