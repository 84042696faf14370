from .benchmarks import Benchmark, Test
from .questions import read_questions
from .runs import run_one, run_sets, table_rows, table_text
from .sets import BY_NAME, Found, find, is_there, separate_texts

__all__ = [
    "BY_NAME",
    "Benchmark",
    "Found",
    "Test",
    "find",
    "is_there",
    "read_questions",
    "run_one",
    "run_sets",
    "separate_texts",
    "table_rows",
    "table_text",
]
