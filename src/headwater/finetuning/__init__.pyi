from .baseline import BASELINE_ROWS
from .batches import ExampleSampler
from .check import is_empty
from .estimators import Classifier, Entailment, MultipleChoice, Regressor, Similarity
from .explanation import explain
from .export import export_classifier
from .features import FrozenTaskModel, with_outputs
from .fine_tuned import TASK_FILE, FineTuned, Prediction, predict_and_measure
from .finetuning import Tables, arrange_parts, finetune, run_stage
from .head import TaskModel
from .inputs import Encoded
from .labels import Labels
from .metrics import OF_CONFUSION, OF_SCORES, Floats, confusion_matrix, matthews
from .objective import l3
from .page import baseline_sentence
from .predict import predict_file
from .rows import TASK_NAMES, MetricName, Raw, Target, TaskName
from .show import show_examples
from .training import CPU_TOKENS, FinetuneConfig, default_epochs, measure_probabilities, peak_rate, resolve

__all__ = [
    "BASELINE_ROWS",
    "CPU_TOKENS",
    "OF_CONFUSION",
    "OF_SCORES",
    "TASK_FILE",
    "TASK_NAMES",
    "Classifier",
    "Encoded",
    "Entailment",
    "ExampleSampler",
    "FineTuned",
    "FinetuneConfig",
    "Floats",
    "FrozenTaskModel",
    "Labels",
    "MetricName",
    "MultipleChoice",
    "Prediction",
    "Raw",
    "Regressor",
    "Similarity",
    "Tables",
    "Target",
    "TaskModel",
    "TaskName",
    "arrange_parts",
    "baseline_sentence",
    "confusion_matrix",
    "default_epochs",
    "explain",
    "export_classifier",
    "finetune",
    "is_empty",
    "l3",
    "matthews",
    "measure_probabilities",
    "peak_rate",
    "predict_and_measure",
    "predict_file",
    "resolve",
    "run_stage",
    "show_examples",
    "with_outputs",
]
