from .choice import Choice
from .comparison import compare
from .config import EvaluateConfig
from .data_files import DataFiles, Source, read_json_rows, text_of, texts_of
from .detokenize import DETOKENIZERS, Detokenizer
from .evaluation import evaluate, select
from .figures import Figure
from .protocols import (
    Answer,
    Example,
    Generated,
    GenerationRequest,
    Metric,
    Scored,
    Task,
    TaskRequest,
    numbered,
)
from .request_encoder import ContinuationRequest, RequestEncoder
from .results import Result, Results, read_examples
from .score_task import run_task
from .tasks import VERSION, all_tasks, missing_benchmarks
from .tasks.lambada import FUNCTION_WORDS

__all__ = [
    "DETOKENIZERS",
    "FUNCTION_WORDS",
    "VERSION",
    "Answer",
    "Choice",
    "ContinuationRequest",
    "DataFiles",
    "Detokenizer",
    "EvaluateConfig",
    "Example",
    "Figure",
    "Generated",
    "GenerationRequest",
    "Metric",
    "RequestEncoder",
    "Result",
    "Results",
    "Scored",
    "Source",
    "Task",
    "TaskRequest",
    "all_tasks",
    "compare",
    "evaluate",
    "missing_benchmarks",
    "numbered",
    "read_examples",
    "read_json_rows",
    "run_task",
    "select",
    "text_of",
    "texts_of",
]
