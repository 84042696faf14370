"""The protocols of this folder by their full names; each file has those of one or a few benchmarks.

A module has a list `TASKS`. A task file (TOML) describes protocols of the kind `choice` or `perplexity`; a user
may write some too.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from headwater.config import read_toml
from headwater.errors import UsageError
from headwater.evaluation.choice import ChoiceFile
from headwater.evaluation.perplexity import PerplexityFile
from headwater.evaluation.protocols import Task, TaskFile

TASK_FILE = ".toml"  # suffix
_KINDS: dict[str, type[TaskFile]] = {"choice": ChoiceFile, "perplexity": PerplexityFile}


def read_task_file(path: Path) -> list[Task]:
    """Return the protocols of a task file; raise UsageError for a wrong key or kind."""
    if not path.is_file():
        raise UsageError(f"there is no task file {path}", repair="Check the path")
    described = read_toml(path)
    kind = described.get("kind")
    if kind not in _KINDS:
        raise UsageError(f"{path} has the kind {kind!r}", expected="choice or perplexity")
    tasks = list(_KINDS[kind].build(described, source=str(path)).tasks())
    for task in tasks:
        task.file = path
    return tasks


def _tasks_of(path: Path) -> list[Task]:
    if path.suffix == TASK_FILE:
        return read_task_file(path)
    tasks: list[Task] = import_module(f"{__name__}.{path.stem}").TASKS
    return tasks


_FILES = sorted(
    path
    for path in Path(__file__).parent.iterdir()
    if path.suffix in (TASK_FILE, ".py") and path.stem != "__init__"
)
# Every task by the name of its protocol.
TASKS: dict[str, Task] = {task.protocol: task for path in _FILES for task in _tasks_of(path)}

# The version of all protocols. Increase it with every change of what a protocol asks or how it scores, so that
# earlier results are not mistaken for new ones. tests/golden/protocols.json detects a change.
VERSION = 5
