from .compile import compile_blocks
from .config import AdamForm, TrainConfig, TrainingPrecision
from .journal import read_journal
from .loop import Objective, Trainer, compute_dtype, resolve_precision
from .machine import matmul_rate
from .parallel import Ranks, process_group
from .run import CHECKPOINTS, OnUpdate, Run, diverged
from .schedule import Schedule, transfer_rate
from .state import BatchSource, Measurement

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
    "matmul_rate",
    "process_group",
    "read_journal",
    "resolve_precision",
    "transfer_rate",
]
