"""The protocols of this folder by their full names.

A module has a list `TASKS`. A task file (TOML) describes protocols of the kind `choice`, `last-word` or
`perplexity`; a user may write some too. Another distribution adds a list of tasks by an entry point of the group
`headwater.tasks`. `published.toml` has the papers' values of these protocols.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from headwater.config import read_toml
from headwater.errors import UsageError
from headwater.evaluation.choice import ChoiceFile
from headwater.evaluation.last_word import LastWordFile
from headwater.evaluation.perplexity import PerplexityFile
from headwater.evaluation.protocols import Task, TaskFile
from headwater.evaluation.tasks import held_out, hellaswag, lambada
from headwater.plugins import OPTIONAL_TASKS, TASKS, plugins

TASK_FILE = ".toml"  # suffix
_KINDS: dict[str, type[TaskFile]] = {
    "choice": ChoiceFile,
    "last-word": LastWordFile,
    "perplexity": PerplexityFile,
}


def read_task_file(path: Path) -> list[Task]:
    """Return the protocols of a task file; raise UsageError for a wrong key or kind."""
    if not path.is_file():
        raise UsageError(f"there is no task file {path}", repair="Check the path")
    described = read_toml(path)
    kind = described.get("kind")
    if kind not in _KINDS:
        raise UsageError(f"{path} has the kind {kind!r}", expected=" or ".join(_KINDS))
    tasks = list(_KINDS[kind].build(described, source=str(path)).tasks())
    for task in tasks:
        task.file = path
    return tasks


@cache
def all_tasks() -> dict[str, Task]:
    """Return every protocol by its name: those of this folder, and those that other distributions add."""
    published = Path(__file__).with_name("published.toml")
    values = read_toml(published)
    own = [*held_out.TASKS, *hellaswag.TASKS, *lambada.TASKS]
    own += [
        task
        for path in sorted(published.parent.glob("*.toml"))
        if path != published
        for task in read_task_file(path)
    ]
    for task in own:
        values_of = values.get(task.protocol, {})
        task.published_set = values_of.pop("set", {})
        task.published = values_of
    added = [task for plugin in plugins(TASKS).values() for task in plugin.load()]
    return {task.protocol: task for task in [*added, *own]}


def missing_benchmarks() -> list[str]:
    """Return the benchmarks of headwater-papers that no installed distribution adds."""
    return sorted(OPTIONAL_TASKS - {task.benchmark for task in all_tasks().values()})


# The version of all protocols. Increase it with every change of what a protocol asks or how it scores, so that
# earlier results are not mistaken for new ones. tests/golden/protocols.json detects a change.
VERSION = 1
