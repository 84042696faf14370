"""A manifest of a stranger's names files of its own folder only."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.errors import FolderError
from headwater.reading import read_json
from headwater.storage.files import write_json
from headwater.storage.provenance import MANIFEST, Manifest, read_manifest
from headwater.storage.stage import Stage


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
