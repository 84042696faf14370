"""Data below `--data` is found under any folder, also a linked one."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.errors import ResourceError
from headwater.evaluation import DataFiles, Source
from headwater.storage import Stage


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
    assert len(files._below[0]) == 1


def test_the_first_tokens_folder_is_read_and_two_are_refused(tmp_path: Path) -> None:
    for name in ("first/books", "second/a book", "second/news"):
        with Stage(tmp_path / name, kind="tokens", config={}, inputs={}).write() as work:
            (work / "train.npy").write_bytes(b"")
    tokens = [Source("tokens", kind="tokens")]
    first, second = tmp_path / "first", tmp_path / "second"
    assert DataFiles([first, second]).locate(tokens) == {"tokens": first / "books"}
    assert DataFiles([second / "news", first]).locate(tokens) == {"tokens": second / "news"}
    with pytest.raises(
        ResourceError, match=rf"second/news are both of kind tokens.* --data '{second / 'a book'}'"
    ):
        DataFiles([second, first]).locate(tokens)


def test_two_files_of_one_name_are_refused_unless_equal(tmp_path: Path) -> None:
    rows = [Source("rows", ("rows.jsonl",))]
    for name, text in (("a", "one"), ("b", "one"), ("c", "two")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rows.jsonl").write_text(text, encoding="utf-8")
    with pytest.raises(ResourceError, match=r"a/rows\.jsonl and .*c/rows\.jsonl have one name .* --data .*a/rows"):
        DataFiles([tmp_path]).locate(rows)
    # A folder that is named first wins, and so does a file.
    assert DataFiles([tmp_path / "c", tmp_path / "a"]).locate(rows) == {"rows": tmp_path / "c" / "rows.jsonl"}
    assert DataFiles([tmp_path / "b" / "rows.jsonl", tmp_path]).locate(rows)["rows"].parent.name == "b"
    (tmp_path / "c" / "rows.jsonl").unlink()
    assert DataFiles([tmp_path]).locate(rows) == {"rows": tmp_path / "a" / "rows.jsonl"}
