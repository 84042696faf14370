"""The protocols of this folder by their full names; each file has those of one or a few benchmarks.

A .toml file describes tasks of a common kind (`own_tasks`), a module has a list `TASKS`.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from headwater.evaluation.own_tasks import SUFFIX, read_task_file
from headwater.evaluation.protocols import Task


def _tasks_of(path: Path) -> list[Task]:
    if path.suffix == SUFFIX:
        return read_task_file(path)
    tasks: list[Task] = import_module(f"{__name__}.{path.stem}").TASKS
    return tasks


_FILES = sorted(
    path for path in Path(__file__).parent.iterdir() if path.suffix in (SUFFIX, ".py") and path.stem != "__init__"
)
# Every task by the name of its protocol.
TASKS: dict[str, Task] = {task.protocol: task for path in _FILES for task in _tasks_of(path)}

# The version of all protocols. Increase it with every change of what a protocol asks or how it scores, so that
# earlier results are not mistaken for new ones. tests/golden/protocols.json detects a change.
VERSION = 5
