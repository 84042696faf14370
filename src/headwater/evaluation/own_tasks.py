"""A user's own tasks, given as `MODULE:NAME`. The module is imported, so the user must trust it."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from headwater.errors import UsageError
from headwater.evaluation.protocols import Task
from headwater.storage import sha256_of

EXPECTED = "MODULE:NAME of a Task, a class of one, or a list of them, in a module that Python can import"

_PROTOCOL = re.compile(r"\w[\w.-]*")


def is_own(name: str) -> bool:
    """Return whether the name of a task is `MODULE:NAME`."""
    return ":" in name


def load_tasks(name: str) -> list[Task]:
    """Return the tasks of `MODULE:NAME`; raise UsageError if it has none, or one with a wrong protocol name."""
    module_name, _, attribute = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # the user's module can raise anything
        raise UsageError(
            f"--tasks {name}: {module_name or 'a module without a name'} cannot be imported: "
            f"{type(error).__name__}: {error}",
            expected=EXPECTED,
            repair="Run the command in the folder of the module, or set PYTHONPATH",
        ) from error
    if not hasattr(module, attribute):
        named = ", ".join(key for key, value in vars(module).items() if _tasks_in(value)) or "no task"
        raise UsageError(f"--tasks {name}: {module_name} has no {attribute!r}", expected=f"one of: {named}")
    tasks = _tasks_in(getattr(module, attribute))
    if not tasks:
        kind = type(getattr(module, attribute)).__name__
        raise UsageError(f"--tasks {name} names an object of type {kind}", expected=EXPECTED)
    for task in tasks:
        if not _PROTOCOL.fullmatch(task.protocol):  # it is the name of a file
            raise UsageError(
                f"--tasks {name} has the protocol name {task.protocol!r}",
                expected="letters, digits, '_', '-' and '.'",
            )
    return tasks


def source_hashes(tasks: Sequence[Task]) -> dict[str, str]:
    """Return the hash of the source file of each task that is not part of the package, by protocol."""
    found = {}
    for task in tasks:
        module = type(task).__module__
        if module.partition(".")[0] != __name__.partition(".")[0]:
            file = getattr(sys.modules.get(module), "__file__", None)
            found[task.protocol] = sha256_of(Path(file)) if file else ""
    return found


def _tasks_in(value: object) -> list[Task]:
    """Return the tasks of an attribute: a task, a class of one, or a list of tasks."""
    if isinstance(value, Task):
        return [value]
    if isinstance(value, type) and issubclass(value, Task) and not value.__abstractmethods__:
        return [value()]
    if isinstance(value, list | tuple) and value and all(isinstance(one, Task) for one in value):
        return list(value)
    return []
