"""Do tasks on several machines that share a disk: with Ray, through datatrove, or with Slurm job scripts.

A task's result does not depend on the machine.
"""

from __future__ import annotations

import re
import shlex
import socket
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from headwater.corpus.task_workers import Phase, TaskRunner, load_runner
from headwater.errors import HeadwaterError, ResourceError, require_extra
from headwater.storage import write_text

try:
    from datatrove.pipeline.base import PipelineStep
except ImportError:  # the extra `cluster` is not installed: `run_on_ray` raises
    PipelineStep = object

_CONNECT_SECONDS = 10.0
# Slurm's own limit on the size of an array is 1,001 unless an administrator changed it.
SLURM_JOBS = 1000


class DoTask(PipelineStep):  # type: ignore[misc]
    """A datatrove step that does the tasks of its rank in a phase; it reads and yields no documents."""

    type = "headwater"
    name = "corpus task"

    def __init__(self, opener: str, folder: str, phase: str) -> None:
        super().__init__()
        self.opener, self.folder, self.phase = opener, folder, phase

    def run(self, data: Any, rank: int = 0, world_size: int = 1) -> Iterator[Any]:
        """See datatrove."""
        do_tasks(self.opener, Path(self.folder), self.phase, rank, world_size)
        yield from ()


def do_tasks(opener: str, folder: Path, phase: str, first: int, stride: int) -> int:
    """Do every `stride`-th task of a phase from `first`, as one job of a cluster; return the exit status.

    opener: see `TaskRunner`. A task that fails does not keep the others from being done. The command that needs
    them does it again, and so raises its error.
    """
    status = 0
    with closing(load_runner(opener, folder)) as runner:
        try:
            missing = runner.missing(phase)
        except (OSError, HeadwaterError):  # a phase before it has failed: the command does it again
            return 1
        for number in missing:
            if number % stride == first:
                try:
                    runner.run(phase, number)
                except HeadwaterError as error:
                    print(f"Error: {error}", file=sys.stderr)
                    status = error.exit_status
    return status


def run_on_ray(runner: TaskRunner, workers: int, address: str) -> None:
    """Do the tasks on the Ray cluster at `address`, or on one started here if that is empty.

    A task whose node is lost is done on another; one that fails is left to the caller.
    """
    with require_extra("cluster", "--engine ray"):
        import ray
        from datatrove.executor.ray import RayPipelineExecutor
    if not ray.is_initialized():
        _join_ray(ray, address)
    folder = runner.plan.folder
    for name, phase in runner.phases.items():
        try:
            if not runner.missing(name):
                continue
            tasks = phase.count(runner.plan)
        except (OSError, HeadwaterError):  # a phase before it has failed
            return
        RayPipelineExecutor(
            [DoTask(runner.opener, str(folder), name)],
            tasks=tasks,
            workers=workers,
            logging_dir=str(folder / ".ray" / name),
            skip_completed=False,  # the folder shows what is done
            log_first=True,
        ).run()


def _join_ray(ray: Any, address: str) -> None:
    """Connect to the cluster at `address`, or start one here; raises ResourceError if that fails."""
    named = re.fullmatch(r"(?:ray://)?\[?([^/]+?)\]?:(\d+)", address)
    try:
        if named:  # Ray itself would try for minutes
            socket.create_connection((named[1], int(named[2])), _CONNECT_SECONDS).close()
        ray.init(address=address or None, log_to_driver=False, configure_logging=False)
    except Exception as error:  # Ray raises no class of its own here
        reason = (str(error).strip() or type(error).__name__).partition("\n")[0]
        where = f"the Ray cluster at {address} cannot be joined" if address else "Ray did not start here"
        raise ResourceError(
            f"{where}: {reason}"[:500],
            repair="Check --address, as HOST:6379, and that this runs there: ray start --head",
        ) from None


def write_slurm_jobs(runner: TaskRunner, folder: Path, workers: int, finish: list[str]) -> Path:
    """Write `tasks.slurm`, `finish.slurm` and `submit.sh` into `folder`; return the path of the last.

    `finish` is the command that needs the tasks, run in the current folder. The user adds partition, time and
    account as arguments of `submit.sh`, which passes them to sbatch.
    """
    first = next(iter(runner.phases.values())).count(runner.plan)

    def submission(name: str, phase: Phase) -> str:
        try:
            jobs = min(phase.count(runner.plan), SLURM_JOBS)
        except (OSError, HeadwaterError):  # the phases before it decide the number of its tasks
            jobs = min(first, SLURM_JOBS)
        array = f"--array=0-{jobs - 1}%{min(workers, jobs)}"
        return (
            f'job=$(sbatch --parsable $after {array} "$@" tasks.slurm {name} {jobs})\n'
            'after=--dependency=afterany:"${job%%;*}"\n'
        )

    python, where = shlex.quote(sys.executable), shlex.quote(str(runner.plan.folder.absolute()))
    folder.mkdir(parents=True, exist_ok=True)
    logs, here = shlex.quote(str(folder.absolute())), shlex.quote(str(Path.cwd()))
    write_text(
        folder / "tasks.slurm",
        f"#!/bin/bash\n#SBATCH --job-name=headwater-corpus\n#SBATCH --cpus-per-task=2\n"
        f"#SBATCH --mem-per-cpu=4G\n#SBATCH --requeue\n#SBATCH --output={logs}/%A_%a.out\n"
        f"exec {python} -m headwater.corpus.building.cluster {runner.opener} {where} "
        f'"$1" $SLURM_ARRAY_TASK_ID "$2"\n',
    )
    write_text(
        folder / "finish.slurm",
        f"#!/bin/bash\n#SBATCH --job-name=headwater-corpus-finish\n#SBATCH --mem=16G\n"
        f"#SBATCH --output={logs}/finish.out\ncd {here} || exit\nexec {shlex.join(finish)}\n",
    )
    submit = folder / "submit.sh"
    write_text(
        submit,
        "#!/bin/sh\n# Arguments are passed to sbatch, as: sh submit.sh --partition=cpu --time=12:00:00\nset -e\n"
        f"cd {logs}\nafter=\n{''.join(submission(*phase) for phase in runner.phases.items())}"
        'sbatch $after "$@" finish.slurm\n',
    )
    return submit


if __name__ == "__main__":
    sys.exit(do_tasks(sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5])))
