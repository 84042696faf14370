"""Do the tasks of a build, phase by phase, in this process or in several; `cluster` does them on other machines.

First the parts, by file; then what joins them (`duplicates`, `join`), by key range, by file and by shard. Each
task writes a folder of its own unless it exists, so that a build resumes where it was, on any machine.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from headwater.corpus.building.duplicates import EXACT, NEAR, Phase
from headwater.corpus.building.join import SHARDS
from headwater.corpus.building.parts import TaskRunner, is_intact, part_funnel, seal, task_output
from headwater.corpus.building.plan import BuildPlan
from headwater.corpus.building.recipes import BuildConfig
from headwater.corpus.steps import Funnel
from headwater.corpus.workers import WorkerPool
from headwater.errors import HeadwaterError, StorageError

PARTS = "parts"  # the name of the first phase
OnFunnel = Callable[[Funnel], None]


def phases(config: BuildConfig) -> tuple[Phase, ...]:
    """Return the phases that join the parts of a build, in order."""
    return (*EXACT, *(NEAR if config.near_duplicates else ()), *SHARDS)


def names(plan: BuildPlan) -> list[str]:
    """Return the names of the phases of a build in order."""
    return [PARTS, *(phase.name for phase in phases(plan.config))]


class PhaseRunner:
    """Does tasks of a plan, with steps and an extracting process that are made once. Use as a context manager."""

    def __init__(self, plan: BuildPlan) -> None:
        self._plan, self._parts = plan, ExitStack()
        self._runner: TaskRunner | None = None
        self._phases = {phase.name: phase for phase in phases(plan.config)}

    def __enter__(self) -> PhaseRunner:
        return self

    def __exit__(self, *unused: object) -> None:
        self._parts.close()

    def missing(self, phase: str) -> list[int]:
        """Return the numbers of the tasks of a phase that are not done; those before it must be."""
        if phase == PARTS:
            return self._plan.missing()
        count = self._phases[phase].count(self._plan)
        return [number for number in range(count) if not self._plan.output(phase, number).is_dir()]

    def run(self, phase: str, number: int, on_funnel: OnFunnel = lambda funnel: None) -> None:
        """Do one task unless it is done; call `on_funnel` with the funnel of a part now and then."""
        if phase == PARTS:
            self._runner = self._runner or self._parts.enter_context(TaskRunner(self._plan))
            self._runner.run(number, on_funnel)
            return
        # Not flushed: what a power cut damages is found by its hash, and takes minutes to make again.
        with task_output(self._plan.output(phase, number), flushed=False) as work:
            if work is not None:
                self._phases[phase].fill(self._plan, number, work)
                seal(work, {})


def remove_altered(plan: BuildPlan) -> int:
    """Remove the parts that are not as their tasks wrote them; return their number.

    If there are any, or if an output that joins them was altered, all such outputs are removed.
    """
    altered = [n for n, part in enumerate(plan.parts) if part.is_dir() and not is_intact(part, plan.tasks[n])]
    for number in altered:
        shutil.rmtree(plan.part(number))
    joined = [output for phase in phases(plan.config) for output in plan.folder.glob(f"{phase.name}-[0-9]*")]
    if altered or not all(map(is_intact, joined)):
        for output in joined:
            shutil.rmtree(output)
    return len(altered)


def start_workers(plan: BuildPlan, count: int) -> WorkerPool:
    """Return a pool of `count` processes that do the tasks of `plan`."""
    return WorkerPool(count, "headwater.corpus.building.run:_task_handler", str(plan.folder))


def run_phase(plan: BuildPlan, phase: str, workers: WorkerPool, on_funnel: OnFunnel = lambda funnel: None) -> None:
    """Do all missing tasks of a phase; call `on_funnel` with the funnel of the parts that are done so far.

    Raises what a task raised after the other tasks are done, but a failure of storage at once.
    """
    total = Funnel()
    with PhaseRunner(plan) as runner:
        missing = runner.missing(phase)
        is_alone = workers.count == 1 or len(missing) <= 1
        for number in (
            _done_here(runner, phase, missing, total, on_funnel)
            if is_alone
            else _done(plan, phase, workers, missing)
        ):
            if phase == PARTS:
                total.add(part_funnel(plan.part(number)))
                on_funnel(total)


def _done_here(
    runner: PhaseRunner, phase: str, missing: list[int], total: Funnel, on_funnel: OnFunnel
) -> Iterator[int]:
    failed: HeadwaterError | None = None
    for number in missing:
        try:
            runner.run(phase, number, lambda funnel: on_funnel(total.joined(funnel)))
        except StorageError:
            raise
        except HeadwaterError as error:
            failed = failed or error
        else:
            yield number
    if failed is not None:
        raise failed


def _done(plan: BuildPlan, phase: str, workers: WorkerPool, missing: list[int]) -> Iterator[int]:
    def named(request: tuple[str, int]) -> str:
        return ", ".join(plan.tasks[request[1]].files[:3]) if phase == PARTS else f"{phase} {request[1]}"

    return workers.replies([(phase, number) for number in missing], named)


def _task_handler(folder: str) -> Callable[[tuple[str, int]], int]:
    """Return what a worker process does with a request (phase, number of a task): it returns the number."""
    runner = PhaseRunner(BuildPlan.load(Path(folder)))

    def handle(request: tuple[str, int]) -> int:
        runner.run(*request)
        return request[1]

    return handle
