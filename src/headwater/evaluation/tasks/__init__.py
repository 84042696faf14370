"""All protocols by their full names, in the order in which they are listed; `protocols.toml` describes them."""

from __future__ import annotations

from pathlib import Path

from headwater.config import read_toml
from headwater.evaluation.protocols import Task
from headwater.evaluation.tasks import (
    answers,
    cbt,
    choice,
    held_out,
    hellaswag,
    hidden,
    lambada,
    pronouns,
    sentences,
    streams,
    summaries,
    written,
)

_MODULES = (
    held_out,
    choice,
    streams,
    lambada,
    cbt,
    pronouns,
    sentences,
    hidden,
    answers,
    hellaswag,
    written,
    summaries,
)

_TEXTS = read_toml(Path(__file__).with_name("protocols.toml"))


def _described(task: Task) -> Task:
    """Set the task's texts, such as `summary`."""
    own = dict(_TEXTS[task.protocol])
    vars(task).update(_TEXTS[own.pop("like", task.protocol)] | own)
    return task


TASKS: dict[str, Task] = {task.protocol: _described(task) for module in _MODULES for task in module.TASKS}

# The version of all protocols. Increase it with every change of what a protocol asks or how it scores, so that
# earlier results are not mistaken for new ones. tests/golden/protocols.json detects a change.
VERSION = 4
