from .benchmarks import READERS, Benchmark, Test
from .hub import fetch
from .jsonl import json_lines, text_of, texts_of
from .paper_tables import GPT1, GPT1_COLUMNS, SIZES, TABLES, gpt1
from .places import DataFiles, Source
from .readers import race_folder, race_lines, race_prompts, story_cloze, tab_separated
from .rows import MOST_ROWS, TASKS, Metric, Raw, Target, Task
from .sets import BY_NAME, Found, choose, find, is_there, separate_texts

__all__ = [
    "BY_NAME",
    "GPT1",
    "GPT1_COLUMNS",
    "MOST_ROWS",
    "READERS",
    "SIZES",
    "TABLES",
    "TASKS",
    "Benchmark",
    "DataFiles",
    "Found",
    "Metric",
    "Raw",
    "Source",
    "Target",
    "Task",
    "Test",
    "choose",
    "fetch",
    "find",
    "gpt1",
    "is_there",
    "json_lines",
    "race_folder",
    "race_lines",
    "race_prompts",
    "separate_texts",
    "story_cloze",
    "tab_separated",
    "text_of",
    "texts_of",
]
