"""Tasks in phases, done in this process, by workers, or (`building.cluster`) on machines that share the disk.

An output gets its name when it is complete, so that work resumes anywhere; its account has the hashes of its
files.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from headwater.corpus.workers import WorkerPool
from headwater.errors import FolderError, HeadwaterError, StorageError
from headwater.reading import parse_json, sha256_of
from headwater.storage import atomic_path

ACCOUNT = "account.json"
Engine = Literal["local", "ray"]


class Phase(NamedTuple):
    """Tasks of one kind: their number, and what fills a task's folder and returns more for its account.

    A power cut may damage outputs that are not `flushed`: their hashes show it, and they are made again.
    """

    name: str
    count: Callable[[Any], int]
    fill: Callable[[Any, int, Path], Mapping[str, Any] | None]
    flushed: bool = False


class TaskRunner:
    """Does the tasks of a plan, phase by phase, each into a folder of its own unless it exists.

    Use as a context manager.
    """

    def __init__(self, plan: Any, phases: Sequence[Phase]) -> None:
        """plan: has a `folder`, where it is saved, and `output(phase, number)` in it, the folder of a task."""
        self.plan, self.phases = plan, {phase.name: phase for phase in phases}
        self.report: Callable[[Any], None] = lambda progress: None  # called by a task now and then

    @property
    def opener(self) -> str:
        """The name of the class, whose method `load` opens the folder of the plan in another process."""
        return f"{type(self).__module__}:{type(self).__qualname__}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        pass

    def missing(self, phase: str) -> list[int]:
        """Return the numbers of the tasks of a phase that are not done; those of the phases before it must be."""
        count = self.phases[phase].count(self.plan)
        return [number for number in range(count) if not self.plan.output(phase, number).is_dir()]

    def run(self, phase: str, number: int) -> None:
        """Do one task unless it is done."""
        output = self.plan.output(phase, number)
        if output.is_dir():
            return
        try:
            with atomic_path(output, folder=True, flushed=self.phases[phase].flushed) as work:
                account = self.phases[phase].fill(self.plan, number, work) or {}
                files = {path.name: sha256_of(path) for path in sorted(work.iterdir())}
                (work / ACCOUNT).write_bytes(sealed({**account, "files": files}))
        except StorageError:
            if not output.is_dir():  # else a worker that was thought dead did it
                raise

    def remove_altered(self) -> int:
        """Remove the outputs that are not as their tasks wrote them, and all of later phases; return the number.

        Those of later phases do not count.
        """
        altered: list[Path] = []
        for phase in self.phases:
            outputs = [*self.plan.folder.glob(f"{phase}-[0-9]*")]
            if altered:
                removed = outputs
            else:
                removed = altered = [output for output in outputs if not is_intact(output)]
            for output in removed:
                shutil.rmtree(output)
        return len(altered)

    def described(self, phase: str, number: int) -> str:
        """Return what a task reads, for messages."""
        return f"{phase} {number}"

    def run_all(
        self,
        *,
        workers: int = 1,
        engine: Engine = "local",
        address: str = "",
        on_done: Callable[[str, int], None] = lambda phase, number: None,
    ) -> None:
        """Do all tasks that are missing; call `on_done` after each that was done here.

        engine "ray" does them on the cluster at `address`, or on one started here. Raises what a task raised after
        the others of its phase are done, but a failure of storage at once.
        """
        count = workers if engine == "local" else min(workers, os.cpu_count() or 1)
        command = ("headwater.corpus.tasks:_task_handler", self.opener, str(self.plan.folder))
        with self, WorkerPool(count, *command) as pool:
            if engine == "ray":
                from headwater.corpus.building.cluster import run_on_ray

                run_on_ray(self, workers, address)
            for phase in self.phases:
                requests = [(phase, number) for number in self.missing(phase)]
                for number in pool.replies(requests, partial(_do, self), lambda request: self.described(*request)):
                    on_done(phase, number)


def load_runner(opener: str, folder: Path) -> TaskRunner:
    """Return the runner of the plan in a folder; opener: see `TaskRunner.opener`."""
    module, _, name = opener.partition(":")
    runner: TaskRunner = getattr(import_module(module), name).load(folder)
    return runner


def _task_handler(opener: str, folder: str) -> Callable[[tuple[str, int]], int]:
    """Return what a worker process does with a request (phase, number of a task): it returns the number."""
    return partial(_do, load_runner(opener, Path(folder)))


def _do(runner: TaskRunner, request: tuple[str, int]) -> int:
    runner.run(*request)
    return request[1]


def read_account(output: Path) -> dict[str, Any]:
    """Return the account of a task's output; raises FolderError if it was altered."""
    try:
        return unsealed((output / ACCOUNT).read_bytes(), output / ACCOUNT)
    except OSError:
        raise damaged(output / ACCOUNT) from None


def is_intact(output: Path) -> bool:
    """Return whether the files of an output are as its task wrote them."""
    try:
        files = read_account(output)["files"]
    except (HeadwaterError, KeyError):
        return False
    return all((output / name).is_file() and sha256_of(output / name) == files[name] for name in files)


def sealed(content: Mapping[str, Any]) -> bytes:
    """Return a line of JSON that contains its own checksum."""
    return json.dumps({**content, "checksum": _checksum(content)}).encode() + b"\n"


def unsealed(line: bytes, path: Path) -> dict[str, Any]:
    """Return what `sealed` was given; raises FolderError if the line of `path` was cut short or altered."""
    try:
        content = parse_json(line)
        if content.pop("checksum") == _checksum(content):
            return dict(content)
    except (json.JSONDecodeError, LookupError, AttributeError, TypeError):
        pass
    raise damaged(path)


def damaged(path: Path) -> FolderError:
    """Return the error for a file that was cut short or altered."""
    return FolderError(f"{path} was cut short or altered", repair="Remove its folder and run the command again")


def _checksum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
