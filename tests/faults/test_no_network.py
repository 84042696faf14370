"""No command needs the network: the whole flow runs where there is none, subprocesses and C code too.

The commands run in a network namespace without interfaces, not even a loopback that is up. The kernel makes one
where it allows that to this user.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def nowhere() -> list[str]:
    """The beginning of a command line that runs the rest without a network."""
    alone = ["unshare", "--net", "--map-root-user", "--"]
    if shutil.which("unshare") is None or subprocess.run([*alone, "true"], check=False).returncode:
        pytest.skip("no network namespace can be made here")
    return alone


def run(nowhere: list[str], folder: Path, *arguments: str) -> str:
    """Run Python with these arguments where there is no network; return its stdout."""
    environment = os.environ | {"HEADWATER_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        [*nowhere, sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


REACH = """
import socket, sys
try:
    socket.create_connection(("127.0.0.1", 1), timeout=5)
except OSError as error:
    print(error.errno)
"""

# One process for all, since each start of torch takes seconds; a build with two workers starts more of them.
COMMANDS = """
import sys
from headwater.cli.main import main
for command in sys.argv[1:]:
    status = main(command.split())
    assert status == 0, f"{command}: {status}"
"""


def test_these_tests_run_without_a_network(nowhere: list[str], tmp_path: Path) -> None:
    import errno

    found = int(run(nowhere, tmp_path, "-c", REACH))
    assert found in {errno.ENETUNREACH, errno.EADDRNOTAVAIL, errno.EHOSTUNREACH}


def test_text_to_generation_needs_no_network(nowhere: list[str], tmp_path: Path, sample_text: str) -> None:
    (tmp_path / "texts").mkdir()
    for number, text in enumerate(sample_text.split("\n<|endoftext|>\n")):
        (tmp_path / "texts" / f"{number}.txt").write_text(text)
    run(
        nowhere,
        tmp_path,
        "-c",
        COMMANDS,
        "corpus build texts --out corpus --workers 2",
        "tokenizer train corpus --vocab-size 300 --out tokenizer",
        "pack corpus --tokenizer tokenizer --out tokens --validation 0.1",
        "tokenizer encode river --tokenizer gpt2",
        "tokenizer encode river --tokenizer gpt1",
        "generate river --model gpt2-mini --max-tokens 2 --seed 1",
        "lineage tokens",
        "doctor",
    )


@pytest.mark.slow
def test_quickstart_needs_no_network(nowhere: list[str], tmp_path: Path, sample_text: str) -> None:
    (tmp_path / "text.txt").write_text(sample_text)
    arguments = ["--minutes", "0.01", "text.txt", "--out", "out"]
    run(nowhere, tmp_path, "-m", "headwater", "quickstart", *arguments)
    assert (tmp_path / "out" / "report.html").is_file()
