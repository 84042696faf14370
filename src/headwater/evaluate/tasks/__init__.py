"""Every protocol there is, by its full name, in the order in which they are listed."""

from __future__ import annotations

from headwater.evaluate.protocols import Task
from headwater.evaluate.tasks import (
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

TASKS: dict[str, Task] = {task.protocol: task for module in _MODULES for task in module.TASKS}
