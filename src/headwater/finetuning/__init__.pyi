from .batches import ExampleSampler
from .config import FinetuneConfig
from .estimators import Classifier, Entailment, MultipleChoice, Regressor, Similarity
from .explanation import explain
from .export import export_classifier
from .features import FrozenTaskModel
from .fine_tuned import FineTuned, Prediction
from .forecast import forecast
from .head import TaskModel
from .inputs import Encoded
from .labels import Labels
from .metrics import METRICS, confusion_matrix, matthews
from .page import baseline_sentence
from .parts import arrange_parts
from .predict import predict_file
from .rows import MetricName, Raw, TaskName
from .show import show_examples
from .stage import finetune, run_stage
from .training import build_trainer, measure_probabilities

__all__ = [
    "METRICS",
    "Classifier",
    "Encoded",
    "Entailment",
    "ExampleSampler",
    "FineTuned",
    "FinetuneConfig",
    "FrozenTaskModel",
    "Labels",
    "MetricName",
    "MultipleChoice",
    "Prediction",
    "Raw",
    "Regressor",
    "Similarity",
    "TaskModel",
    "TaskName",
    "arrange_parts",
    "baseline_sentence",
    "build_trainer",
    "confusion_matrix",
    "explain",
    "export_classifier",
    "finetune",
    "forecast",
    "matthews",
    "measure_probabilities",
    "predict_file",
    "run_stage",
    "show_examples",
]
