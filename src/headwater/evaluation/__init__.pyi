from .asker import Asker
from .comparison import compare
from .data_files import DataFiles, Source
from .detokenize import DETOKENIZERS
from .during import Follower
from .evaluation import EvaluateConfig, evaluate, locate_files, run_task, select
from .json_lines import json_lines, text_of
from .paper_tables import TAGS, PaperTable
from .paper_values import PAPER_TABLES, SIZES, published
from .protocols import (
    Answer,
    Example,
    Figure,
    Generated,
    Metric,
    Scored,
    Task,
    mean_figure,
    ratio_error,
    share_figure,
)
from .questions import read_questions
from .reader import ContinuationRequest, MaskedReader, Reader, reader_of
from .results import Result, Results, read_examples, read_results
from .samples import write_samples
from .tab_lines import tab_separated
from .tasks import TASKS, VERSION
from .tasks.lambada import is_function_word, may_begin_function_word, perplexity_figure
from .tasks.summaries import sentences

__all__ = [
    "DETOKENIZERS",
    "PAPER_TABLES",
    "SIZES",
    "TAGS",
    "TASKS",
    "VERSION",
    "Answer",
    "Asker",
    "ContinuationRequest",
    "DataFiles",
    "EvaluateConfig",
    "Example",
    "Figure",
    "Follower",
    "Generated",
    "MaskedReader",
    "Metric",
    "PaperTable",
    "Reader",
    "Result",
    "Results",
    "Scored",
    "Source",
    "Task",
    "compare",
    "evaluate",
    "is_function_word",
    "json_lines",
    "locate_files",
    "may_begin_function_word",
    "mean_figure",
    "perplexity_figure",
    "published",
    "ratio_error",
    "read_examples",
    "read_questions",
    "read_results",
    "reader_of",
    "run_task",
    "select",
    "sentences",
    "share_figure",
    "tab_separated",
    "text_of",
    "write_samples",
]
