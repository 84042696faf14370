"""What a killed or a second process leaves behind is no hindrance, and what a full disk leaves out is noticed."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from headwater.corpus.arrays import save_array
from headwater.errors import FolderError
from headwater.provenance import Stage, open_folder
from headwater.storage import read_sealed, write_sealed, write_text


def stage(out: Path, value: int = 1) -> Stage:
    return Stage(out, kind="made", config={"value": value}, inputs={})


def test_a_leftover_with_this_processs_number_is_no_hindrance(tmp_path: Path) -> None:
    """Numbers of processes come again, in a container at every start."""
    leftover = tmp_path / f".out.{os.getpid()}.part"
    leftover.mkdir()
    (leftover / "half").write_text("x")
    with stage(tmp_path / "out").write() as work:
        (work / "whole").write_text("y")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]
    (tmp_path / f".page.html.{os.getpid()}.part").write_text("half")
    (tmp_path / ".page.html.999999999.part").write_text("half")
    write_text(tmp_path / "page.html", "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "page.html"]


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


def test_a_sealed_file_that_was_altered_is_named(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    write_sealed(path, {"tasks": [1, 2]})
    assert read_sealed(path) == {"tasks": [1, 2]}
    path.write_text(path.read_text().replace("2", "3", 1))
    with pytest.raises(FolderError, match=r"plan\.json"):
        read_sealed(path)
