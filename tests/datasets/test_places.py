"""Data below `--data` is found under any folder, also a linked one."""

from __future__ import annotations

from pathlib import Path

from headwater.datasets.places import DataFiles, Source


def test_a_linked_folder_is_searched_and_a_loop_ends(tmp_path: Path) -> None:
    (tmp_path / "disk" / "sets").mkdir(parents=True)
    (tmp_path / "disk" / "sets" / "test.jsonl").touch()
    data = tmp_path / "data"
    data.mkdir()
    (data / "linked").symlink_to(tmp_path / "disk", target_is_directory=True)
    (tmp_path / "disk" / "loop").symlink_to(tmp_path / "disk", target_is_directory=True)
    (data / "self").symlink_to(data, target_is_directory=True)
    files = DataFiles([data])
    assert files.locate([Source("test", ("sets/test.jsonl",))]) == {"test": data / "linked/sets/test.jsonl"}
    assert len(files._paths) == 1
