"""An unexpected skip fails the run, in one process or in several; an agreed one does not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
WITHOUT = [option for name in ("cacheprovider", "schemathesis", "anyio") for option in ("-p", f"no:{name}")]
TESTS = """
import pytest

@pytest.fixture
def absent():
    pytest.skip("nobody agreed to this fixture")

def test_passes(): pass
def test_agreed(): pytest.skip("needs real data: set HEADWATER_DATA to its folder")
def test_called(): pytest.skip("nobody agreed to this call")
def test_fixture(absent): pass
@pytest.mark.skipif(True, reason="nobody agreed to this mark")
def test_marked(): pass
@pytest.mark.xfail(reason="known")
def test_known(): assert False
"""


def test_an_unexpected_skip_fails_the_run_and_is_named(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    shutil.copy(HERE.parent / "conftest.py", tmp_path)
    shutil.copy(HERE / "skips.toml", tmp_path / "tests")
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "test_package.py").write_text("import pytest\npytest.importorskip('no_such_package')\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "2", *WITHOUT, str(tmp_path)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    named = sorted(line.split(":")[0].split()[-1] for line in ran.stdout.splitlines() if "UNEXPECTED" in line)
    assert named == ["test_package.py", *(["test_some.py"] * 3)], ran.stdout
    for kind in ("call", "fixture", "mark"):
        assert f"nobody agreed to this {kind}" in ran.stdout
    assert "no_such_package" in ran.stdout
    assert ran.returncode == 1
    (tmp_path / "test_package.py").unlink()
    (tmp_path / "test_some.py").write_text(TESTS.split("def test_called")[0])
    agreed = [sys.executable, "-m", "pytest", "-q", *WITHOUT, str(tmp_path)]
    assert subprocess.run(agreed, cwd=tmp_path, env=environment, check=False).returncode == 0
