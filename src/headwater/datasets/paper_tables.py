"""The papers' numbers for all systems: GPT-1 (Radford et al. 2018) and GPT-2 (Radford et al. 2019).

`paper_tables.toml` has the tables. Each has its source and a tag of how its numbers are known (`TAGS`), which is
shown with them. Scores are as printed: per cent, BLEU, perplexity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headwater.config import read_toml

Tag = Literal["printed", "derived", "read off", "others", "unverified"]
TAGS: Mapping[Tag, str] = {
    "printed": "printed in the paper, or in the authors' code or model card",
    "derived": "computed from printed numbers or released shapes",
    "read off": "read off a figure by others: approximate",
    "others": "reported by others",
    "unverified": "from memory, not verified",
}


@dataclass(frozen=True)
class PaperTable:
    """One table: its title, source and columns, and a row a system with "–" for missing values."""

    title: str
    source: str
    tag: Tag
    columns: Sequence[str]
    rows: Mapping[str, Sequence[float | str]]
    note: str = ""

    def value(self, row: str, column: str) -> float:
        """Return one number; raises KeyError if the paper has none."""
        found = self.rows[row][self.columns.index(column)]
        if not isinstance(found, int | float):
            raise KeyError(f"{self.title}: {row} has no {column}")
        return float(found)

    def markdown(self) -> list[str]:
        """Return the table as lines of Markdown, its source and tag below it."""
        lines = [f"| {self.title} | {' | '.join(self.columns)} |", "|---" * (len(self.columns) + 1) + "|"]
        for name, row in self.rows.items():
            cells = (cell if isinstance(cell, str) else f"{cell:,}" for cell in row)
            lines.append(f"| {name} | {' | '.join(cells)} |")
        note = f" {self.note}" if self.note else ""
        return [*lines, "", f"Source: {self.source}; {TAGS[self.tag]}.{note}"]


GPT1 = "GPT-1"
SIZES = ("117M", "345M", "762M", "1542M")


TABLES: Mapping[str, PaperTable] = {
    name: PaperTable(**table) for name, table in read_toml(Path(__file__).with_suffix(".toml")).items()
}

# GPT-1's sets by their names here: the table and the column that print them.
GPT1_COLUMNS: Mapping[str, tuple[str, str]] = {
    "mnli-m": ("gpt1-table-2", "MNLI-m"),
    "mnli-mm": ("gpt1-table-2", "MNLI-mm"),
    "snli": ("gpt1-table-2", "SNLI"),
    "scitail": ("gpt1-table-2", "SciTail"),
    "qnli": ("gpt1-table-2", "QNLI"),
    "rte": ("gpt1-table-2", "RTE"),
    "storycloze": ("gpt1-table-3", "Story Cloze"),
    "race-m": ("gpt1-table-3", "RACE-m"),
    "race-h": ("gpt1-table-3", "RACE-h"),
    "race": ("gpt1-table-3", "RACE"),
    "cola": ("gpt1-table-4", "CoLA mc"),
    "sst2": ("gpt1-table-4", "SST-2 acc"),
    "mrpc": ("gpt1-table-4", "MRPC F1"),
    "stsb": ("gpt1-table-4", "STS-B pc"),
    "qqp": ("gpt1-table-4", "QQP F1"),
}


def gpt1(task: str) -> float:
    """Return GPT-1's fine-tuned score on a set, as printed."""
    table, column = GPT1_COLUMNS[task]
    return TABLES[table].value(GPT1, column)
