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

# The version of all protocols. Raise it with every change of what one asks or how it scores: results of an earlier
# version are then not taken for those of this one. tests/golden/protocols.json notices a change.
VERSION = 2
