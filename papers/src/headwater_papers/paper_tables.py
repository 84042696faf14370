"""The papers' numbers for all systems: GPT-1 (Radford et al. 2018) and GPT-2 (Radford et al. 2019).

`paper_tables.toml` has the tables, and `headwater.evaluation` those that an evaluation prints.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from headwater.evaluation import PAPER_TABLES, PaperTable

GPT1 = "GPT-1"
SIZES = ("117M", "345M", "762M", "1542M")
MODELS = ("gpt2-small", "gpt2-medium", "gpt2-large", "gpt2-xl")  # of these sizes


# GPT-1's, then GPT-2's, then those of its relatives.
_OWN = PaperTable.read(Path(__file__).with_suffix(".toml"))
_FIRST = {name: table for name, table in _OWN.items() if name.startswith("gpt1")}
TABLES: Mapping[str, PaperTable] = _FIRST | PAPER_TABLES | _OWN

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
