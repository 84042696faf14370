"""`python -m headwater.cli.torchrun` ends with one paragraph where torchrun ends with a traceback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headwater.cli.main import main

LAUNCH = [sys.executable, "-m", "headwater.cli.torchrun", "--standalone", "--nproc-per-node=2"]


def test_a_rank_hands_its_message_to_the_launcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))
    assert main(["nonsense"]) == 2  # torchrun's own: the rank prints
    said = capsys.readouterr().err.strip()
    monkeypatch.setenv("HEADWATER_TORCHRUN", "1")
    assert main(["nonsense"]) == 2
    assert capsys.readouterr().err == ""
    assert json.loads((tmp_path / "error.json").read_text(encoding="utf-8"))["message"] == said


@pytest.mark.slow
def test_a_wrong_option_under_torchrun_is_one_paragraph() -> None:
    command = [*LAUNCH, "-m", "headwater", "pretrain", "--bogus"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    (line,) = ran.stderr.strip().splitlines()
    assert line.startswith("Error: No such option: --bogus")


@pytest.mark.slow
def test_sigterm_under_torchrun_is_one_paragraph(tmp_path: Path) -> None:
    script = tmp_path / "wait.py"
    script.write_text("import os, sys, time\nopen(sys.argv[1] + os.environ['RANK'], 'w')\ntime.sleep(600)\n")
    command = [*LAUNCH, str(script), str(tmp_path / "rank")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ) as process:
        while not all((tmp_path / f"rank{rank}").exists() for rank in (0, 1)):
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate()
    assert process.returncode == 130
    assert said.strip() == "Stopped by SIGTERM, with all ranks. Run the same command again to resume."
