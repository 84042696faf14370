"""Task files, which describe the kinds `choice` and `perplexity`, and a user's own tasks.

A user names a task file, or `MODULE:NAME`, which is imported, so that the user must trust it.
"""

from __future__ import annotations

import importlib
import re
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from headwater.config import read_toml
from headwater.errors import UsageError
from headwater.evaluation.choice import ChoiceFile
from headwater.evaluation.detokenize import DETOKENIZERS
from headwater.evaluation.perplexity import Perplexity, PerplexityFile
from headwater.evaluation.protocols import Task
from headwater.reading import sha256_of

SUFFIX = ".toml"  # of a task file
EXPECTED = (
    "a task file, or MODULE:NAME of a Task, a class of one, or a list of them, in a module that Python can import"
)

PACKAGE_TASKS = Path(__file__).with_name("tasks")
_PROTOCOL = re.compile(r"\w[\w.-]*")


def read_task_file(path: Path) -> list[Task]:
    """Return the protocols of a task file; raise UsageError for a wrong key or kind."""
    if not path.is_file():
        raise UsageError(f"there is no task file {path}", repair="Check the path")
    described = read_toml(path)
    kind = described.get("kind")
    tasks: list[Task]
    if kind == "choice":
        tasks = [*ChoiceFile.build(described, source=str(path)).tasks()]
    elif kind == "perplexity":
        text = PerplexityFile.build(described, source=str(path))
        tasks = [Perplexity(text)]
        if text.detokenizer is not None:
            tasks.append(Perplexity(text, DETOKENIZERS[text.detokenizer]))
    else:
        raise UsageError(f"{path} has the kind {kind!r}", expected="choice or perplexity")
    for task in tasks:
        task.file = path
    return tasks


def is_own(name: str) -> bool:
    """Return whether the name of a task is a task file or `MODULE:NAME`."""
    return ":" in name or name.endswith(SUFFIX)


def load_tasks(name: str) -> list[Task]:
    """Return the tasks of a file or of `MODULE:NAME`; raise UsageError for none, or for a wrong protocol name."""
    tasks = read_task_file(Path(name)) if name.endswith(SUFFIX) else _imported(name)
    for task in tasks:
        if not _PROTOCOL.fullmatch(task.protocol):  # it is the name of a file
            raise UsageError(
                f"--tasks {name} has the protocol name {task.protocol!r}",
                expected="letters, digits, '_', '-' and '.'",
            )
    return tasks


def _imported(name: str) -> list[Task]:
    module_name, _, attribute = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # the user's module can raise anything
        raise UsageError(
            f"--tasks {name}: {module_name or 'a module without a name'} cannot be imported: {place_of(error)}",
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
    return tasks


def is_users(task: Task) -> bool:
    """Return whether a task's code is not part of the package."""
    return type(task).__module__.partition(".")[0] != __name__.partition(".")[0]


def place_of(error: BaseException) -> str:
    """Return an exception of a user's code with the file and line of the last frame that is the user's."""
    package = str(Path(__file__).parents[1])
    traced = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in traced if not frame.filename.startswith((package, "<"))]
    own = [frame for frame in frames if "importlib" not in frame.filename]
    if isinstance(error, SyntaxError) or not own:
        return f"{type(error).__name__}: {error}"
    return f"{Path(own[-1].filename).name}, line {own[-1].lineno}: {type(error).__name__}: {error}"


def source_hashes(tasks: Sequence[Task]) -> dict[str, str]:
    """Return the hash of the source file of each task that is not part of the package, by protocol."""
    hashes = {}
    for task in tasks:
        if task.file is not None:
            if task.file.parent != PACKAGE_TASKS:
                hashes[task.protocol] = sha256_of(task.file)
            continue
        if is_users(task):
            file = getattr(sys.modules.get(type(task).__module__), "__file__", None)
            hashes[task.protocol] = sha256_of(Path(file)) if file else ""
    return hashes


def _tasks_in(value: object) -> list[Task]:
    """Return the tasks of an attribute: a task, a class of one, or a list of tasks."""
    if isinstance(value, Task):
        return [value]
    if isinstance(value, type) and issubclass(value, Task) and not value.__abstractmethods__:
        return [value()]
    if isinstance(value, list | tuple) and value and all(isinstance(one, Task) for one in value):
        return list(value)
    return []
