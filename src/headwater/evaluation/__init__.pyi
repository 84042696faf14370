from .comparison import compare
from .config import EvaluateConfig
from .data_files import DataFiles, Source, read_json_rows, text_of
from .detokenize import DETOKENIZERS
from .evaluation import evaluate, select
from .figures import Figure
from .paper_values import PAPER_TABLES, PaperTable, published
from .protocols import (
    Answer,
    Example,
    Generated,
    Metric,
    Scored,
    Task,
)
from .request_encoder import ContinuationRequest, RequestEncoder
from .results import Result, Results, read_examples
from .score_task import run_task
from .tasks import TASKS, VERSION
from .tasks.lambada import FUNCTION_WORDS
from .tasks.multiple_choice import read_questions

__all__ = [
    "DETOKENIZERS",
    "FUNCTION_WORDS",
    "PAPER_TABLES",
    "TASKS",
    "VERSION",
    "Answer",
    "ContinuationRequest",
    "DataFiles",
    "EvaluateConfig",
    "Example",
    "Figure",
    "Generated",
    "Metric",
    "PaperTable",
    "RequestEncoder",
    "Result",
    "Results",
    "Scored",
    "Source",
    "Task",
    "compare",
    "evaluate",
    "published",
    "read_examples",
    "read_json_rows",
    "read_questions",
    "run_task",
    "select",
    "text_of",
]
