from .asker import Asker
from .comparison import compare
from .detokenize import CBT, LAMBADA
from .during import Follower
from .evaluation import EvaluateConfig, evaluate, locate_files, run_task, select
from .paper_values import SIZES, published
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
from .reader import ContinuationRequest, MaskedReader, Reader, reader_of
from .results import Result, Results, read_examples, read_results
from .samples import write_samples
from .tasks import TASKS, VERSION
from .tasks.lambada import is_function_word, may_begin_function_word, perplexity_figure
from .tasks.summaries import sentences

__all__ = [
    "CBT",
    "LAMBADA",
    "SIZES",
    "TASKS",
    "VERSION",
    "Answer",
    "Asker",
    "ContinuationRequest",
    "EvaluateConfig",
    "Example",
    "Figure",
    "Follower",
    "Generated",
    "MaskedReader",
    "Metric",
    "Reader",
    "Result",
    "Results",
    "Scored",
    "Task",
    "compare",
    "evaluate",
    "is_function_word",
    "locate_files",
    "may_begin_function_word",
    "mean_figure",
    "perplexity_figure",
    "published",
    "ratio_error",
    "read_examples",
    "read_results",
    "reader_of",
    "run_task",
    "select",
    "sentences",
    "share_figure",
    "write_samples",
]
