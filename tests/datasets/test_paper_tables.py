"""The papers' numbers: their own counts and gains follow from their tables."""

from __future__ import annotations

import pytest

from headwater.datasets.paper_tables import GPT1, GPT1_COLUMNS, SIZES, TABLES, TAGS, gpt1

SETS = ("mnli-m", "snli", "scitail", "qnli", "rte", "storycloze", "race", "cola", "sst2", "mrpc", "stsb", "qqp")
LOWER_IS_BETTER = {"LAMBADA ppl", "WikiText2", "PTB", "enwik8 bpb", "text8 bpc", "WikiText103", "1BW"}


def gain(task: str) -> float:
    """GPT-1's score less the best earlier one that its table prints."""
    name, column = GPT1_COLUMNS[task]
    table = TABLES[name]
    place = table.columns.index(column)
    earlier = [row[place] for system, row in table.rows.items() if system != GPT1]
    return round(gpt1(task) - max(value for value in earlier if isinstance(value, int | float)), 2)


def test_gpt1_is_ahead_on_nine_of_twelve_sets() -> None:
    assert [task for task in SETS if gain(task) <= 0] == ["rte", "sst2", "mrpc"]


def test_the_largest_gpt2_is_ahead_on_seven_of_eight_data_sets() -> None:
    table = TABLES["gpt2-table-3"]
    ahead: dict[str, bool] = {}
    for column in table.columns:
        before, now = (table.value(row, column) for row in ("state of the art", SIZES[-1]))
        name = column.split()[0].split("-")[0]
        ahead[name] = ahead.get(name, True) and (now < before if column in LOWER_IS_BETTER else now > before)
    assert len(ahead) == 8
    assert [name for name, is_ahead in ahead.items() if not is_ahead] == ["1BW"]


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
        assert table.tag in TAGS, name
        assert all(len(row) == len(table.columns) for row in table.rows.values()), name
