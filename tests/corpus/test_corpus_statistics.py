"""What a corpus holds, counted in one pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.corpus import Document, statistics
from headwater.corpus.measures import _spearman, compare_domains

scipy_stats = pytest.importorskip("scipy.stats")
MakeCorpus = Callable[[Sequence[Document]], Path]


def test_lengths_sources_and_vocabulary(make_corpus: MakeCorpus) -> None:
    documents = [Document(id=str(i), text="강 river " * (i + 1), source=f"s{i % 3}") for i in range(200)]
    found = statistics(make_corpus(documents))
    assert found["documents"] == 200
    assert found["characters"] == sum(len(d.text) for d in documents)
    assert found["bytes"] == sum(len(d.text.encode()) for d in documents)
    lengths = found["characters_per_document"]
    assert (lengths["minimum"], lengths["maximum"]) == (8, 1600)
    assert lengths["p50"] in {800, 808}
    assert found["counts"]["source"] == {"distinct": 3, "top": [["s0", 67], ["s1", 67], ["s2", 66]]}
    assert found["vocabulary"][-1] == [sum(2 * (i + 1) for i in range(200)), 2]
    assert "webtext" not in found
    assert found["lengths"] == [[8, 1], [16, 2], [32, 4], [64, 8], [128, 16], [256, 32], [512, 64], [1024, 73]]


def test_the_string_unk_is_counted(make_corpus: MakeCorpus) -> None:
    documents = [Document(id=str(i), text="a <UNK> of <unk> and <UNK><UNK>") for i in range(3)]
    assert statistics(make_corpus(documents))["unknown"] == 9


def test_an_empty_corpus_has_no_figures(make_corpus: MakeCorpus) -> None:
    found = statistics(make_corpus([]))
    assert (found["documents"], found["characters_per_document"], found["vocabulary"]) == (0, {}, [])


def test_domains_next_to_webtexts(data: Path, make_corpus: MakeCorpus) -> None:
    urls = (
        ["http://www.nytimes.com/a"] * 3
        + ["http://news.bbc.co.uk/b"] * 2
        + ["http://github.com/c", "http://q.zz/d"]
    )
    urls += ["", "q.zz", "mailto:a@q.zz"]  # without a host
    found = statistics(make_corpus([Document(id=str(i), text="t", url=url) for i, url in enumerate(urls)]))
    assert found["counts"]["domain"]["distinct"] == 4
    assert found["counts"]["domain"]["top"][0] == ["nytimes", 3]
    assert found["webtext"]["shared"] == 3
    assert found["webtext"]["missing"][:2] == ["google", "archive"]
    rows = [line.split() for line in (data / "webtext-pipeline" / "domains.txt").read_text().splitlines()]
    same = compare_domains(Counter({row[1]: int(row[0]) for row in rows if len(row) == 2}))
    assert same is not None
    assert (same["shared"], same["rank_correlation"], same["missing"]) == (999, 1.0, [])
    assert same["published"][0] == ["google", 1542261, 1542261]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=3))
def test_rank_correlation_is_scipys(pairs: list[tuple[int, int]]) -> None:
    one, other = [a for a, _ in pairs], [b for _, b in pairs]
    found = _spearman(one, other)
    if len(set(one)) == 1 or len(set(other)) == 1:
        assert found is None
    else:
        assert found == pytest.approx(scipy_stats.spearmanr(one, other).statistic, abs=1e-4)
