"""Do tasks on several machines that share a disk, with Ray. A task's result does not depend on the machine."""

from __future__ import annotations

import re
import socket
from collections import deque
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any

from headwater.corpus.task_workers import TaskRunner
from headwater.errors import ResourceError, require_extra

_CONNECT_SECONDS = 10.0


def run_on_ray(runner: TaskRunner, phase: str, numbers: Sequence[int], workers: int, address: str) -> None:
    """Do tasks on the Ray cluster at `address`, or on one started here if that is empty; `workers` at a time.

    A task whose node is lost is done on another; one that fails is left to the caller.
    """
    with require_extra("cluster", "--engine ray"):
        import ray
    if not ray.is_initialized():
        _join_ray(ray, address)
    do, copy = ray.remote(_do), ray.put(replace(runner))
    waiting, running = deque(numbers), list[Any]()
    while waiting or running:
        while waiting and len(running) < workers:
            running.append(do.remote(copy, phase, waiting.popleft()))
        [done], running = ray.wait(running)
        with suppress(Exception):  # the caller does the task again, and so raises its error
            ray.get(done)


def _do(runner: TaskRunner, phase: str, number: int) -> None:
    with closing(runner):
        runner.run(phase, number)


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
