from .compile import compile_checked, uncompile
from .journal import read_journal
from .loop import CHANGEABLE, Objective, Precision, TrainConfig, Trainer, choose_precision, resolve_precision
from .machine import (
    arithmetic,
    available_cores,
    available_memory,
    cores_in_use,
    matmul_rate,
    memory_rate,
    processor_name,
)
from .optimizer import AdamForm, bytes_a_parameter
from .parallel import Ranks, choose_device, process_group
from .run import CHECKPOINTS, BatchSource, Measurement, OnUpdate, Run
from .schedule import Schedule, transfer_rate
from .watch import Watch

__all__ = [
    "CHANGEABLE",
    "CHECKPOINTS",
    "AdamForm",
    "BatchSource",
    "Measurement",
    "Objective",
    "OnUpdate",
    "Precision",
    "Ranks",
    "Run",
    "Schedule",
    "TrainConfig",
    "Trainer",
    "Watch",
    "arithmetic",
    "available_cores",
    "available_memory",
    "bytes_a_parameter",
    "choose_device",
    "choose_precision",
    "compile_checked",
    "cores_in_use",
    "matmul_rate",
    "memory_rate",
    "process_group",
    "processor_name",
    "read_journal",
    "resolve_precision",
    "transfer_rate",
    "uncompile",
]
