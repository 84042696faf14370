from .config import AdamForm, TrainConfig, TrainingPrecision
from .journal import read_journal
from .loop import CHECKPOINTS, BatchSource, Measurement, OnUpdate, Run, diverged
from .parallel import Ranks, process_group
from .schedule import Schedule, transfer_rate
from .trainer import Objective, Trainer, compute_dtype, resolve_precision

__all__ = [
    "CHECKPOINTS",
    "AdamForm",
    "BatchSource",
    "Measurement",
    "Objective",
    "OnUpdate",
    "Ranks",
    "Run",
    "Schedule",
    "TrainConfig",
    "Trainer",
    "TrainingPrecision",
    "compute_dtype",
    "diverged",
    "process_group",
    "read_journal",
    "resolve_precision",
    "transfer_rate",
]
