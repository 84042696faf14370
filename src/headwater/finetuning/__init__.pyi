from .estimators import Classifier, Entailment, MultipleChoice, Regressor, Similarity
from .forecast import forecast, show_examples
from .learning.config import FinetuneConfig
from .learning.parts import arrange_parts
from .learning.train import build_trainer, measure_probabilities
from .model.batches import ExampleSampler
from .model.export import export_classifier
from .model.features import FrozenTaskModel
from .model.fine_tuned import FineTuned, Prediction
from .model.head import TaskModel
from .model.inputs import Encoded
from .predict import predict_file
from .results.explanation import explain
from .results.metrics import METRICS, confusion_matrix, matthews
from .results.report import result_lines
from .rows.labels import Labels
from .rows.row import MetricName, Raw, TaskName
from .stage import finetune, run_stage

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
    "build_trainer",
    "confusion_matrix",
    "explain",
    "export_classifier",
    "finetune",
    "forecast",
    "matthews",
    "measure_probabilities",
    "predict_file",
    "result_lines",
    "run_stage",
    "show_examples",
]
