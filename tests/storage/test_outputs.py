"""One output file: replaced only if it is what the same command wrote, also after a run that was cut short."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headwater.errors import FolderError
from headwater.storage import OutputFile


@pytest.fixture
def output(tmp_path: Path) -> OutputFile:
    (tmp_path / "rows.csv").write_text("text\na\n")
    return OutputFile(tmp_path / "pred.csv", kind="predictions", config={}, inputs={"rows": tmp_path / "rows.csv"})


def write(output: OutputFile, content: bytes) -> None:
    with output.write() as handle:
        handle.write(content)


def interrupt(output: OutputFile) -> None:
    with pytest.raises(KeyboardInterrupt), output.write() as handle:
        handle.write(b"half")
        raise KeyboardInterrupt


def test_a_users_file_is_kept_after_an_interrupted_run(output: OutputFile) -> None:
    interrupt(output)
    output.out.write_bytes(b"mine")
    with pytest.raises(FolderError, match="was altered after it was written"):
        write(output, b"ours")
    assert output.out.read_bytes() == b"mine"


def test_corrections_by_hand_are_kept_after_an_interrupted_run(output: OutputFile) -> None:
    write(output, b"ours")
    interrupt(output)
    assert output.out.read_bytes() == b"ours"
    output.out.write_bytes(b"corrected")
    with pytest.raises(FolderError, match="was altered after it was written"):
        write(output, b"ours")
    output.out.write_bytes(b"ours")
    write(output, b"ours again")
    assert output.out.read_bytes() == b"ours again"


@pytest.mark.parametrize("write_number", [2, 3], ids=["before the rename", "after the rename"])
def test_a_run_that_is_killed_around_the_rename_resumes(
    output: OutputFile, monkeypatch: pytest.MonkeyPatch, write_number: int
) -> None:
    from headwater.storage import outputs

    write(output, b"before")
    calls = 0

    def killed(path: Path, value: object) -> None:
        nonlocal calls
        calls += 1
        if calls == write_number:
            raise KeyboardInterrupt
        path.write_text(json.dumps(value))

    with monkeypatch.context() as patched:
        patched.setattr(outputs, "write_json", killed)
        with pytest.raises(KeyboardInterrupt):
            write(output, b"after")
    assert output.out.read_bytes() == (b"before", b"after")[write_number - 2]
    write(output, b"after")
    assert output.out.read_bytes() == b"after"
