"""check_pool.c: how the threads of the kernels share their work, also when the system suspends some of them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "src/headwater/native"


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no compiler")
def test_no_thread_waits_for_more_than_an_item(tmp_path: Path) -> None:
    program, check = tmp_path / "check", Path(__file__).with_name("check_pool.c")
    options = ["-std=gnu11", "-O1", "-Wno-psabi", "-pthread", f"-I{FOLDER}"]
    subprocess.run(["gcc", *options, check, FOLDER / "calls.c", "-lm", "-o", program], check=True)
    done = subprocess.run([program], capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stdout) == (0, "all hold\n")
