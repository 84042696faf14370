"""All protocols by their full names, in the order in which they are listed."""

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

# The version of all protocols. Increase it with every change of what a protocol asks or how it scores, so that
# earlier results are not mistaken for new ones. tests/golden/protocols.json detects a change.
VERSION = 2
