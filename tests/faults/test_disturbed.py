"""A full disk, a folder that is read-only, two processes at once, a clock that goes back, a worker that dies.

Whatever happens, the command ends well or with one readable paragraph, and once the disturbance is over the same
command leaves the same bytes as if there had been none.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name != "posix", reason="needs POSIX limits and signals")]
Counted = Callable[[str, int], None]
_FUTURE = 2_208_988_800.0  # the year 2040


def ends_well_or_is_told(ended: Any) -> None:
    assert ended.status == 0 or ended.is_told(), ended.output


def test_a_file_size_limit_is_reported_and_loses_nothing(campaign: Any, counted: Counted, command: str) -> None:
    largest = max(map(len, campaign.reference(command)[0].values()))
    limits = [0, campaign.random.randrange(1, largest), campaign.random.randrange(1, largest), largest - 1]
    folder = campaign.trial(command)
    for limit in limits:
        ends_well_or_is_told(campaign.run(command, folder, file_bytes=limit))
    campaign.finish(command, folder)
    counted("full disks", len(limits))


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[None]:
    """A file system of so many bytes at `folder`; the test is skipped where none may be mounted."""
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=False).returncode:
        pytest.skip("no file system may be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk_is_reported_and_loses_nothing(campaign: Any, counted: Counted, command: str) -> None:
    needed = sum(map(len, campaign.reference(command)[0].values()))
    folder = campaign.trial(command)
    sizes = [4096, max(4096, int(needed * campaign.random.uniform(0.2, 0.9)))]
    with small_disk(folder, sizes[0]):
        for size in sizes:
            subprocess.run(["mount", "-o", f"remount,size={size}", folder], check=True)
            ends_well_or_is_told(campaign.run(command, folder))
        subprocess.run(["mount", "-o", f"remount,size={256 * 1024**2}", folder], check=True)
        campaign.finish(command, folder)
    counted("full disks", len(sizes))


def test_a_folder_without_write_permission_is_reported(campaign: Any, counted: Counted, command: str) -> None:
    folder = campaign.trial(command)
    folder.chmod(0o555)
    ended = campaign.run(command, folder, obeys_permissions=True)
    assert ended.is_told(), ended.output
    assert "cannot be written" in ended.output
    assert not list(folder.iterdir())
    folder.chmod(0o755)
    # Begun, and then taken away.
    campaign.run(command, folder, kill_after=campaign.random.uniform(0, campaign.reference(command)[1]))
    for place in (folder, *folder.rglob("*")):
        place.chmod(0o555 if place.is_dir() else 0o444)
    ends_well_or_is_told(campaign.run(command, folder, obeys_permissions=True))
    for place in (folder, *folder.rglob("*")):
        place.chmod(0o755 if place.is_dir() else 0o644)
    campaign.finish(command, folder)
    counted("read-only folders", 2)


def test_two_processes_on_one_folder_do_not_harm_each_other(campaign: Any, counted: Counted, command: str) -> None:
    seconds = campaign.reference(command)[1]
    for delay in (0.0, campaign.random.uniform(0, seconds)):
        folder = campaign.trial(command)
        from_the_start = campaign.warm.start(campaign.commands[command], folder)
        time.sleep(delay)
        late = campaign.warm.start(campaign.commands[command], folder)
        ended = [campaign.warm.wait(from_the_start), campaign.warm.wait(late)]
        for one in ended:
            ends_well_or_is_told(one)
        assert any(one.status == 0 for one in ended), [one.output for one in ended]
        campaign.finish(command, folder)
    counted("pairs of processes", 2)


def test_a_clock_that_goes_back_changes_nothing(campaign: Any, counted: Counted, command: str) -> None:
    folder = campaign.trial(command)
    campaign.run(command, folder, kill_after=campaign.random.uniform(0, campaign.reference(command)[1]))
    for place in folder.rglob("*"):
        with suppress(FileNotFoundError):
            os.utime(place, (_FUTURE, _FUTURE))
    ended = campaign.run(command, folder, clock_back=True)
    assert ended.status == 0, ended.output
    campaign.finish(command, folder)
    counted("clocks turned back", 1)


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="finds processes as Linux shows them")
def test_a_worker_that_is_killed_is_replaced(campaign: Any, counted: Counted) -> None:
    killed = 0
    for _ in range(4):
        folder = campaign.trial("build-pages")
        number = campaign.warm.start(campaign.commands["build-pages"], folder)
        chosen = None
        until = time.monotonic() + 30
        while chosen is None and time.monotonic() < until:
            chosen = next(iter(workers_of(folder)), None)
        if chosen is not None:
            time.sleep(campaign.random.uniform(0, 0.5))
            with suppress(ProcessLookupError):
                os.kill(chosen, signal.SIGKILL)
                killed += 1
        ended = campaign.warm.wait(number)
        assert ended.status == 0, ended.output
        campaign.finish("build-pages", folder)
    assert killed
    counted("workers killed", killed)


def workers_of(folder: Path) -> Iterator[int]:
    """The processes that do the tasks of a build in `folder`."""
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (
                b"headwater.corpus.task_workers" in (place / "cmdline").read_bytes()
                and (place / "cwd").resolve() == folder
            ):
                yield int(place.name)
