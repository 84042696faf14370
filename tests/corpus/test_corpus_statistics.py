"""What a corpus holds, counted in one pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from headwater.corpus import Document, statistics

MakeCorpus = Callable[[Sequence[Document]], Path]


def test_lengths_and_sources(make_corpus: MakeCorpus) -> None:
    documents = [Document(id=str(i), text="강 river " * (i + 1), source=f"s{i % 3}") for i in range(200)]
    found = statistics(make_corpus(documents))
    assert found["documents"] == 200
    assert found["characters"] == sum(len(d.text) for d in documents)
    assert found["bytes"] == sum(len(d.text.encode()) for d in documents)
    lengths = found["characters_per_document"]
    assert (lengths["minimum"], lengths["maximum"]) == (8, 1600)
    assert lengths["p50"] in {800, 808}
    assert found["counts"]["source"] == {"distinct": 3, "top": [["s0", 67], ["s1", 67], ["s2", 66]]}


def test_the_string_unk_is_counted(make_corpus: MakeCorpus) -> None:
    documents = [Document(id=str(i), text="a <UNK> of <unk> and <UNK><UNK>") for i in range(3)]
    assert statistics(make_corpus(documents))["unknown"] == 9


def test_an_empty_corpus_has_no_figures(make_corpus: MakeCorpus) -> None:
    found = statistics(make_corpus([]))
    assert (found["documents"], found["characters_per_document"]) == (0, {})


def test_hosts_are_counted(make_corpus: MakeCorpus) -> None:
    urls = [
        "http://www.nytimes.com/a",
        "http://nytimes.com/c",
        "http://news.bbc.co.uk/b",
        "",
        "q.zz",
        "mailto:a@q.zz",
    ]
    found = statistics(make_corpus([Document(id=str(i), text="t", url=url) for i, url in enumerate(urls)]))
    assert found["counts"]["host"] == {"distinct": 2, "top": [["nytimes.com", 2], ["news.bbc.co.uk", 1]]}
