from .compile import compile_blocks
from .config import AdamForm, TrainConfig, TrainingPrecision
from .journal import read_journal
from .loop import CHECKPOINTS, OnUpdate, Run, diverged
from .parallel import Ranks, process_group
from .schedule import Schedule, transfer_rate
from .state import BatchSource, Measurement
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
    "compile_blocks",
    "compute_dtype",
    "diverged",
    "process_group",
    "read_journal",
    "resolve_precision",
    "transfer_rate",
]
