from .baseline import BASELINE_ROWS
from .batches import ExampleSampler
from .config import FinetuneConfig, default_epochs
from .estimators import Classifier, Entailment, MultipleChoice, Regressor, Similarity
from .explanation import explain
from .export import export_classifier
from .features import FrozenTaskModel, with_outputs
from .fine_tuned import TASK_FILE, FineTuned, Prediction, predict_and_measure
from .head import TaskModel, l3
from .inputs import Encoded
from .labels import Labels
from .metrics import OF_CONFUSION, OF_SCORES, Floats, confusion_matrix, matthews
from .page import baseline_sentence
from .predict import predict_file
from .rows import TASK_NAMES, MetricName, Raw, Target, TaskName, is_empty
from .show import show_examples
from .stage import Tables, arrange_parts, finetune, run_stage
from .training import CPU_TOKENS, measure_probabilities

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
    "predict_and_measure",
    "predict_file",
    "run_stage",
    "show_examples",
    "with_outputs",
]
