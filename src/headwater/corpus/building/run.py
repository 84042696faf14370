"""Do the tasks of a plan on this machine, in this process or in several."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from headwater.corpus.building.parts import OnFunnel, TaskRunner, part_funnel, write_part_wanted
from headwater.corpus.building.plan import BuildPlan
from headwater.corpus.filters.steps import Funnel
from headwater.corpus.workers import ATTEMPTS, WorkerDied, WorkerPool
from headwater.errors import HeadwaterError, StorageError


def start_workers(plan: BuildPlan, count: int) -> WorkerPool:
    """Return a pool of `count` processes that do the tasks of `plan`."""
    return WorkerPool(count, "headwater.corpus.building.run:_task_handler", str(plan.folder))


def run_tasks(plan: BuildPlan, workers: WorkerPool, on_funnel: OnFunnel) -> None:
    """Do all missing tasks; call `on_funnel` with the funnel of what is done so far.

    Raises what a task raised, StorageError for a task whose worker died ATTEMPTS times, both after the other tasks
    are done; a failure of storage at once.
    """
    missing = plan.missing()
    total = Funnel()
    if workers.count == 1 or len(missing) <= 1:
        failed: HeadwaterError | None = None
        with TaskRunner(plan) as runner:
            for number in missing:
                try:
                    runner.run(number, lambda funnel: on_funnel(total.joined(funnel)))
                except StorageError:
                    raise
                except HeadwaterError as error:
                    failed = failed or error
                    continue
                total.add(part_funnel(plan.part(number)))
                on_funnel(total)
        if failed is not None:
            raise failed
        return
    for funnel in _replies(plan, workers, "do", missing):
        total.add(funnel)
        on_funnel(total)


def write_wanted(plan: BuildPlan, numbers: list[int], workers: WorkerPool) -> None:
    """Write the shingles of the documents that WANTED in each of these parts names, next to them."""
    if workers.count == 1 or len(numbers) <= 1:
        for number in numbers:
            write_part_wanted(plan.part(number))
        return
    for _ in _replies(plan, workers, "shingle", numbers):
        pass


def _replies(plan: BuildPlan, workers: WorkerPool, job: str, numbers: list[int]) -> Iterator[Any]:
    try:
        yield from workers.replies([(job, number) for number in numbers])
    except WorkerDied as died:
        files = ", ".join(plan.tasks[died.request[1]].files[:3])
        raise StorageError(
            f"the worker that read {files} died {ATTEMPTS} times",
            repair="See whether memory ran out: with fewer --workers each has more; what is complete is kept",
        ) from None


def _task_handler(folder: str) -> Callable[[tuple[str, int]], Funnel | None]:
    """Return what a worker process does with a request (job, number of a task)."""
    plan = BuildPlan.load(Path(folder))
    runner = TaskRunner(plan)

    def handle(request: tuple[str, int]) -> Funnel | None:
        job, number = request
        if job == "shingle":
            write_part_wanted(plan.part(number))
            return None
        runner.run(number)
        return part_funnel(plan.part(number))

    return handle
