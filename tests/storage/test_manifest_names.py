"""A manifest of a stranger's names files of its own folder only."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.errors import FolderError
from headwater.reading import read_json
from headwater.storage import Manifest, Stage, open_folder, read_manifest, write_json
from headwater.storage.provenance import MANIFEST


@pytest.mark.parametrize(
    "name", ["../../private/diary.parquet", "/etc/passwd", "a/../../b", "C:/secret", "..\\secret", "C:secret"]
)
def test_a_file_outside_of_the_folder_is_refused(name: str, tmp_path: Path) -> None:
    with Stage(tmp_path / "corpus", kind="corpus", config={}, inputs={}).write() as work:
        (work / "part.txt").write_text("mine")
    path = tmp_path / "corpus" / MANIFEST
    manifest = Manifest.model_validate(read_json(path))
    record = manifest.files["part.txt"]
    write_json(path, manifest.model_copy(update={"files": {name: record}}).sealed().to_dict())
    with pytest.raises(FolderError, match="names a file outside of its folder"):
        read_manifest(tmp_path / "corpus")


def test_links_are_read(tmp_path: Path) -> None:
    """People move weights to a larger disk; the snapshots of the hub's cache consist of links."""
    folder, blobs = tmp_path / "snapshots" / "1", tmp_path / "blobs"
    with Stage(folder, kind="model", config={}, inputs={}).write() as work:
        (work / "a.txt").write_text("a")
        (work / "b.txt").write_text("b")
    blobs.mkdir()
    (folder / "a.txt").rename(blobs / "0")
    (folder / "a.txt").symlink_to("../../blobs/0")
    (folder / "b.txt").rename(folder / "c.txt")
    (folder / "b.txt").symlink_to("c.txt")
    (tmp_path / "latest").symlink_to(folder)
    assert {*open_folder(tmp_path / "latest").files} == {"a.txt", "b.txt"}
