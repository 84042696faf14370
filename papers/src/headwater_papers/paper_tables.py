"""The papers' numbers for all systems: GPT-1 (Radford et al. 2018) and GPT-2 (Radford et al. 2019).

`gpt2_tables.toml` has GPT-2's tables 3 and 4 and the results in its text, `paper_tables.toml` all others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from headwater.config import read_toml

GPT1 = "GPT-1"
SIZES = ("117M", "345M", "762M", "1542M")
MODELS = ("gpt2-small", "gpt2-medium", "gpt2-large", "gpt2-xl")  # of these sizes

# What a table's tag means.
TAGS: Mapping[str, str] = {
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
    tag: str  # how the numbers are known, such as "printed"
    columns: Sequence[str]
    rows: Mapping[str, Sequence[float | str]]
    note: str = ""

    @classmethod
    def read(cls, path: Path) -> dict[str, PaperTable]:
        """Return the tables of a TOML file by name."""
        return {name: cls(**table) for name, table in read_toml(path).items()}

    def value(self, row: str, column: str) -> float:
        """Return one number; raises KeyError if the paper has none."""
        value = self.rows[row][self.columns.index(column)]
        if not isinstance(value, int | float):
            raise KeyError(f"{self.title}: {row} has no {column}")
        return float(value)


# GPT-1's, then GPT-2's, then those of its relatives.
_OWN = PaperTable.read(Path(__file__).with_suffix(".toml"))
_FIRST = {name: table for name, table in _OWN.items() if name.startswith("gpt1")}
_GPT2 = PaperTable.read(Path(__file__).with_name("gpt2_tables.toml"))
TABLES: Mapping[str, PaperTable] = _FIRST | _GPT2 | _OWN

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


_REFERENCE = re.compile(r"<([^<>|]+\|[^<>]+)>")


def markdown(table: PaperTable) -> list[str]:
    """Return the table as lines of Markdown, its source and tag below it."""
    lines = [f"| {table.title} | {' | '.join(table.columns)} |", "|---" * (len(table.columns) + 1) + "|"]
    for name, row in table.rows.items():
        cells = (cell if isinstance(cell, str) else f"{cell:,}" for cell in row)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    note = f" {table.note}" if table.note else ""
    return [*lines, "", f"Source: {table.source}; {TAGS[table.tag]}.{note}"]


def number(reference: str) -> float:
    """Return the number that `TABLE | ROW | COLUMN` names; several names with + between them give the mean.

    Raises KeyError or ValueError if there is no such number.
    """
    name, rows, columns = (part.strip() for part in reference.split("|"))
    table = TABLES[name]
    return fmean(table.value(row, column) for row in _names(rows) for column in _names(columns))


def _names(listed: str) -> list[str]:
    """Return names that a plus with spaces separates; a name may have a plus of its own."""
    return listed.split(" + ")


def filled(text: str) -> str:
    """Return a text with the papers' numbers in the place of its references.

    A reference is in angle brackets: `<TABLE | ROW | COLUMN>`, or one less another, `<A - B>`, with a format after
    an @.
    """

    def shown(match: re.Match[str]) -> str:
        names, _, form = match[1].partition(" @ ")
        value, *less = map(number, names.split(" - "))
        return format(value - sum(less), form or "g")

    return _REFERENCE.sub(shown, text)


def gpt1(task: str) -> float:
    """Return GPT-1's fine-tuned score on a set, as printed."""
    table, column = GPT1_COLUMNS[task]
    return TABLES[table].value(GPT1, column)
