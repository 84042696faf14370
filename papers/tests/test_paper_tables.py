"""The papers' numbers: their own counts and gains follow from their tables."""

from __future__ import annotations

import pytest

from evaluation import gain, gpt1_ahead, gpt2_ahead
from headwater_papers.paper_tables import TABLES


def test_the_papers_counts_follow_from_their_tables() -> None:
    assert len(gpt1_ahead()) == 9  # of 12
    assert {"rte", "sst2", "mrpc"}.isdisjoint(gpt1_ahead())
    assert len(gpt2_ahead()) == 7  # of 8
    assert "1BW" not in gpt2_ahead()


# The abstract and section 4.2 of GPT-1.
@pytest.mark.parametrize(
    ("task", "points"),
    [("storycloze", 8.9), ("race", 5.7), ("mnli-m", 1.5), ("scitail", 5.0), ("qnli", 5.8), ("snli", 0.6),
     ("qqp", 4.2), ("stsb", 1.0), ("cola", 10.4)],
)  # fmt: skip
def test_the_papers_gains_follow_from_its_tables(task: str, points: float) -> None:
    assert gain(task) == pytest.approx(points)


def test_every_table_has_a_source_and_whole_rows() -> None:
    for name, table in TABLES.items():
        assert table.source, name
        assert all(len(row) == len(table.columns) for row in table.rows.values()), name


def test_numbers_of_a_table_are_printed_in_full() -> None:
    table = "\n".join(TABLES["sizes"].markdown())
    assert "116,534,784" in table
    assert "1,557,611,200" in table
