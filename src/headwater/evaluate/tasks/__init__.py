"""Every protocol there is, by its full name, in the order in which they are listed."""

from __future__ import annotations

from headwater.evaluate.protocols import Task
from headwater.evaluate.tasks.choice import Choice
from headwater.evaluate.tasks.held_out import HeldOut

_ALL: list[Task] = [
    HeldOut(),
    *(
        Choice(
            "signature.docstring",
            "signature",
            "which of four docstrings belongs to a signature",
            gain=gain,
            begins=True,
        )
        for gain in (False, True)
    ),
    *(
        Choice("continuation.four", "continuation", "which of four texts goes on from a context", gain=gain)
        for gain in (False, True)
    ),
]

TASKS: dict[str, Task] = {task.protocol: task for task in _ALL}
