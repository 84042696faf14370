"""Files that a killed or a second process left do not disturb a command; what a full disk cut off is noticed."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from headwater.errors import FolderError
from headwater.storage import Stage, atomic_write, folder_lock, open_folder, save_array, write_text
from headwater.storage import files as storage


def stage(out: Path, value: int = 1) -> Stage:
    return Stage(out, kind="made", config={"value": value}, inputs={})


posix = pytest.mark.skipif(os.name != "posix", reason="a part is locked on POSIX only")


def leave_parts(folder: Path) -> None:
    """Be killed while writing the folder `out` and the file `page.html` in `folder`."""
    code = (
        "import os, signal; from pathlib import Path; from headwater.storage.stage import Stage\n"
        "from headwater.storage.files import atomic_write\n"
        "with Stage(Path('out'), kind='made', config={}, inputs={}).write() as work:\n"
        "    (work / 'half').write_text('x')\n"
        "    with atomic_write(Path('page.html')) as page:\n"
        "        page.write(b'half'); page.flush(); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=folder, check=False).returncode == -signal.SIGKILL


@posix
def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    leave_parts(tmp_path)
    assert len(list(tmp_path.glob(".*.part"))) == 2
    with stage(tmp_path / "out").write() as work:
        (work / "whole").write_text("y")
    write_text(tmp_path / "page.html", "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "page.html"]


@posix
@pytest.mark.parametrize("here", [True, False], ids=["this machine", "another"])
def test_a_folder_with_half_a_first_manifest_starts_again(
    here: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import os, signal; from pathlib import Path; from headwater.storage.stage import Stage\n"
        "os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)\n"
        "Stage(Path('out'), kind='made', config={'value': 1}, inputs={}, grows=True).begin()\n"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=False).returncode == -signal.SIGKILL
    (part,) = (tmp_path / "out").iterdir()
    if not here:
        monkeypatch.setattr(storage, "_host", lambda: "0" * 8)
    assert stage(tmp_path / "out").begin().kind == "made"
    assert part.exists() is not here
    if here:
        part.mkdir()
        (tmp_path / "out" / "headwater.json").rename(part / "headwater.json")
        with stage(tmp_path / "out").write() as work:  # a folder that does not grow replaces it
            (work / "whole").write_text("y")
        assert sorted(open_folder(tmp_path / "out", "made").files) == ["whole"]
    (tmp_path / "theirs" / part.name).mkdir(parents=True)
    (tmp_path / "theirs" / "book.txt").write_text("x")
    with pytest.raises(FolderError, match="not Headwater's"):
        stage(tmp_path / "theirs").begin()


@posix
def test_the_parts_of_a_running_writer_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in two containers that share a disk, where every process has the number 1."""
    monkeypatch.setattr(os, "getpid", lambda: 1)
    with stage(tmp_path / "out", 1).write() as slow:
        (slow / "half").write_text("x")
        with stage(tmp_path / "out", 1).write() as quick:
            assert quick != slow
            (quick / "half").write_text("x")
        assert (slow / "half").read_text() == "x"
    open_folder(tmp_path / "out", "made")
    with atomic_write(tmp_path / "page") as slow_page:
        slow_page.write(b"slow")
        with atomic_write(tmp_path / "page") as quick_page:
            quick_page.write(b"quick")
        assert (tmp_path / "page").read_bytes() == b"quick"
    assert (tmp_path / "page").read_bytes() == b"slow"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "page"]


@posix
def test_parts_of_another_machine_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a disk that machines share without sharing locks, nobody can say whether their writers live."""
    leave_parts(tmp_path)
    parts = sorted(tmp_path.glob(".*.part"))
    monkeypatch.setattr(storage, "_host", lambda: "0" * 8)
    with stage(tmp_path / "out").write() as work:
        (work / "whole").write_text("y")
    assert sorted(tmp_path.glob(".*.part")) == parts


@posix
def test_a_file_system_without_locks_is_written_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*unused: object) -> None:
        raise OSError(errno.ENOTSUP, "no locks")

    leave_parts(tmp_path)
    monkeypatch.setattr("fcntl.flock", refuse)
    with stage(tmp_path / "out").write() as work:
        (work / "whole").write_text("y")
    open_folder(tmp_path / "out", "made")
    assert len(list(tmp_path.glob(".out.*.part"))) == 1  # whether its writer lives, nobody can say


@posix
@pytest.mark.parametrize("locks", [True, False], ids=["locks", "no locks"])
def test_a_folder_has_one_writer(locks: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*unused: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    def refusal() -> str:
        with pytest.raises(FolderError, match="in use by a running process") as caught:
            folder_lock(tmp_path).__enter__()
        return str(caught.value)

    if not locks:
        monkeypatch.setattr("fcntl.flock", refuse)
    code = f"""
import fcntl, pathlib, sys
if not {locks}:
    fcntl.flock = lambda *unused: open("/nowhere/at/all")  # an OSError
from headwater.storage import folder_lock
with folder_lock(pathlib.Path({str(tmp_path)!r})):
    print("held", flush=True)
    sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        assert (f"remove {tmp_path / '.lock.claim'}" in refusal()) is not locks
        other.kill()
    with folder_lock(tmp_path):  # that of a process that was killed is free
        refusal()
    assert not list(tmp_path.glob(".lock.*"))


def test_of_two_that_write_the_same_both_end_well(tmp_path: Path) -> None:
    first, second = stage(tmp_path / "out"), stage(tmp_path / "out")
    with first.write() as work:
        (work / "a").write_text("the same")
        aside = tmp_path / "elsewhere"
        with Stage(aside, kind="made", config={"value": 1}, inputs={}).write() as other:
            (other / "a").write_text("the same")
        aside.rename(tmp_path / "out")  # as if another process had been quicker
    assert second.is_complete()
    open_folder(tmp_path / "out", "made")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_an_array_that_finds_no_room_is_an_error(tmp_path: Path) -> None:
    for array in (np.arange(5), np.zeros((0, 2), ">u8"), np.arange(6, dtype=np.uint64).reshape(2, 3)):
        np.save(tmp_path / "theirs.npy", array)
        save_array(tmp_path / "ours.npy", array)
        assert (tmp_path / "ours.npy").read_bytes() == (tmp_path / "theirs.npy").read_bytes()
        with pytest.raises(OSError, match="No space"):
            save_array(Path("/dev/full"), array)
