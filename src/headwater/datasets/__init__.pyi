from .benchmarks import READERS, Benchmark, Test
from .paper_tables import GPT1, GPT1_COLUMNS, SIZES, TABLES, gpt1
from .sets import BY_NAME, Found, find, is_there, separate_texts
from .task_sets import run_one, run_sets, table_rows, table_text

__all__ = [
    "BY_NAME",
    "GPT1",
    "GPT1_COLUMNS",
    "READERS",
    "SIZES",
    "TABLES",
    "Benchmark",
    "Found",
    "Test",
    "find",
    "gpt1",
    "is_there",
    "run_one",
    "run_sets",
    "separate_texts",
    "table_rows",
    "table_text",
]
