"""How tests start commands of many processes: whatever was started ends with the test, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

Launched = Callable[[list[str], Path], AbstractContextManager[subprocess.Popen[bytes]]]


@pytest.fixture(scope="session")
def launched() -> Launched:
    """`with launched(arguments, log) as process`: the command, all its output in `log`; SIGKILL at the end."""
    return _launched


@contextmanager
def _launched(arguments: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(
            arguments, env=os.environ | {"OMP_NUM_THREADS": "1"}, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            _kill_with_descendants(process.pid)
            process.wait()


def _kill_with_descendants(pid: int) -> None:
    """SIGKILL a launcher and its ranks, which are in sessions of their own and would continue without it."""
    children = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()
    os.kill(pid, signal.SIGKILL)
    for child in children:
        _kill_with_descendants(int(child))
