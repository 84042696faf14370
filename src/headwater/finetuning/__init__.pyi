from .estimators import Classifier, Entailment, MultipleChoice, Regressor, Similarity
from .learning.config import FinetuneConfig
from .learning.examples import Build
from .learning.parts import arrange_rows
from .learning.train import build_trainer, train_task
from .model.batches import Batch, ExampleSampler
from .model.fine_tuned import FineTuned, Prediction
from .model.heads import TaskModel, TaskOutput
from .model.inputs import Encoded
from .predict import predict_file
from .results.explanation import Occlusion, explain
from .results.metrics import METRICS, confusion_matrix, matthews, measure_decisions
from .rows.labels import Labels
from .rows.row import MetricName, Raw, TaskName
from .show import ShownExample, show_examples
from .stage import finetune, run_stage

__all__ = [
    "METRICS",
    "Batch",
    "Build",
    "Classifier",
    "Encoded",
    "Entailment",
    "ExampleSampler",
    "FineTuned",
    "FinetuneConfig",
    "Labels",
    "MetricName",
    "MultipleChoice",
    "Occlusion",
    "Prediction",
    "Raw",
    "Regressor",
    "ShownExample",
    "Similarity",
    "TaskModel",
    "TaskName",
    "TaskOutput",
    "arrange_rows",
    "build_trainer",
    "confusion_matrix",
    "explain",
    "finetune",
    "matthews",
    "measure_decisions",
    "predict_file",
    "run_stage",
    "show_examples",
    "train_task",
]
